/* writer.c: rows into transactions. store_internal.h shows how a row gets into the database.
 *
 * Settings. The journal is a rollback journal, because WAL needs shared memory, which network file
 * systems do not have; it is truncated rather than deleted, which saves a directory operation per
 * second. Locking is exclusive: no other process writes.
 *
 * `synchronous` is off. It guards against a loss of power, after which the profile of that run is
 * of no use; rows that were committed survive a leat that is killed, since the kernel has them.
 * With it, an fsync beside a training that writes its checkpoint can take many seconds, in which
 * rings overflow. The file is synced once, at the end, where a network file system reports its
 * delayed errors.
 */
#include "store/store_internal.h"

#include "base/mem.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A step takes about 70 bytes. A million of them is 70 MB, holds 100 000 steps of 8 ranks whole,
 * and is read and diagnosed in less than a second (bench/report_time.py). The other tables have at
 * most 65 536 rows of about 100 bytes, less where rows have long texts, and twice as many in
 * input_hist, whose rows are short (writer_thin.c). With every table full, every text as long as
 * its source makes it and every number 6 bytes long (times up to 39 hours) that is 246 MB. */
const struct store_limits store_limits_default = {
    .step_rows = 1000000,
    .first_steps = 1024,
    .kept_rows = 65536,
    .fold_rows = 65536,
    .fold_steps = 64,
    .fold_batch = 4096,
    .table_rows = 65536,
};

int writer_prepare(struct store_writer *w, int index)
{
    static const char *const texts[SQL_COUNT] = {
        [SQL_WALLS] = "SELECT id,wall_ns FROM steps WHERE id>=?1 AND id<?2 ORDER BY id LIMIT ?3",
        [SQL_FOLD_READ] = "SELECT * FROM steps WHERE id>=?1 AND id<=?2 AND wall_ns<=?3 AND "
                          "flags&?4=0 ORDER BY id",
        [SQL_FOLD_DELETE] = "DELETE FROM steps WHERE id>=?1 AND id<=?2 AND wall_ns<=?3 "
                            "AND flags&?4=0",
        [SQL_HIST_WRITE] = "INSERT INTO step_hist(rank,phase,bin,n) VALUES(?,?,?,?) "
                           "ON CONFLICT(rank,phase,bin) DO UPDATE SET n=n+excluded.n",
        [SQL_KEPT_WALL] = "SELECT wall_ns FROM steps WHERE id>=?1 AND id<?2 "
                          "ORDER BY wall_ns LIMIT 1 OFFSET ?3",
    };
    if (w->sql[index])
        return SQLITE_OK;
    return sql_prepare_taken(w->db,
                             index == SQL_FOLD_WRITE ? fold_write_sql() : mem_strdup(texts[index]),
                             &w->sql[index]);
}

/* ---- transactions ------------------------------------------------------------------------ */

static int begin(struct store_writer *w)
{
    if (w->open)
        return SQLITE_OK;
    int rc = fold_state_copy(&w->fold, &w->fold_before);
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, "BEGIN IMMEDIATE");
    if (rc) {
        fold_state_done(&w->fold_before);
        return rc;
    }
    memcpy(w->table_rows_before, w->table_rows, sizeof w->table_rows);
    w->open = 1;
    return SQLITE_OK;
}

/* Undoes the transaction, in the file and in memory, and counts its rows as lost. */
static void lose(struct store_writer *w, int rc)
{
    snprintf(w->why, sizeof w->why, "%s", sqlite3_errstr(rc));
    if (!sqlite3_get_autocommit(w->db)) /* after some errors SQLite has rolled back by itself */
        sql_exec(w->db, "ROLLBACK");
    if (w->open) {
        fold_state_done(&w->fold);
        w->fold = w->fold_before;
        memset(&w->fold_before, 0, sizeof w->fold_before);
        memcpy(w->table_rows, w->table_rows_before, sizeof w->table_rows);
    }
    w->lost_rows += w->rows;
    w->lost_before_commit += w->rows;
    w->rows = 0;
    w->open = 0;
    w->failed = rc;
}

