/* reader.c: a run database, looked at without being touched.
 *
 * The file is opened read-only and immutable: SQLite then takes no lock, makes no journal and
 * cannot change a byte, also on a file system that is read-only. The price is that it would not
 * roll back the journal of a writer that was killed inside a transaction. So when such a journal
 * lies beside the file, both are copied into a private temporary folder, rolled back there, and
 * read there: the reader sees the last committed state and the originals stay as they are.
 *
 * The file is foreign: of another tool, cut, damaged, or of a later leat. Each gives a sentence.
 */
#include "store/store_internal.h"

#include "base/mem.h"
#include "base/path.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct store_row {
    sqlite3_stmt *statement;
};

static const char magic[16] = "SQLite format 3";

/* ---- a journal left behind --------------------------------------------------------------- */

/* 1 when `path`-journal holds a transaction: it is there, not empty, and its header was not wiped
 * by a commit. */
static int has_journal(const char *path)
{
    char *journal = mem_alloc(strlen(path) + 16);
    int found = 0;
    char first = 0;
    if (!journal)
        return 0;
    sprintf(journal, "%s-journal", path);
    int fd = open(journal, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        found = read(fd, &first, 1) == 1 && first != 0;
        close(fd);
    }
    mem_free(journal);
    return found;
}

static int copy_file(const char *from, const char *to)
{
    static const size_t CHUNK = 1 << 20;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    char *buffer = mem_alloc(CHUNK);
    ssize_t got = 0;
    int code = in < 0 || out < 0 ? -errno : buffer ? 0 : -ENOMEM;
    while (code == 0 && (got = read(in, buffer, CHUNK)) > 0)
        for (ssize_t done = 0; code == 0 && done < got;) {
            ssize_t put = write(out, buffer + done, (size_t)(got - done));
            if (put < 0)
                code = -errno;
            else
                done += put;
        }
    if (code == 0 && got < 0)
        code = -errno;
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) && code == 0)
        code = -errno;
    mem_free(buffer);
    return code;
}

static void remove_copy(struct store_reader *r)
{
    static const char *const names[] = {"run.db", "run.db-journal"};
    if (!r->copy_dir)
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = path_join(r->copy_dir, names[i], NULL);
        if (path)
            unlink(path);
        mem_free(path);
    }
    rmdir(r->copy_dir);
    mem_free(r->copy_dir);
    r->copy_dir = NULL;
}

/* Copies database and journal; *ret_path is the copy, rolled back when it is opened. */
static int make_copy(struct store_reader *r, char **ret_path, struct leat_err *err)
{
    const char *tmp = getenv("TMPDIR");
    char *journal = mem_alloc(strlen(r->path) + 16);
    char *folder = path_join(tmp && *tmp ? tmp : "/tmp", "leat-read-XXXXXX", NULL);
    char *to = NULL, *to_journal = NULL;
    int code = -ENOMEM;
    if (!journal || !folder)
        goto out;
    if (!mkdtemp(folder)) {
        code = -errno;
        goto out;
    }
    r->copy_dir = folder;
    to = path_join(folder, "run.db", NULL);
    to_journal = path_join(folder, "run.db-journal", NULL);
    folder = NULL;
    if (!to || !to_journal)
        goto out;
    sprintf(journal, "%s-journal", r->path);
    code = copy_file(r->path, to);
    if (code == 0)
        code = copy_file(journal, to_journal);
    if (code == 0) {
        *ret_path = to;
        to = NULL;
    }
out:
    if (code)
        err_set(err, code,
                "%s was left in the middle of a change, and no copy to undo it could be "
                "made in the temporary folder: %s",
                r->path, err_text(code));
    mem_free(journal);
    mem_free(folder);
    mem_free(to);
    mem_free(to_journal);
    return code;
}

/* ---- opening ----------------------------------------------------------------------------- */

/* What can be said of the file before SQLite sees it, and says it better. */
static int check_file(const char *path, struct leat_err *err)
{
    char head[16];
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
    if (got != sizeof head || memcmp(head, magic, sizeof head))
        return err_set(err, -LEAT_E_FOREIGN, "%s is not a run database: it is no SQLite file",
                       path);
    if (lock.l_type != F_UNLCK)
        return err_set(err, -EBUSY,
                       "%s is still being written by process %d: wait for the run's "
                       "end",
                       path, (int)lock.l_pid);
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

static int open_database(struct store_reader *r, struct leat_err *err)
{
    char *uri = NULL, *copy = NULL;
    int code = 0, flags = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    if (has_journal(r->path)) {
        code = make_copy(r, &copy, err);
        if (code)
            return code;
        uri = sql_uri(copy, "mode=rw");
        flags |= SQLITE_OPEN_READWRITE;
    } else {
        uri = sql_uri(r->path, "mode=ro&immutable=1");
        flags |= SQLITE_OPEN_READONLY;
    }
    mem_free(copy);
    if (!uri)
        return err_set(err, -ENOMEM, "%s cannot be read: out of memory", r->path);
    int rc = sqlite3_open_v2(uri, &r->db, flags, NULL);
    mem_free(uri);
    if (rc)
        return say_sqlite(r, rc, err);
    sqlite3_extended_result_codes(r->db, 1);
    /* The schema of a foreign file must not run functions of ours; cells are checked as read. */
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sql_exec(r->db, "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY");
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
    remove_copy(reader);
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
