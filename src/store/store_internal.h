/* store_internal.h: what the files of this room share. The only header that includes sqlite3.h.
 *
 *     store_add_* ──► INSERT in the open transaction ──store_flush──► fold, thin, COMMIT
 *                            │                                           │
 *                            └──────── disk full, I/O error ─────────────┘
 *                                              │
 *                              ROLLBACK, count the rows as lost
 */
#ifndef LEAT_STORE_STORE_INTERNAL_H
#define LEAT_STORE_STORE_INTERNAL_H

#include "base/duration_histogram.h"
#include "base/str.h"
#include "store/store.h"

#include <sqlite3.h>
#include <sys/types.h>

#define STORE_APPLICATION_ID 0x6c656174 /* "leat", in the header of the file */

/* How much is kept. Real runs use one set; tests use small limits to reach each of them. */
struct store_limits {
    int64_t step_rows;   /* newest steps kept row by row, all ranks together */
    int64_t first_steps; /* of each rank, never folded: warm-up is judged on them */
    int64_t kept_rows;   /* outliers and marked steps left whole among the folded ones */
    int64_t fold_rows;   /* rows of step_folds */
    int64_t fold_steps;  /* steps an interval starts with; doubles when fold_rows is reached */
    int64_t fold_batch;  /* steps folded at a time */
    int64_t table_rows;  /* rows of each other table */
};

/* What folding has to remember of a rank. */
struct rank_state {
    int32_t rank;
    int64_t frontier; /* steps from here on are all still rows */
    int64_t fresh;    /* rows from the frontier on */
    int64_t kept;     /* rows left whole below it */
};
struct fold_state {
    struct rank_state *ranks; /* owned; in the order of their first steps */
    size_t rank_count, rank_capacity;
    int64_t fresh, kept; /* sums over ranks */
    int64_t folds;       /* rows of step_folds, never underestimated */
    int64_t fold_steps;
};

/* Statements of the folding, prepared when first needed. */
enum {
    SQL_WALLS,
    SQL_FOLD_READ,
    SQL_FOLD_DELETE,
    SQL_FOLD_WRITE,
    SQL_HIST_WRITE,
    SQL_KEPT_WALL,
    SQL_COUNT
};

enum { HIST_KINDS = PHASES + 1 };

struct store_writer {
    sqlite3 *db;
    char *path;   /* owned */
    dev_t device; /* the file that was created there */
    ino_t inode;

    int open;     /* a transaction is open */
    int failed;   /* SQLite's code: it was rolled back; rows are dropped until the next flush */
    int64_t rows; /* added in it */
    int64_t lost_rows, lost_before_commit; /* over the run; of them, not yet in `lost` */
    int64_t refused; /* rows that broke a constraint: a mistake of the caller */
    char why[160];   /* SQLite's message of the last failure */

    sqlite3_stmt *add[STORE_TABLES];
    sqlite3_stmt *sql[SQL_COUNT];

    struct store_limits limits;
    struct fold_state fold, fold_before; /* now, and when the transaction began */
    int64_t table_rows[STORE_TABLES];    /* in tables that are thinned, never underestimated */
    int64_t table_rows_before[STORE_TABLES];

    /* Scratch of one fold, in the writer because it is too large for a stack. */
    uint32_t hist[HIST_KINDS][DURATION_BUCKETS];
};

struct store_reader {
    sqlite3 *db;
    int borrowed; /* the writer's connection */
    char *path;   /* for messages; owned */
};

/* store_sql.c: small things around SQLite. */
int sql_code(int rc);                       /* a SQLite result as one of our codes */
int sql_exec(sqlite3 *db, const char *sql); /* returns the SQLite result */
int sql_int(sqlite3 *db, const char *sql, int64_t *ret_value); /* first column of the first row */
char *sql_take(struct str *s); /* the caller owns the text; NULL: an allocation failed */
/* Prepares `sql`, which it frees; NULL is SQLITE_NOMEM. */
int sql_prepare_taken(sqlite3 *db, char *sql, sqlite3_stmt **ret_statement);
/* A step that needs no rows; resets the statement. Returns SQLITE_OK or the error. */
int sql_run(sqlite3_stmt *statement);
/* "file:..." with every byte escaped that has a meaning in a URI. Owned by the caller. */
char *sql_uri(const char *path, const char *parameters);

/* tables.c */
char *table_insert_sql(enum store_table table); /* owned by the caller */
/* Texts are not copied: the row must live until the statement has run. */
void table_bind(sqlite3_stmt *statement, enum store_table table, const void *row);
void table_read(sqlite3_stmt *statement, enum store_table table, void *ret_row);

/* writer.c */
void store_writer_limits(struct store_writer *w, const struct store_limits *limits); /* tests */
extern const struct store_limits store_limits_default;
int writer_prepare(struct store_writer *w, int index); /* fills w->sql[index]; SQLite result */
/* Adds n to the row of `lost` with this reason, or makes it. SQLite result. */
int writer_count_lost(struct store_writer *w, const char *what, int64_t n, const char *why);

/* writer_fold.c; SQLite results */
int fold_note_step(struct store_writer *w, int32_t rank, int64_t step);
int fold_drop(struct store_writer *w, int32_t rank, int64_t first);
int fold_trim(struct store_writer *w);
char *fold_write_sql(void); /* the text of SQL_FOLD_WRITE; owned by the caller */
int fold_state_copy(const struct fold_state *from, struct fold_state *ret_copy);
void fold_state_done(struct fold_state *state);

/* writer_thin.c; SQLite results */
int thin_has_limit(enum store_table table);
int thin_tables(struct store_writer *w);

#endif
