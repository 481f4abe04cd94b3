/* store_internal.h: what the files of this room share. The only header that includes sqlite3.h.
 *
 * The writer keeps the rows since the last commit as a log of operations in plain memory:
 *
 *     store_add ──► pending (op, op, op ...) ──flush──► BEGIN, apply all, fold, thin, COMMIT
 *                        │                                   │ disk full, I/O error
 *                        │                                   ▼
 *                        └──────── kept until ────────  ROLLBACK; copy what was committed into
 *                                  COMMIT succeeds      memory; apply the same ops again there
 *
 * So a row is always in one of two places, committed or pending, and a failed transaction is
 * replayed whole: nothing is lost and nothing is counted twice.
 */
#ifndef LEAT_STORE_STORE_INTERNAL_H
#define LEAT_STORE_STORE_INTERNAL_H

#include "store/store.h"

#include <sqlite3.h>
#include <sys/types.h>

#define STORE_APPLICATION_ID 0x6c656174 /* "leat", in the header of the file */

extern const char store_schema_sql[]; /* schema.sql, embedded by the build */

/* How much is kept. One set for life; tests use small ones to see every limit at work. */
struct store_limits {
    int64_t step_rows;   /* newest steps kept row by row, all ranks together */
    int64_t first_steps; /* of each rank, never folded: warm-up is judged on them */
    int64_t kept_rows;   /* outliers and marked steps left whole among the folded ones */
    int64_t fold_rows;   /* rows of step_folds */
    int64_t fold_steps;  /* steps an interval starts with; doubles when fold_rows is reached */
    int64_t fold_batch;  /* steps folded at a time */
    int64_t table_rows;  /* rows of each other table */
    size_t pending_bytes;
};

/* What folding has to remember of a rank. */
struct rank_state {
    int32_t rank;
    int64_t frontier; /* steps from here on are all still rows */
    int64_t fresh;    /* rows from the frontier on */
    int64_t kept;     /* rows left whole below it */
};
struct fold_state {
    struct rank_state *ranks; /* owned; in the order in which ranks spoke first */
    size_t rank_count, rank_capacity;
    int64_t fresh, kept; /* sums over ranks */
    int64_t folds;       /* rows of step_folds, never underestimated */
    int64_t fold_steps;
};

/* A table that is thinned, and how many rows it may have by now (never underestimated). */
enum {
    THIN_PROC,
    THIN_SYS,
    THIN_GPU,
    THIN_MEMORY,
    THIN_SPANS,
    THIN_PROCESSES,
    THIN_WORKERS,
    THIN_LOADERS,
    THIN_ENGINES,
    THIN_CUDA,
    THIN_CUDA_LINES,
    THIN_CLOCK,
    THIN_INPUT_PARTS,
    THIN_INPUT_HIST,
    THIN_INPUT_LINES,
    THIN_LOST,
    THIN_TABLES
};

/* A statement that adds rows: made once, prepared again on the database in memory. */
struct adder {
    char *table, *columns; /* owned: the key */
    char *sql;             /* owned */
    sqlite3_stmt *prepared;
    int values;
    int thin; /* index of the table's limit, or -1 */
};

/* Statements of the folding, prepared when first needed. */
enum {
    SQL_ADD_STEP,
    SQL_WALLS,
    SQL_FOLD_READ,
    SQL_FOLD_DELETE,
    SQL_FOLD_WRITE,
    SQL_HIST_WRITE,
    SQL_KEPT_WALL,
    SQL_COUNT
};

enum { HIST_BINS = 2304, HIST_KINDS = PHASES + 1 }; /* ln(2^64) / ln(1.02) = 2240 */

struct store_writer {
    sqlite3 *db;
    char *path;   /* where it belongs; owned */
    dev_t device; /* the file that was made there */
    ino_t inode;
    int in_memory; /* the disk failed: db is in memory now */
    int lost_disk; /* and what was committed could not be read back */
    char why[160]; /* what the disk said */

    char *pending; /* ops since the last commit; owned */
    size_t pending_bytes, pending_capacity;
    int64_t pending_ops;

    struct adder *adders; /* owned */
    size_t adder_count, adder_capacity;
    sqlite3_stmt *sql[SQL_COUNT];

    struct store_limits limits;
    struct fold_state fold;
    int64_t table_rows[THIN_TABLES];
    int64_t refused; /* rows that broke a constraint: a mistake of the caller, told at the end */

    /* Scratch of one fold, in the writer because it is too large for a stack. */
    uint32_t hist[HIST_KINDS][HIST_BINS];
};

struct store_reader {
    sqlite3 *db;
    int borrowed; /* the writer's connection */
    char *path;   /* for sentences; owned */
};

/* store_sql.c: small things around SQLite. */
int sql_code(int rc);                       /* a SQLite result as one of our codes */
int sql_is_disk(int rc);                    /* the file, not the request, is at fault */
int sql_exec(sqlite3 *db, const char *sql); /* returns the SQLite result */
int sql_int(sqlite3 *db, const char *sql, int64_t *ret_value); /* first column of the first row */
/* A step that needs no rows; resets the statement. Returns SQLITE_OK or the error. */
int sql_run(sqlite3_stmt *statement);
/* "file:..." with every byte escaped that has a meaning in a URI. Owned by the caller. */
char *sql_uri(const char *path, const char *parameters);

/* journal.c */
int journal_is_hot(const char *path); /* 1: a transaction was left open beside `path` */
/* The last committed state of `path`, read-only, in memory; the file is only read. */
int journal_open_committed(const char *path, sqlite3 **ret_db);

/* writer.c */
void store_writer_limits(struct store_writer *w, const struct store_limits *limits); /* tests */
extern const struct store_limits store_limits_default;
int writer_prepare(struct store_writer *w, int index); /* fills w->sql[index]; SQLite result */
void writer_drop_statements(struct store_writer *w);
int writer_settings(sqlite3 *db);         /* the pragmas of a database that is written */
int writer_apply(struct store_writer *w); /* pending -> database, one transaction; SQLite result */

/* writer_fold.c; SQLite results */
int fold_note_step(struct store_writer *w, int32_t rank, int64_t step);
int fold_drop(struct store_writer *w, int32_t rank, int64_t first);
int fold_trim(struct store_writer *w);
int fold_state_copy(const struct fold_state *from, struct fold_state *ret_copy);
void fold_state_done(struct fold_state *state);

/* writer_thin.c; SQLite results */
int thin_find(const char *table); /* index, or -1 for a table without limit */
int thin_tables(struct store_writer *w);

/* writer_rescue.c */
int rescue_to_memory(struct store_writer *w, int rc); /* 0 or a code of ours */
int rescue_save(struct store_writer *w, char **ret_path, struct leat_err *note);

#endif
