/* tables.c: tables.def as data, the SQL made of it, and cells to and from SQLite. */
#include "store/store_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A row is an array of these (tables.h). */
union cell {
    int64_t integer;
    double real;
    const char *text;
};
static_assert(sizeof(union cell) == 8, "a cell is 8 bytes");

const char *const leat_phase_names[PHASES] = {
#define X(name, text) text,
    LEAT_PHASES(X)
#undef X
};

#define TABLE(table, row, text) static const struct store_column table##_columns[] = {
#define INTEGER(column, unit, null, meaning, path)                                                 \
    {#column, STORE_INTEGER, unit, null, meaning, path},
#define REAL(column, unit, null, meaning, path) {#column, STORE_REAL, unit, null, meaning, path},
#define TEXT(column, unit, null, meaning, path) {#column, STORE_TEXT, unit, null, meaning, path},
#define ARRAY(field, count)
#define ELEMENT(column, unit, null, meaning, path)                                                 \
    {#column, STORE_INTEGER, unit, null, meaning, path},
#define END(table, row, key)                                                                       \
    }                                                                                              \
    ;                                                                                              \
    static_assert(sizeof(struct row##_row) ==                                                      \
                      sizeof table##_columns / sizeof *table##_columns * sizeof(union cell),       \
                  #table ": the elements of an array are not as many as it has");
#include "store/tables.def"
#include "store/tables_undef.h"

const struct store_table_info store_tables[STORE_TABLES] = {
#define TABLE(table, row, text)                                                                    \
    {                                                                                              \
#table, text,
#define INTEGER(column, unit, null, meaning, path)
#define REAL(column, unit, null, meaning, path)
#define TEXT(column, unit, null, meaning, path)
#define ARRAY(field, count)
#define ELEMENT(column, unit, null, meaning, path)
#define END(table, row, key)                                                                       \
    key, table##_columns, sizeof table##_columns / sizeof *table##_columns                         \
    }                                                                                              \
    ,
#include "store/tables.def"
#include "store/tables_undef.h"
};

#define TABLE(table, row, text)                    const struct row##_row row##_row_nulls = {
#define INTEGER(column, unit, null, meaning, path) .column = STORE_NULL,
#define REAL(column, unit, null, meaning, path)    .column = NAN,
#define TEXT(column, unit, null, meaning, path)    .column = NULL,
#define ARRAY(field, count)                        .field = {[0 ...(count) - 1] = STORE_NULL},
#define ELEMENT(column, unit, null, meaning, path)
#define END(table, row, key)                                                                       \
    }                                                                                              \
    ;
#include "store/tables.def"
#include "store/tables_undef.h"

/* ---- SQL --------------------------------------------------------------------------------- */

/* A key of one integer is SQLite's own row number; a table with any other key needs none. */
static int key_is_rowid(const struct store_table_info *t)
{
    for (int i = 0; i < t->column_count; i++)
        if (strcmp(t->columns[i].name, t->key) == 0)
            return t->columns[i].type == STORE_INTEGER;
    return 0;
}

static void add_table(struct str *s, const struct store_table_info *t)
{
    static const char *const types[] = {"INTEGER", "REAL", "TEXT"};
    str_addf(s, "\n-- %s\nCREATE TABLE %s (\n", t->description, t->name);
    for (int i = 0; i < t->column_count; i++) {
        const struct store_column *c = &t->columns[i];
        int last = i + 1 == t->column_count && !t->key[0];
        str_addf(s, "    %s %s%s%s", c->name, types[c->type], c->null[0] ? "" : " NOT NULL",
                 last ? "" : ",");
        if (c->meaning[0] || c->null[0])
            str_addf(s, " --%s%s%s%s", c->meaning[0] ? " " : "", c->meaning,
                     c->null[0] ? "; NULL: " : "", c->null);
        str_add(s, "\n");
    }
    if (t->key[0])
        str_addf(s, "    PRIMARY KEY (%s)\n", t->key);
    str_add(s, t->key[0] && !key_is_rowid(t) ? ") WITHOUT ROWID;\n" : ");\n");
}

char *store_schema_sql(void)
{
    struct str s = {0};
    str_addf(&s, "PRAGMA application_id = %d;\nPRAGMA user_version = %s;\n", STORE_APPLICATION_ID,
             STORE_SCHEMA);
    for (int i = 0; i < STORE_TABLES; i++)
        add_table(&s, &store_tables[i]);
    return sql_take(&s);
}

char *store_column_list(enum store_table table)
{
    struct str s = {0};
    for (int i = 0; i < store_tables[table].column_count; i++)
        str_addf(&s, "%s%s", i ? ", " : "", store_tables[table].columns[i].name);
    return sql_take(&s);
}

char *table_insert_sql(enum store_table table)
{
    struct str s = {0};
    str_addf(&s, "INSERT OR REPLACE INTO %s VALUES (", store_tables[table].name);
    for (int i = 0; i < store_tables[table].column_count; i++)
        str_add(&s, i ? ",?" : "?");
    str_add(&s, ")");
    return sql_take(&s);
}

/* ---- cells ------------------------------------------------------------------------------- */

/* Cut to `most` bytes, between characters. */
static int text_bytes(const char *text, size_t most)
{
    size_t bytes = strnlen(text, most + 1);
    return (int)(bytes > most ? str_whole_utf8(text, most) : bytes);
}

static union cell cell_of(const void *row, int column)
{
    union cell cell;
    memcpy(&cell, (const char *)row + (size_t)column * sizeof cell, sizeof cell);
    return cell;
}

static void set_cell(void *row, int column, union cell cell)
{
    memcpy((char *)row + (size_t)column * sizeof cell, &cell, sizeof cell);
}

void store_copy_numbers(enum store_table table, const void *row, void *ret_row)
{
    for (int i = 0; i < store_tables[table].column_count; i++) {
        union cell cell = cell_of(row, i);
        if (store_tables[table].columns[i].type == STORE_TEXT)
            cell.text = NULL;
        set_cell(ret_row, i, cell);
    }
}

void table_bind(sqlite3_stmt *statement, enum store_table table, const void *row)
{
    enum { TEXT_MOST = 1024, META_MOST = 65536 }; /* a command line can be long */
    const size_t most = table == STORE_meta ? META_MOST : TEXT_MOST;
    for (int i = 0; i < store_tables[table].column_count; i++) {
        union cell cell = cell_of(row, i);
        enum store_type type = store_tables[table].columns[i].type;
        if (type == STORE_INTEGER && cell.integer != STORE_NULL)
            sqlite3_bind_int64(statement, i + 1, cell.integer);
        else if (type == STORE_REAL)
            sqlite3_bind_double(statement, i + 1, cell.real); /* NaN becomes NULL */
        else if (type == STORE_TEXT && cell.text)
            sqlite3_bind_text(statement, i + 1, cell.text, text_bytes(cell.text, most),
                              SQLITE_STATIC);
        else
            sqlite3_bind_null(statement, i + 1);
    }
}

void table_read(sqlite3_stmt *statement, enum store_table table, void *ret_row)
{
    for (int i = 0; i < store_tables[table].column_count; i++) {
        const struct store_column *column = &store_tables[table].columns[i];
        /* Asking for NULL costs as much as reading the value: not done for NOT NULL columns. */
        int is_null = column->null[0] && sqlite3_column_type(statement, i) == SQLITE_NULL;
        union cell cell;
        if (column->type == STORE_INTEGER)
            cell.integer = is_null ? STORE_NULL : sqlite3_column_int64(statement, i);
        else if (column->type == STORE_REAL)
            cell.real = is_null ? NAN : sqlite3_column_double(statement, i);
        else
            cell.text = (const char *)sqlite3_column_text(statement, i);
        set_cell(ret_row, i, cell);
    }
}
