/* writer.c: rows in, transactions out. See store_internal.h for the way of a row.
 *
 * Settings. The journal is a rollback journal, because WAL needs shared memory, which network file
 * systems do not have; it is truncated rather than deleted, which saves a directory operation a
 * second. Locking is exclusive: nobody else writes, and no lock is taken or given a second time.
 *
 * `synchronous` is off. What it would guard against is a loss of power, after which a profile of
 * the run is the least of worries; a leat that is killed loses nothing that was committed, since
 * the kernel has it. What it would cost: an fsync beside a training that writes its checkpoint can
 * take many seconds, in which rings overflow. The file is synced once, at the end, where an error
 * that a network file system kept to itself still comes to light.
 */
#include "store/store_internal.h"

#include "base/mem.h"

#include <assert.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A step takes some 70 bytes. A million of them is 70 MB, holds 100 000 steps of 8 ranks whole,
 * and is read and diagnosed in less than a second (bench/report_time.py). The other tables have at
 * most 65 536 rows of some 100 bytes, less where rows have long texts, and twice as many in
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
    .pending_bytes = 4 << 20,
};

enum { TEXT_MOST = 1024, META_MOST = 65536 }; /* bytes of a text; a command line can be huge */

/* The first two kinds of op have adders of their own; the rest are rows of w->adders. */
enum { OP_STEP, OP_DROP, OP_ADD };

struct op {
    uint16_t kind;
    uint16_t values;
    uint32_t bytes; /* with this head */
};
/* After the head, `values` times: a letter as in store_add, then 8 bytes; or, for s, 4 bytes of
 * length and the text. */

/* ---- the log of pending ops -------------------------------------------------------------- */

static int log_room(struct store_writer *w, size_t bytes)
{
    /* Only a database that refuses every flush for want of memory lets the log come this far. */
    if (w->pending_bytes + bytes > 16 * w->limits.pending_bytes)
        return -ENOMEM;
    return mem_reserve(&w->pending, &w->pending_capacity, w->pending_bytes + bytes, 1);
}

static void log_bytes(struct store_writer *w, const void *bytes, size_t count)
{
    memcpy(w->pending + w->pending_bytes, bytes, count);
    w->pending_bytes += count;
}

static void log_value(struct store_writer *w, char type, int64_t value)
{
    log_bytes(w, &type, 1);
    log_bytes(w, &value, sizeof value);
}

static int log_text(struct store_writer *w, const char *text, size_t most)
{
    uint32_t length = (uint32_t)strnlen(text, most);
    /* Cut between characters: a continuation byte must not be the first one left out. */
    if (length == most)
        while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    if (log_room(w, 1 + sizeof length + length))
        return -ENOMEM;
    log_bytes(w, "s", 1);
    log_bytes(w, &length, sizeof length);
    log_bytes(w, text, length);
    return 0;
}

/* Ends the op that began at `start`. A log that has grown large is committed at once, so that
 * memory stays bounded however rarely flush is called. The row is safe in the log even if that
 * fails, so the caller is not told: it would add the row a second time. */
static void log_end(struct store_writer *w, size_t start, int kind, int values)
{
    struct op op = {(uint16_t)kind, (uint16_t)values, (uint32_t)(w->pending_bytes - start)};
    memcpy(w->pending + start, &op, sizeof op);
    w->pending_ops++;
    if (w->pending_bytes >= w->limits.pending_bytes)
        store_flush(w);
}

/* ---- applying it ------------------------------------------------------------------------- */