static int insert(struct store_writer *w, enum store_table table, const void *row)
{
    int rc = begin(w);
    if (rc == SQLITE_OK && !w->add[table])
        rc = sql_prepare_taken(w->db, table_insert_sql(table), &w->add[table]);
    if (rc)
        return rc;
    table_bind(w->add[table], table, row);
    rc = sql_run(w->add[table]);
    if (rc)
        return rc;
    if (thin_has_limit(table))
        w->table_rows[table]++;
    if (table == STORE_steps) {
        int64_t id = ((const struct step_row *)row)->id;
        rc = fold_note_step(w, (int32_t)(id >> STORE_STEP_SHIFT),
                            id & ((INT64_C(1) << STORE_STEP_SHIFT) - 1));
    }
    return rc;
}

int store_add_row(struct store_writer *w, enum store_table table, const void *row)
{
    if (table == STORE_steps && ((const struct step_row *)row)->id < 0)
        return -EINVAL;
    w->rows++;
    int rc = w->failed ? w->failed : insert(w, table, row);
    if ((rc & 0xff) ==
        SQLITE_CONSTRAINT) { /* the statement undid itself; the transaction goes on */
        w->rows--;
        w->refused++;
        return -EINVAL;
    }
    if (rc)
        lose(w, rc);
    return 0;
}

int store_drop_steps(struct store_writer *w, int rank, int64_t first)
{
    if (rank < 0 || first < 0)
        return -EINVAL;
    int rc = w->failed ? w->failed : begin(w);
    if (rc == SQLITE_OK)
        rc = fold_drop(w, rank, first);
    if (rc)
        lose(w, rc);
    return 0;
}

int writer_count_lost(struct store_writer *w, const char *what, int64_t n, const char *why)
{
    char *sql = sqlite3_mprintf("UPDATE lost SET n=n+%lld WHERE what=%Q AND why=%Q;"
                                "INSERT INTO lost SELECT %Q,%lld,%Q WHERE changes()=0",
                                (long long)n, what, why, what, (long long)n, why);
    int rc = sql ? sql_exec(w->db, sql) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

static int count_own_losses(struct store_writer *w)
{
    char why[256];
    if (!w->lost_before_commit)
        return SQLITE_OK;
    snprintf(why, sizeof why, "rows of the database could not be written: %s", w->why);
    return writer_count_lost(w, "rows", w->lost_before_commit, why);
}

int store_flush(struct store_writer *w)
{
    int rc = w->failed;
    if (rc == SQLITE_OK && w->lost_before_commit)
        rc = begin(w);
    if (rc == SQLITE_OK && !w->open)
        return 0;
    if (rc == SQLITE_OK)
        rc = fold_trim(w);
    if (rc == SQLITE_OK)
        rc = thin_tables(w);
    if (rc == SQLITE_OK)
        rc = count_own_losses(w);
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, "COMMIT");
    if (rc)
        lose(w, rc);
    else
        w->lost_before_commit = 0;
    fold_state_done(&w->fold_before);
    w->rows = 0;
    w->open = 0;
    w->failed = 0;
    return sql_code(rc);
}

/* ---- rows with a form of their own -------------------------------------------------------- */

int64_t store_step_id(int64_t rank, int64_t step)
{
    if (rank < 0 || rank >= 1 << 22 || step < 0 || step >= INT64_C(1) << STORE_STEP_SHIFT)
        return -1;
    return rank << STORE_STEP_SHIFT | step;
}

int store_set_meta(struct store_writer *w, const char *key, const char *value)
{
    return store_add_meta(w, &(struct meta_row){key, value});
}

int store_set_metaf(struct store_writer *w, const char *key, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return store_set_meta(w, key, text);
}

/* ---- opening and closing ----------------------------------------------------------------- */

static int set_up(sqlite3 *db)
{
    sqlite3_extended_result_codes(db, 1);
    return sql_exec(db, "PRAGMA page_size=4096;"
                        "PRAGMA locking_mode=EXCLUSIVE;"
                        "PRAGMA journal_mode=TRUNCATE;"
                        "PRAGMA synchronous=OFF;"
                        "PRAGMA temp_store=MEMORY;"
                        "PRAGMA cache_size=-16384;");
}

