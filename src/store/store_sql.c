/* store_sql.c: small things around SQLite that writer and reader share. */
#include "store/store_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int sql_code(int rc)
{
    if (rc == SQLITE_IOERR_NOMEM)
        return -ENOMEM;
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return 0;
    case SQLITE_NOMEM: return -ENOMEM;
    case SQLITE_FULL: return -ENOSPC;
    case SQLITE_IOERR: return -EIO;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return -EBUSY;
    case SQLITE_PERM:
    case SQLITE_READONLY: return -EACCES;
    case SQLITE_CORRUPT: return -LEAT_E_CORRUPT;
    case SQLITE_NOTADB: return -LEAT_E_FOREIGN;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_ERROR: return -EINVAL;
    default: return -LEAT_E_STORE;
    }
}

int sql_exec(sqlite3 *db, const char *sql)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return rc ? sqlite3_extended_errcode(db) : SQLITE_OK;
}

int sql_int(sqlite3 *db, const char *sql, int64_t *ret_value)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            *ret_value = sqlite3_column_int64(statement, 0);
            rc = SQLITE_OK;
        } else if (rc == SQLITE_DONE) {
            rc = SQLITE_NOTFOUND;
        }
    }
    sqlite3_finalize(statement);
    return rc;
}

char *sql_take(struct str *s)
{
    if (!s->failed)
        return s->text;
    str_done(s); /* half a statement may be a valid one */
    return NULL;
}

int sql_prepare_taken(sqlite3 *db, char *sql, sqlite3_stmt **ret_statement)
{
    if (!sql)
        return SQLITE_NOMEM;
    int rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret_statement, NULL);
    mem_free(sql);
    return rc;
}

int sql_run(sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_DONE || rc == SQLITE_ROW)
        rc = SQLITE_OK;
    else
        rc = sqlite3_extended_errcode(sqlite3_db_handle(statement));
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement); /* texts point into the caller's row */
    return rc;
}

char *sql_uri(const char *path, const char *parameters)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "-._~/";
    size_t room = strlen(path) * 3 + strlen(parameters) + 16;
    char *uri = mem_alloc(room);
    if (!uri)
        return NULL;
    /* "//" at the start would be read as an authority: an absolute path goes after an empty one. */
    char *out = stpcpy(uri, path[0] == '/' ? "file://" : "file:");
    for (const char *in = path; *in; in++) {
        if (strchr(plain, *in))
            *out++ = *in;
        else
            out += sprintf(out, "%%%02X", (unsigned char)*in);
    }
    sprintf(out, "?%s", parameters);
    return uri;
}