int writer_prepare(struct store_writer *w, int index)
{
    static const char *const texts[SQL_COUNT] = {
        [SQL_ADD_STEP] = "INSERT OR REPLACE INTO steps(id,end_ns,wall_ns,input_ns,h2d_ns,"
                         "forward_ns,backward_ns,optimizer_ns,sync_ns,other_ns,samples,"
                         "micro_steps,records,flags) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        [SQL_WALLS] = "SELECT id,wall_ns FROM steps WHERE id>=?1 AND id<?2 ORDER BY id LIMIT ?3",
        [SQL_FOLD_READ] = "SELECT id,end_ns,wall_ns,input_ns,h2d_ns,forward_ns,backward_ns,"
                          "optimizer_ns,sync_ns,other_ns,samples,micro_steps,records,flags "
                          "FROM steps WHERE id>=?1 AND id<=?2 AND wall_ns<=?3 AND flags&?4=0 "
                          "ORDER BY id",
        [SQL_FOLD_DELETE] = "DELETE FROM steps WHERE id>=?1 AND id<=?2 AND wall_ns<=?3 "
                            "AND flags&?4=0",
#define SUM(x) #x "=" #x "+excluded." #x ","
#define SUM_KNOWN(x)                                                                               \
#x "=CASE WHEN excluded." #x " IS NULL THEN " #x " ELSE coalesce(" #x ",0)+excluded." #x " END,"
        [SQL_FOLD_WRITE] =
            "INSERT INTO step_folds(rank,first_step,n,end_ns,wall_ns,input_ns,h2d_ns,forward_ns,"
            "backward_ns,optimizer_ns,sync_ns,other_ns,samples,micro_steps,records,flags) "
            "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(rank,first_step) DO UPDATE SET "
            "end_ns=max(end_ns,excluded.end_ns)," SUM(n) SUM(wall_ns) SUM(input_ns)
                SUM_KNOWN(h2d_ns) SUM(forward_ns) SUM(backward_ns) SUM(optimizer_ns)
                    SUM_KNOWN(sync_ns) SUM(other_ns) SUM_KNOWN(samples) SUM(micro_steps)
                        SUM(records) "flags=flags|excluded.flags",
#undef SUM
#undef SUM_KNOWN
        [SQL_HIST_WRITE] = "INSERT INTO step_hist(rank,phase,bin,n) VALUES(?,?,?,?) "
                           "ON CONFLICT(rank,phase,bin) DO UPDATE SET n=n+excluded.n",
        [SQL_KEPT_WALL] = "SELECT wall_ns FROM steps WHERE id>=?1 AND id<?2 "
                          "ORDER BY wall_ns LIMIT 1 OFFSET ?3",
    };
    if (w->sql[index])
        return SQLITE_OK;
    return sqlite3_prepare_v3(w->db, texts[index], -1, SQLITE_PREPARE_PERSISTENT, &w->sql[index],
                              NULL);
}

void writer_drop_statements(struct store_writer *w)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(w->sql[i]);
        w->sql[i] = NULL;
    }
    for (size_t i = 0; i < w->adder_count; i++) {
        sqlite3_finalize(w->adders[i].prepared);
        w->adders[i].prepared = NULL;
    }
}

static int adder_prepare(struct store_writer *w, struct adder *a)
{
    if (a->prepared)
        return SQLITE_OK;
    return sqlite3_prepare_v3(w->db, a->sql, -1, SQLITE_PREPARE_PERSISTENT, &a->prepared, NULL);
}

/* Binds the values of an op. Integers of the first few are given back, for ops that mean more than
 * their row. */
static void bind_values(sqlite3_stmt *statement, const char *p, int values, int64_t ints[2])
{
    for (int i = 0; i < values; i++) {
        char type = *p++;
        if (type == 's') {
            uint32_t length;
            memcpy(&length, p, sizeof length);
            sqlite3_bind_text(statement, i + 1, p + sizeof length, (int)length, SQLITE_STATIC);
            p += sizeof length + length;
            continue;
        }
        int64_t value;
        double real;
        memcpy(&value, p, sizeof value);
        memcpy(&real, p, sizeof real);
        p += sizeof value;
        if (i < 2)
            ints[i] = value;
        if (!statement || type == 'n')
            continue; /* unbound is NULL */
        if (type == 'd')
            sqlite3_bind_double(statement, i + 1, real);
        else
            sqlite3_bind_int64(statement, i + 1, value);
    }
}

