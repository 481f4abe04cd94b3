/* query.h: one value out of a run database, by SQL. Include it behind cmocka.h. */
#ifndef LEAT_TESTS_QUERY_H
#define LEAT_TESTS_QUERY_H

#include "store/store_internal.h"

/* The first column of the first row; `otherwise` for NULL or no row. */
static inline int64_t query_int(struct store_reader *r, const char *sql, int64_t otherwise)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(r->db));
    int rc = sqlite3_step(s);
    int64_t value = rc == SQLITE_ROW && sqlite3_column_type(s, 0) != SQLITE_NULL
                        ? sqlite3_column_int64(s, 0)
                        : otherwise;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        fail_msg("%s: %s", sql, sqlite3_errmsg(r->db));
    sqlite3_finalize(s);
    return value;
}

/* The same as text, "NULL" for NULL and "" for no row; valid until the next call. */
static inline const char *query_text(struct store_reader *r, const char *sql)
{
    static char text[512];
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(r->db));
    text[0] = 0;
    if (sqlite3_step(s) == SQLITE_ROW) {
        const char *value = (const char *)sqlite3_column_text(s, 0);
        snprintf(text, sizeof text, "%s", value ? value : "NULL");
    }
    sqlite3_finalize(s);
    return text;
}

#endif