static void writer_free(struct store_writer *w)
{
    if (!w)
        return;
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(w->sql[i]);
    for (int i = 0; i < STORE_TABLES; i++)
        sqlite3_finalize(w->add[i]);
    sqlite3_close(w->db);
    fold_state_done(&w->fold);
    fold_state_done(&w->fold_before);
    mem_free(w->path);
    mem_free(w);
}

/* Creates the file itself: O_EXCL so that no run overwrites another, 0600 because a command line
 * and its paths are private to the user. */
static int create_file(struct store_writer *w, struct leat_err *err)
{
    int fd = open(w->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        int code = -errno;
        if (code == -EEXIST)
            return err_set(err, code, "%s exists already: a run is never overwritten", w->path);
        return err_set(err, code, "%s cannot be created: %s", w->path, err_text(code));
    }
    struct stat st;
    int code = fstat(fd, &st) ? -errno : 0;
    close(fd);
    w->device = st.st_dev;
    w->inode = st.st_ino;
    return code;
}

static int create_schema(struct store_writer *w)
{
    char *schema = store_schema_sql();
    if (!schema)
        return SQLITE_NOMEM;
    int rc = sqlite3_open_v2(w->path, &w->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = set_up(w->db);
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, schema);
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, "INSERT INTO meta VALUES('schema','" STORE_SCHEMA "'); COMMIT");
    mem_free(schema);
    return rc;
}

int store_writer_open(const char *path, struct store_writer **ret_writer, struct leat_err *err)
{
    struct store_writer *w = mem_alloc(sizeof *w);
    if (!w || !(w->path = mem_strdup(path))) {
        mem_free(w);
        return err_set(err, -ENOMEM, "%s cannot be created: out of memory", path);
    }
    store_writer_limits(w, &store_limits_default);
    int code = create_file(w, err);
    if (code) {
        writer_free(w);
        return code;
    }
    int rc = create_schema(w);
    if (rc) {
        char *journal = sqlite3_mprintf("%s-journal", path);
        code = sql_code(rc);
        err_set(err, code, "%s cannot be created: %s", path, sqlite3_errstr(rc));
        writer_free(w);
        unlink(path);
        if (journal)
            unlink(journal);
        sqlite3_free(journal);
        return code;
    }
    *ret_writer = w;
    return 0;
}

void store_writer_limits(struct store_writer *w, const struct store_limits *limits)
{
    w->limits = *limits;
    w->fold.fold_steps = limits->fold_steps;
}

/* Whether what was written is at our path and on the disk. A network file system may report a full
 * disk only now, and a user may have removed the folder meanwhile. */
static int sync_file(struct store_writer *w)
{
    struct stat st;
    int fd = open(w->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int code = fstat(fd, &st) ? -errno : 0;
    if (code == 0 && (st.st_dev != w->device || st.st_ino != w->inode))
        code = -ENOENT;
    if (code == 0 && fsync(fd))
        code = -errno;
    close(fd); /* drops SQLite's locks on the file too, which are no longer needed */
    return code;
}

int store_writer_close(struct store_writer *w, struct leat_err *note)
{
    err_set(note, 0, "%s", "");
    if (!w)
        return 0;
    store_flush(w);
    if (w->refused)
        writer_count_lost(w, "rows", w->refused, "refused by the database");
    if (w->lost_before_commit)
        store_flush(w); /* a disk with free space again takes at least the count */
    int rc = sql_exec(w->db, "PRAGMA journal_mode=DELETE");
    int code = rc ? sql_code(rc) : sync_file(w);
    if (w->lost_rows)
        err_set(note, code, "%s lacks %lld rows, which could not be written: %s.", w->path,
                (long long)w->lost_rows, w->why);
    else if (code)
        err_set(note, code, "%s could not be completed: %s.", w->path, err_text(code));
    writer_free(w);
    return code;
}