static int apply_op(struct store_writer *w, const struct op *op, const char *values)
{
    int64_t ints[2] = {0, 0};
    if (op->kind == OP_DROP) {
        bind_values(NULL, values, op->values, ints);
        return fold_drop(w, (int32_t)ints[0], ints[1]);
    }
    int rc;
    sqlite3_stmt *statement;
    struct adder *adder = op->kind >= OP_ADD ? &w->adders[op->kind - OP_ADD] : NULL;
    rc = adder ? adder_prepare(w, adder) : writer_prepare(w, SQL_ADD_STEP);
    if (rc)
        return rc;
    statement = adder ? adder->prepared : w->sql[SQL_ADD_STEP];
    bind_values(statement, values, op->values, ints);
    rc = sql_run(statement);
    if (rc)
        return rc;
    if (!adder)
        return fold_note_step(w, (int32_t)(ints[0] >> STORE_STEP_SHIFT),
                              ints[0] & ((INT64_C(1) << STORE_STEP_SHIFT) - 1));
    if (adder->thin >= 0)
        w->table_rows[adder->thin]++;
    return SQLITE_OK;
}

static int apply_ops(struct store_writer *w, int64_t *ret_refused)
{
    int64_t refused = 0;
    for (size_t at = 0; at < w->pending_bytes;) {
        struct op op;
        memcpy(&op, w->pending + at, sizeof op);
        int rc = apply_op(w, &op, w->pending + at + sizeof op);
        if ((rc & 0xff) == SQLITE_CONSTRAINT)
            refused++; /* the statement undid itself; the transaction goes on */
        else if (rc)
            return rc;
        at += op.bytes;
    }
    *ret_refused = refused;
    return SQLITE_OK;
}

/* All or nothing: after a failure the database and the state of folding are as before. */
int writer_apply(struct store_writer *w)
{
    struct fold_state before = {0};
    int64_t rows_before[THIN_TABLES], refused = 0;
    memcpy(rows_before, w->table_rows, sizeof rows_before);
    int rc = fold_state_copy(&w->fold, &before);
    if (rc)
        return rc;
    rc = sql_exec(w->db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK)
        rc = apply_ops(w, &refused);
    if (rc == SQLITE_OK)
        rc = fold_trim(w);
    if (rc == SQLITE_OK)
        rc = thin_tables(w);
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, "COMMIT");
    if (rc == SQLITE_OK) {
        w->refused += refused;
        w->pending_bytes = 0;
        w->pending_ops = 0;
        fold_state_done(&before);
        return SQLITE_OK;
    }
    /* After some errors SQLite has rolled back by itself. */
    if (!sqlite3_get_autocommit(w->db))
        sql_exec(w->db, "ROLLBACK");
    fold_state_done(&w->fold);
    w->fold = before;
    memcpy(w->table_rows, rows_before, sizeof rows_before);
    return rc;
}

int store_flush(struct store_writer *w)
{
    if (w->pending_bytes == 0)
        return 0;
    int64_t refused = w->refused;
    int rc = writer_apply(w);
    if (rc && !w->in_memory && sql_is_disk(rc)) {
        int code = rescue_to_memory(w, rc);
        if (code)
            return code;
        rc = writer_apply(w);
    }
    if (rc)
        return sql_code(rc);
    return w->refused > refused ? -EINVAL : 0;
}

/* ---- adding ------------------------------------------------------------------------------ */

