/* reader.c: a run database, looked at without being touched.
 *
 * The file is opened read-only and immutable: SQLite then takes no lock, makes no journal and
 * cannot change a byte, also on a file system that is read-only. The price is that it would not
 * roll back the journal of a writer that was killed inside a transaction. So when such a journal
 * lies beside the file, the last committed state is made from both in memory (journal.c) and read
 * there; the originals stay as they are.
 *
 * The file is foreign: of another tool, cut, damaged, or of a later leat. Each gives a sentence.
 */
#include "store/store_internal.h"

#include "base/mem.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct store_row {
    sqlite3_stmt *statement;
};

static const char magic[16] = "SQLite format 3";

/* ---- opening ----------------------------------------------------------------------------- */

static uint64_t big_endian(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | *p++;
    return value;
}

/* 1 when the header promises more bytes than there are. SQLite sees a missing page, but not a
 * missing half of the last one. The promise counts only if the last writer made it (byte 92). */
static int is_cut(const unsigned char head[100], off_t size)
{
    uint64_t page = big_endian(head + 16, 2);
    page = page == 1 ? 65536 : page;
    return big_endian(head + 24, 4) == big_endian(head + 92, 4) &&
           (uint64_t)size < page * big_endian(head + 28, 4);
}

/* What can be said of the file before SQLite sees it, and says it better. */
static int check_file(const char *path, struct leat_err *err)
{
    unsigned char head[100];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int code = -errno;
        return err_set(err, code, "%s cannot be read: %s", path, err_text(code));
    }
    int code = 0;
    /* The writer holds SQLite's lock bytes from its first row to its end. */
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0x40000000, .l_len = 512};
    ssize_t got = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        got = pread(fd, head, sizeof head, 0);
        if (fcntl(fd, F_GETLK, &lock))
            lock.l_type = F_UNLCK; /* no locks here: nothing to learn */
    } else {
        code = err_set(err, -LEAT_E_FOREIGN, "%s is not a file", path);
    }
    close(fd);
    if (code)
        return code;
    if (got == 0)
        return err_set(err, -LEAT_E_CORRUPT, "%s is empty: no row of the run reached it", path);
    if (got < (ssize_t)sizeof magic || memcmp(head, magic, sizeof magic))
        return err_set(err, -LEAT_E_FOREIGN, "%s is not a run database: it is no SQLite file",
                       path);
    if (lock.l_type != F_UNLCK)
        return err_set(err, -EBUSY,
                       "%s is still being written by process %d: wait for the run's "
                       "end",
                       path, (int)lock.l_pid);
    if (got < (ssize_t)sizeof head || (is_cut(head, st.st_size) && !journal_is_hot(path)))
        return err_set(err, -LEAT_E_CORRUPT, "%s is damaged or cut short: its end is missing",
                       path);
    return 0;
}

static int say_sqlite(struct store_reader *r, int rc, struct leat_err *err)
{
    int code = sql_code(rc);
    if (code == -LEAT_E_CORRUPT)
        return err_set(err, code, "%s is damaged or cut short: %s", r->path, sqlite3_errmsg(r->db));
    return err_set(err, code, "%s cannot be read: %s", r->path,
                   r->db ? sqlite3_errmsg(r->db) : sqlite3_errstr(rc));
}

