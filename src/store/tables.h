/* tables.h: a struct for a row of each table, and functions that write and read it, made from
 * tables.def.
 *
 *     struct loader_row row = loader_row_nulls;      every column NULL
 *     row.pid = 7;
 *     store_add_loader(writer, &row);
 *
 *     struct store_cursor rows;
 *     store_open_loaders(reader, "ORDER BY pid", &rows, err);
 *     while (store_next_loader(&rows, &row) > 0)
 *         ...
 *     store_cursor_done(&rows);
 *
 * A row is an array of cells of 8 bytes in the order of the columns, which is how tables.c reads
 * and writes all of them with one loop. NULL is STORE_NULL, NaN or a NULL pointer.
 */
#ifndef LEAT_STORE_TABLES_H
#define LEAT_STORE_TABLES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define STORE_SCHEMA "9"       /* meta.schema; the databases of other schemas are refused */
#define STORE_NULL   INT64_MIN /* an integer that is NULL */

/* The phases in the order of the columns; one list for store, facts and reports. */
#define LEAT_PHASES(X)                                                                             \
    X(INPUT, "input")                                                                              \
    X(H2D, "h2d")                                                                                  \
    X(FORWARD, "forward")                                                                          \
    X(BACKWARD, "backward")                                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(SYNC, "sync")                                                                                \
    X(OTHER, "other")
enum leat_phase {
#define X(name, text) PHASE_##name,
    LEAT_PHASES(X)
#undef X
        PHASES
};
extern const char *const leat_phase_names[PHASES];

/* struct loader_row ... */
#define TABLE(table, row, text)                    struct row##_row {
#define INTEGER(column, unit, null, meaning, path) int64_t column;
#define REAL(column, unit, null, meaning, path)    double column;
#define TEXT(column, unit, null, meaning, path)    const char *column;
#define ARRAY(field, count)                        int64_t field[count];
#define ELEMENT(column, unit, null, meaning, path)
#define END(table, row, key)                                                                       \
    }                                                                                              \
    ;
#include "store/tables.def"
#include "store/tables_undef.h"

/* STORE_loaders ... */
enum store_table {
#define TABLE(table, row, text) STORE_##table,
#define INTEGER(column, unit, null, meaning, path)
#define REAL(column, unit, null, meaning, path)
#define TEXT(column, unit, null, meaning, path)
#define ARRAY(field, count)
#define ELEMENT(column, unit, null, meaning, path)
#define END(table, row, key)
#include "store/tables.def"
#include "store/tables_undef.h"
    STORE_TABLES
};

/* ---- what is known of a table ----------------------------------------------------------- */

enum store_type { STORE_INTEGER, STORE_REAL, STORE_TEXT };

struct store_column {
    const char *name;
    enum store_type type;
    const char *unit, *null, *meaning, *path; /* see tables.def */
};

struct store_table_info {
    const char *name, *description, *key;
    const struct store_column *columns;
    int column_count;
};
extern const struct store_table_info store_tables[STORE_TABLES];

/* CREATE TABLE of every table, with the meaning of each column as a comment. The caller owns the
 * text (mem_free); NULL: out of memory. */
char *store_schema_sql(void);

/* "pid, loader, ..." The same ownership. */
char *store_column_list(enum store_table table);

/* ---- rows of any table ------------------------------------------------------------------ */

struct store_writer;
struct store_reader;
struct sqlite3_stmt;

/* The rows of a SELECT. Texts of a row are valid until the next row is read. */
struct store_cursor {
    struct store_reader *reader;
    struct sqlite3_stmt *statement;
    enum store_table table;
    struct leat_err *err;
};

/* Copies a row whose texts are NULL in the copy: they belong to a cursor. */
void store_copy_numbers(enum store_table table, const void *row, void *ret_row);

int store_add_row(struct store_writer *w, enum store_table table, const void *row);
int store_open_rows(struct store_reader *reader, enum store_table table, const char *tail,
                    struct store_cursor *ret_cursor, struct leat_err *err);
int store_next_row(struct store_cursor *cursor, void *ret_row);
void store_cursor_done(struct store_cursor *cursor);

/* ---- a writer and a reader for each table ------------------------------------------------ */

/* store_add_loader: 0, or a negative code. -EINVAL: the row does not fit its table. A text is cut
 * to 1 024 bytes (65 536 in meta). A row with the same key is replaced.
 *
 * store_open_loaders: `tail` is what follows FROM in the SELECT ("WHERE pid = 7 ORDER BY loader").
 * store_next_loader: 1 and a row, 0 behind the last, or a negative code with `err` set. */
#define TABLE(table, row, text)                                                                    \
    extern const struct row##_row row##_row_nulls;                                                 \
    static inline int store_add_##row(struct store_writer *w, const struct row##_row *add)         \
    {                                                                                              \
        return store_add_row(w, STORE_##table, add);                                               \
    }                                                                                              \
    static inline int store_open_##table(struct store_reader *reader, const char *tail,            \
                                         struct store_cursor *ret_cursor, struct leat_err *err)    \
    {                                                                                              \
        return store_open_rows(reader, STORE_##table, tail, ret_cursor, err);                      \
    }                                                                                              \
    static inline int store_next_##row(struct store_cursor *cursor, struct row##_row *ret_row)     \
    {                                                                                              \
        return store_next_row(cursor, ret_row);                                                    \
    }
#define INTEGER(column, unit, null, meaning, path)
#define REAL(column, unit, null, meaning, path)
#define TEXT(column, unit, null, meaning, path)
#define ARRAY(field, count)
#define ELEMENT(column, unit, null, meaning, path)
#define END(table, row, key)
#include "store/tables.def"
#include "store/tables_undef.h"

/* A number whose "not known" is negative, as a cell. */
static inline int64_t store_or_null(int64_t value)
{
    return value < 0 ? STORE_NULL : value;
}

/* A total that may exceed the integers of SQLite. */
static inline int64_t store_signed(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

#endif