static int64_t as_signed(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

int store_add_step(struct store_writer *w, const struct step_row *row)
{
    enum { VALUES = 14 };
    if (row->rank < 0 || row->rank >= 1 << 22 || row->step < 0 ||
        row->step >= INT64_C(1) << STORE_STEP_SHIFT)
        return -EINVAL;
    size_t start = w->pending_bytes;
    if (log_room(w, sizeof(struct op) + VALUES * 9))
        return -ENOMEM;
    w->pending_bytes += sizeof(struct op);
    log_value(w, 'i', (int64_t)row->rank << STORE_STEP_SHIFT | row->step);
    log_value(w, 'i', as_signed(row->end_ns));
    log_value(w, 'i', as_signed(row->wall_ns));
    for (int p = 0; p < PHASES; p++) {
        /* Only transfers and waits may be unknown to the schema; a missing forward is no time. */
        int may_miss = p == PHASE_H2D || p == PHASE_SYNC;
        log_value(w, may_miss && !row->known[p] ? 'n' : 'i', as_signed(row->phase_ns[p]));
    }
    log_value(w, row->samples < 0 ? 'n' : 'i', row->samples);
    log_value(w, 'i', row->micro_steps);
    log_value(w, 'i', row->records);
    log_value(w, 'i', row->flags);
    log_end(w, start, OP_STEP, VALUES);
    return 0;
}

int store_drop_steps(struct store_writer *w, int rank, int64_t first)
{
    if (rank < 0 || first < 0)
        return -EINVAL;
    size_t start = w->pending_bytes;
    if (log_room(w, sizeof(struct op) + 2 * 9))
        return -ENOMEM;
    w->pending_bytes += sizeof(struct op);
    log_value(w, 'i', rank);
    log_value(w, 'i', first);
    log_end(w, start, OP_DROP, 2);
    return 0;
}

static void adder_done(struct adder *a)
{
    sqlite3_finalize(a->prepared);
    mem_free(a->table);
    mem_free(a->columns);
    mem_free(a->sql);
}

static char *adder_sql(const char *table, const char *columns, int values)
{
    size_t room = strlen(table) + strlen(columns) + 2 * (size_t)values + 48;
    char *sql = mem_alloc(room);
    if (!sql)
        return NULL;
    char *out = sql + sprintf(sql, "INSERT OR REPLACE INTO %s(%s) VALUES(", table, columns);
    for (int i = 0; i < values; i++)
        out = stpcpy(out, i ? ",?" : "?");
    stpcpy(out, ")");
    return sql;
}

/* The adder of this table and these columns, made when it is the first such row. The statement is
 * prepared here, so that a wrong name fails at its caller and never inside a transaction. */
static int adder_find(struct store_writer *w, const char *table, const char *columns, int values,
                      size_t *ret_index)
{
    for (size_t i = 0; i < w->adder_count; i++) {
        struct adder *a = &w->adders[i];
        if (a->values == values && !strcmp(a->table, table) && !strcmp(a->columns, columns)) {
            *ret_index = i;
            return 0;
        }
    }
    if (w->adder_count + OP_ADD >= UINT16_MAX)
        return -E2BIG;
    if (mem_reserve(&w->adders, &w->adder_capacity, w->adder_count + 1, sizeof *w->adders))
        return -ENOMEM;
    struct adder a = {.values = values, .thin = thin_find(table)};
    a.table = mem_strdup(table);
    a.columns = mem_strdup(columns);
    a.sql = adder_sql(table, columns, values);
    int rc = a.table && a.columns && a.sql ? adder_prepare(w, &a) : SQLITE_NOMEM;
    if (rc) {
        adder_done(&a);
        return sql_code(rc);
    }
    w->adders[w->adder_count] = a;
    *ret_index = w->adder_count++;
    return 0;
}

static int log_argument(struct store_writer *w, char type, va_list *args, size_t text_most)
{
    if (type == 's') {
        const char *text = va_arg(*args, const char *);
        if (text)
            return log_text(w, text, text_most);
        type = 'n';
    } else if (type == 'd') {
        double real = va_arg(*args, double);
        int64_t bits;
        memcpy(&bits, &real, sizeof bits);
        if (log_room(w, 9))
            return -ENOMEM;
        log_value(w, 'd', bits);
        return 0;
    }
    if (log_room(w, 9))
        return -ENOMEM;
    if (type == 'i')
        log_value(w, 'i', va_arg(*args, int64_t));
    else if (type == 'u')
        log_value(w, 'i', as_signed(va_arg(*args, uint64_t)));
    else
        log_value(w, 'n', 0);
    return 0;
}

int store_add(struct store_writer *w, const char *table, const char *columns, const char *types,
              ...)
{
    assert(types[strspn(types, "iudsn")] == '\0');
    int values = (int)strlen(types);
    size_t index = 0;
    int code = adder_find(w, table, columns, values, &index);
    if (code)
        return code;
    size_t start = w->pending_bytes;
    if (log_room(w, sizeof(struct op)))
        return -ENOMEM;
    w->pending_bytes += sizeof(struct op);
    size_t text_most = strcmp(table, "meta") ? TEXT_MOST : META_MOST;
    va_list args;
    va_start(args, types);
    for (int i = 0; i < values && code == 0; i++)
        code = log_argument(w, types[i], &args, text_most);
    va_end(args);
    if (code) {
        w->pending_bytes = start; /* half a row is no row */
        return code;
    }
    log_end(w, start, OP_ADD + (int)index, values);
    return 0;
}

int store_set_meta(struct store_writer *w, const char *key, const char *value)
{
    return store_add(w, "meta", "key,value", "ss", key, value);
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

int writer_settings(sqlite3 *db)
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
    writer_drop_statements(w);
    for (size_t i = 0; i < w->adder_count; i++)
        adder_done(&w->adders[i]);
    mem_free(w->adders);
    sqlite3_close(w->db);
    fold_state_done(&w->fold);
    mem_free(w->pending);
    mem_free(w->path);
    mem_free(w);
}

/* Makes the file ourselves: O_EXCL so that no run overwrites another, 0600 because a command line
 * and its paths are the user's own business. */
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
    int rc = sqlite3_open_v2(w->path, &w->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = writer_settings(w->db);
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, "BEGIN IMMEDIATE");
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, store_schema_sql);
    if (rc == SQLITE_OK)
        rc = sql_exec(w->db, "INSERT INTO meta VALUES('schema','" STORE_SCHEMA "'); COMMIT");
    if (rc && w->db && !sqlite3_get_autocommit(w->db))
        sql_exec(w->db, "ROLLBACK");
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
    code = sql_code(rc);
    if (rc && sql_is_disk(rc))
        code = rescue_to_memory(w, rc); /* the disk is full from the start */
    if (code) {
        err_set(err, code, "%s cannot be used as a database: %s", path, sqlite3_errstr(rc));
        writer_free(w);
        unlink(path);
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

/* Is what we wrote really at our path, and really on the disk? A network file system may report a
 * full disk only now, and a user may have removed the folder meanwhile. */
static int file_is_there(struct store_writer *w)
{
    int fd = open(w->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0)
        return 0;
    int there =
        fstat(fd, &st) == 0 && st.st_dev == w->device && st.st_ino == w->inode && fsync(fd) == 0;
    close(fd); /* drops SQLite's locks on the file too, which are no longer needed */
    return there;
}

int store_writer_close(struct store_writer *w, char **ret_path, struct leat_err *note)
{
    char *unwanted = NULL;
    ret_path = ret_path ? ret_path : &unwanted;
    err_set(note, 0, "%s", "");
    if (!w)
        return 0;
    int code = store_flush(w);
    if (code == -ENOMEM)
        code = store_flush(w); /* nothing was lost, and there is no later flush to hope for */
    if (w->refused) {
        code = store_add(w, "lost", "what,n,why", "sis", "rows", w->refused,
                         "refused by the database");
        code = code ? code : store_flush(w);
    }
    if (!w->in_memory && sql_exec(w->db, "PRAGMA journal_mode=DELETE"))
        code = code ? code : rescue_to_memory(w, sqlite3_extended_errcode(w->db));
    if (!w->in_memory && !file_is_there(w))
        code = code ? code : rescue_to_memory(w, SQLITE_IOERR);
    if (w->in_memory) {
        code = rescue_save(w, ret_path, note);
    } else if (code) {
        err_set(note, code, "The last rows could not be written to %s: %s.", w->path,
                err_text(code));
    } else {
        *ret_path = w->path;
        w->path = NULL;
    }
    mem_free(unwanted);
    writer_free(w);
    return code;
}