static int check_schema(struct store_reader *r, struct leat_err *err)
{
    sqlite3_stmt *s = NULL;
    int64_t tables = 0;
    int rc = sql_int(r->db,
                     "SELECT count(*) FROM sqlite_master WHERE type='table' AND name IN "
                     "('meta','processes','steps')",
                     &tables);
    if (rc)
        return say_sqlite(r, rc, err);
    if (tables != 3)
        return err_set(err, -LEAT_E_FOREIGN, "%s is a SQLite database, but not of a leat run",
                       r->path);
    rc = sqlite3_prepare_v2(r->db, "SELECT value FROM meta WHERE key='schema'", -1, &s, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    int code = 0;
    if (rc == SQLITE_ROW) {
        const char *schema = (const char *)sqlite3_column_text(s, 0);
        if (!schema || strcmp(schema, STORE_SCHEMA))
            code = err_set(err, -LEAT_E_VERSION,
                           "%s has schema %s, and this leat reads schema %s: "
                           "use the leat that wrote it",
                           r->path, schema ? schema : "(none)", STORE_SCHEMA);
    } else if (rc == SQLITE_DONE || rc == SQLITE_ERROR) {
        code = err_set(err, -LEAT_E_FOREIGN, "%s is a SQLite database, but not of a leat run",
                       r->path);
    } else {
        code = say_sqlite(r, rc, err);
    }
    sqlite3_finalize(s);
    return code;
}

static int open_file(struct store_reader *r)
{
    if (journal_is_hot(r->path))
        return journal_open_committed(r->path, &r->db);
    char *uri = sql_uri(r->path, "mode=ro&immutable=1");
    if (!uri)
        return -ENOMEM;
    int rc = sqlite3_open_v2(uri, &r->db,
                             SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READONLY, NULL);
    mem_free(uri);
    return sql_code(rc);
}

static int open_database(struct store_reader *r, struct leat_err *err)
{
    int code = open_file(r);
    if (code)
        return err_set(err, code, "%s cannot be read: %s", r->path, err_text(code));
    sqlite3_extended_result_codes(r->db, 1);
    /* The schema of a foreign file must not run functions of ours; cells are checked as read. */
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sql_exec(r->db, "PRAGMA query_only=ON; PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY");
    return check_schema(r, err);
}

int store_reader_open(const char *path, struct store_reader **ret_reader, struct leat_err *err)
{
    struct store_reader *r = mem_alloc(sizeof *r);
    if (!r || !(r->path = mem_strdup(path))) {
        mem_free(r);
        return err_set(err, -ENOMEM, "%s cannot be read: out of memory", path);
    }
    int code = check_file(path, err);
    if (code == 0)
        code = open_database(r, err);
    if (code) {
        store_reader_close(r);
        return code;
    }
    *ret_reader = r;
    return 0;
}

int store_reader_of_writer(struct store_writer *w, struct store_reader **ret_reader,
                           struct leat_err *err)
{
    int code = store_flush(w);
    if (code && w->pending_bytes)
        return err_set(err, code, "The last rows of %s cannot be written: %s", w->path,
                       err_text(code));
    struct store_reader *r = mem_alloc(sizeof *r);
    if (!r || !(r->path = mem_strdup(w->path))) {
        mem_free(r);
        return err_set(err, -ENOMEM, "%s cannot be read: out of memory", w->path);
    }
    r->db = w->db;
    r->borrowed = 1;
    *ret_reader = r;
    return 0;
}

void store_reader_close(struct store_reader *reader)
{
    if (!reader)
        return;
    if (!reader->borrowed)
        sqlite3_close(reader->db);
    mem_free(reader->path);
    mem_free(reader);
}

/* ---- reading ----------------------------------------------------------------------------- */

int store_select(struct store_reader *reader, const char *sql, const int64_t *params,
                 int param_count, store_row_fn *row, void *context, struct leat_err *err)
{
    struct store_row r = {NULL};
    int rc = sqlite3_prepare_v2(reader->db, sql, -1, &r.statement, NULL);
    for (int i = 0; i < param_count && rc == SQLITE_OK; i++)
        rc = sqlite3_bind_int64(r.statement, i + 1, params[i]);
    int code = 0;
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(r.statement);
        if (rc != SQLITE_ROW)
            break;
        code = row(&r, context);
        if (code)
            break;
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        code = say_sqlite(reader, rc, err);
    sqlite3_finalize(r.statement);
    return code;
}

int store_column_is_null(const struct store_row *row, int column)
{
    return sqlite3_column_type(row->statement, column) == SQLITE_NULL;
}

int64_t store_column_int(const struct store_row *row, int column)
{
    return sqlite3_column_int64(row->statement, column);
}

double store_column_real(const struct store_row *row, int column)
{
    if (sqlite3_column_type(row->statement, column) == SQLITE_NULL)
        return NAN;
    return sqlite3_column_double(row->statement, column);
}

const char *store_column_text(const struct store_row *row, int column)
{
    return (const char *)sqlite3_column_text(row->statement, column);
}
