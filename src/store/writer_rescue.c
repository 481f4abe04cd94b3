/* writer_rescue.c: when the disk fails, and how the run gets its database all the same.
 *
 * At the first error of the file (no room, an I/O error, a folder made read-only) what was
 * committed is copied into memory and the writer goes on there; the caller then applies the pending
 * rows again, so not one is lost. At the end the whole database is written, in this order:
 *
 *   1. to its own place: as run.db.tmp beside it, then renamed, so a reader finds all or nothing;
 *   2. to a new folder of our own in the temporary folder;
 *   3. nowhere: what had been committed before the failure is still at the first place.
 *
 * The note says which of them it was. It does not try the disk again in between: a disk that is
 * full at one moment is mostly full at the next, and each try costs the rings their time.
 */
#include "store/store_internal.h"

#include "base/mem.h"
#include "base/path.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy_database(sqlite3 *to, sqlite3 *from)
{
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    if (!backup)
        return sqlite3_extended_errcode(to);
    int rc = sqlite3_backup_step(backup, -1);
    int finished = sqlite3_backup_finish(backup);
    if (rc == SQLITE_DONE)
        return finished;
    return rc ? rc : SQLITE_ERROR;
}

static int open_memory(sqlite3 **ret_db)
{
    int rc = sqlite3_open_v2(":memory:", ret_db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = writer_settings(*ret_db);
    return rc;
}

static int has_meta(sqlite3 *db)
{
    int64_t tables = 0;
    int rc = sql_int(db, "SELECT count(*) FROM sqlite_master WHERE name='meta'", &tables);
    return rc ? rc : tables ? SQLITE_OK : SQLITE_NOTADB;
}

/* The file as the last commit left it: through the connection if that could roll back, else from
 * the file and its journal. */
static int copy_committed(struct store_writer *w, sqlite3 *memory)
{
    sqlite3 *committed = NULL;
    int rc = w->db ? copy_database(memory, w->db) : SQLITE_NOTADB;
    if (rc == SQLITE_OK)
        rc = has_meta(memory);
    if (rc == SQLITE_OK || sql_code(rc) == -ENOMEM)
        return rc;
    int code = journal_open_committed(w->path, &committed);
    rc = code == 0 ? copy_database(memory, committed) : code == -ENOMEM ? SQLITE_NOMEM : rc;
    if (code == 0 && rc == SQLITE_OK)
        rc = has_meta(memory);
    sqlite3_close(committed);
    return rc;
}

static int create_empty(sqlite3 *memory)
{
    int rc = sql_exec(memory, store_schema_sql);
    if (rc == SQLITE_OK)
        rc = sql_exec(memory, "INSERT INTO meta VALUES('schema','" STORE_SCHEMA "')");
    return rc;
}

int rescue_to_memory(struct store_writer *w, int why)
{
    sqlite3 *memory = NULL;
    int committed = w->adder_count || w->fold.rank_count; /* anything of the run's own yet? */
    snprintf(w->why, sizeof w->why, "%s", sqlite3_errstr(why));
    writer_drop_statements(w);
    int rc = open_memory(&memory);
    if (rc == SQLITE_OK)
        rc = copy_committed(w, memory);
    if (rc && sql_code(rc) != -ENOMEM) {
        /* Not even readable. What comes from now on is still worth having. */
        w->lost_disk = committed;
        sqlite3_close(memory);
        memory = NULL;
        rc = open_memory(&memory);
        if (rc == SQLITE_OK)
            rc = create_empty(memory);
        fold_state_done(&w->fold);
        w->fold = (struct fold_state){.fold_steps = w->limits.fold_steps};
        memset(w->table_rows, 0, sizeof w->table_rows);
    }
    if (rc) {
        sqlite3_close(memory);
        return sql_code(rc);
    }
    sqlite3_close(w->db);
    w->db = memory;
    w->in_memory = 1;
    return 0;
}

/* ---- putting it back --------------------------------------------------------------------- */

static int sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int code = fsync(fd) ? -errno : 0;
    close(fd);
    return code;
}

