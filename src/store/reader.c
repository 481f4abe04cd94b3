/* reader.c: reads a run database and never changes a byte of it.
 *
 * The file is opened read-only and immutable: SQLite then takes no lock, makes no journal and
 * cannot change a byte, also on a file system that is read-only. So it would not roll back the
 * journal of a writer that was killed inside a transaction either. When such a journal lies beside
 * the file, both are copied to the temporary folder, SQLite rolls back there, and the copy is read.
 *
 * The file is foreign: of another tool, cut short, damaged, or of another leat. Each gives a
 * message.
 */
#include "store/store_internal.h"

#include "base/mem.h"
#include "base/path.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Whether a transaction was left open beside `path`: its journal has a header. */
static int has_journal(const char *path)
{
    static const unsigned char journal_magic[] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    unsigned char head[sizeof journal_magic];
    char *name = sqlite3_mprintf("%s-journal", path);
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    int found = fd >= 0 && read(fd, head, sizeof head) == sizeof head &&
                !memcmp(head, journal_magic, sizeof head);
    if (fd >= 0)
        close(fd);
    sqlite3_free(name);
    return found;
}

/* Checks what gives a better message than SQLite's. */
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
    if (got < (ssize_t)sizeof head || (is_cut(head, st.st_size) && !has_journal(path)))
        return err_set(err, -LEAT_E_CORRUPT, "%s is damaged or cut short: its end is missing",
                       path);
    return 0;
}

static int sqlite_error(struct store_reader *r, int rc, struct leat_err *err)
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
        return sqlite_error(r, rc, err);
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
        code = sqlite_error(r, rc, err);
    }
    sqlite3_finalize(s);
    return code;
}

static int open_immutable(struct store_reader *r)
{
    char *uri = sql_uri(r->path, "mode=ro&immutable=1");
    if (!uri)
        return -ENOMEM;
    int rc = sqlite3_open_v2(uri, &r->db,
                             SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READONLY, NULL);
    mem_free(uri);
    return sql_code(rc);
}

static int copy_file(const char *from, const char *to, struct leat_err *err)
{
    enum { MOST_BYTES = 1 << 30 };
    char *bytes = NULL;
    size_t count = 0;
    int code = path_read_file(from, MOST_BYTES, &bytes, &count, err);
    if (code == 0)
        code = path_write_file(to, bytes, count, err);
    mem_free(bytes);
    return code;
}

/* Opens a copy in the temporary folder, which is removed at once: SQLite has it open. */
static int open_recovered(struct store_reader *r, struct leat_err *err)
{
    char *folder = NULL;
    int code = path_make_temporary("recover", &folder);
    if (code)
        return err_set(err, code, "%s cannot be copied to %s: %s", r->path, path_temporary(),
                       err_text(code));
    char *copy = path_join(folder, "run.db", NULL);
    char *copy_journal = path_join(folder, "run.db-journal", NULL);
    char *journal = sqlite3_mprintf("%s-journal", r->path);
    int64_t tables;
    code = copy && copy_journal && journal ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (code == 0)
        code = copy_file(r->path, copy, err);
    if (code == 0)
        code = copy_file(journal, copy_journal, err);
    if (code == 0) {
        int rc = sqlite3_open_v2(copy, &r->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
        if (rc == SQLITE_OK) /* the first read rolls back */
            rc = sql_int(r->db, "SELECT count(*) FROM sqlite_master", &tables);
        code = rc ? sqlite_error(r, rc, err) : 0;
    }
    if (copy)
        unlink(copy);
    if (copy_journal)
        unlink(copy_journal);
    rmdir(folder);
    mem_free(copy);
    mem_free(copy_journal);
    sqlite3_free(journal);
    mem_free(folder);
    return code;
}

static int open_database(struct store_reader *r, struct leat_err *err)
{
    int code;
    if (has_journal(r->path)) {
        code = open_recovered(r, err);
        if (code)
            return code;
    } else if ((code = open_immutable(r))) {
        return err_set(err, code, "%s cannot be read: %s", r->path, err_text(code));
    }
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
    store_flush(w); /* rows that cannot be written are counted */
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

int store_open_rows(struct store_reader *reader, enum store_table table, const char *tail,
                    struct store_cursor *ret_cursor, struct leat_err *err)
{
    struct store_cursor cursor = {.reader = reader, .table = table, .err = err};
    char *columns = store_column_list(table);
    char *sql =
        columns ? sqlite3_mprintf("SELECT %s FROM %s %s", columns, store_tables[table].name, tail)
                : NULL;
    int rc = sql ? sqlite3_prepare_v2(reader->db, sql, -1, &cursor.statement, NULL) : SQLITE_NOMEM;
    mem_free(columns);
    sqlite3_free(sql);
    *ret_cursor = cursor;
    return rc ? sqlite_error(reader, rc, err) : 0;
}

int store_next_row(struct store_cursor *cursor, void *ret_row)
{
    int rc = sqlite3_step(cursor->statement);
    if (rc == SQLITE_ROW)
        table_read(cursor->statement, cursor->table, ret_row);
    return rc == SQLITE_ROW    ? 1
           : rc == SQLITE_DONE ? 0
                               : sqlite_error(cursor->reader, rc, cursor->err);
}

void store_cursor_done(struct store_cursor *cursor)
{
    sqlite3_finalize(cursor->statement);
    cursor->statement = NULL;
}