/* Writes the database to `path`.tmp and renames it. */
static int save_at(struct store_writer *w, const char *path)
{
    size_t room = strlen(path) + 16;
    char *temporary = mem_alloc(room), *journal = mem_alloc(room);
    sqlite3 *disk = NULL;
    int code = -ENOMEM;
    if (!temporary || !journal)
        goto out;
    snprintf(temporary, room, "%s.tmp", path);
    snprintf(journal, room, "%s-journal", path);
    int fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        code = -errno;
        goto out;
    }
    close(fd);
    /* Without locks and journal: the file is nobody's until it is renamed, and a file system that
     * has no locks (Lustre mounted without flock) may be why we are here. */
    char *uri = sql_uri(temporary, "mode=rw&nolock=1");
    int rc =
        uri ? sqlite3_open_v2(uri, &disk,
                              SQLITE_OPEN_URI | SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL)
            : SQLITE_NOMEM;
    mem_free(uri);
    if (rc == SQLITE_OK)
        rc = sql_exec(disk, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF");
    if (rc == SQLITE_OK)
        rc = copy_database(disk, w->db);
    int closed = sqlite3_close(disk);
    disk = NULL;
    code = sql_code(rc ? rc : closed);
    if (code == 0)
        code = sync_path(temporary);
    /* An old journal beside the new file would be rolled back into it. */
    if (code == 0 && unlink(journal) && errno != ENOENT)
        code = -errno;
    if (code == 0 && rename(temporary, path))
        code = -errno;
    if (code)
        unlink(temporary);
out:
    sqlite3_close(disk);
    mem_free(temporary);
    mem_free(journal);
    return code;
}

/* The name of the run: that of the folder its database is in. */
static void run_name_of(const char *path, char *ret_name, size_t bytes)
{
    const char *end = strrchr(path, '/');
    const char *start = end;
    while (start && start > path && start[-1] != '/')
        start--;
    if (!end || start == end)
        snprintf(ret_name, bytes, "run");
    else
        snprintf(ret_name, bytes, "%.*s", (int)(end - start), start);
}

/* A new folder in the temporary folder, and the path of the database in it. */
static char *elsewhere(struct store_writer *w, int *ret_code)
{
    char name[256], *folder = NULL, *path = NULL;
    run_name_of(w->path, name, sizeof name);
    *ret_code = path_make_temporary(name, &folder);
    if (*ret_code == 0 && !(path = path_join(folder, "run.db", NULL))) {
        *ret_code = -ENOMEM;
        rmdir(folder);
    }
    mem_free(folder);
    return path;
}

static void remove_with_folder(const char *path)
{
    char *folder = mem_strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    unlink(path);
    if (slash) {
        *slash = '\0';
        rmdir(folder);
    }
    mem_free(folder);
}

int rescue_save(struct store_writer *w, char **ret_path, struct leat_err *note)
{
    const char *gap =
        w->lost_disk ? " What was recorded before the failure could not be read back." : "";
    char *other = NULL;
    int code = w->pending_bytes ? -ENOMEM : 0;
    if (code == 0)
        code = save_at(w, w->path);
    if (code == 0) {
        err_set(note, 0,
                "The disk failed during the run (%s); %s was kept in memory and is "
                "complete now.%s",
                w->why, w->path, gap);
        *ret_path = w->path;
        w->path = NULL;
        return 0;
    }
    int elsewhere_code = -ENOMEM;
    if (!w->pending_bytes && (other = elsewhere(w, &elsewhere_code))) {
        elsewhere_code = save_at(w, other);
        if (elsewhere_code == 0) {
            /* A part beside the whole would be taken for the whole. */
            char *journal = mem_alloc(strlen(w->path) + 16);
            if (journal) {
                sprintf(journal, "%s-journal", w->path);
                unlink(journal);
            }
            mem_free(journal);
            unlink(w->path);
            err_set(note, 0, "%s could not be written (%s); the run's database is %s.%s", w->path,
                    w->why, other, gap);
            *ret_path = other;
            return 0;
        }
        remove_with_folder(other);
    }
    mem_free(other);
    err_set(note, code,
            "%s could not be written (%s), nor could the temporary folder (%s): what "
            "was recorded after the failure is lost.%s",
            w->path, w->why, err_text(elsewhere_code), gap);
    return code;
}
