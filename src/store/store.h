/* store.h: the run database. The only room that knows SQLite.
 *
 * The writer is built for bad days. The logs folder may be on NFS (so: no WAL, a rollback journal,
 * exclusive locking), and the disk may fill up: the writer then moves what it has into memory, goes
 * on there, and puts it back at the end, or into the temporary folder if there is still no room.
 * Training never notices, and no row is lost. A leat that is killed leaves its last commit.
 *
 * Size: the newest million steps are kept row by row; older ones are folded into intervals and
 * histograms, outliers staying whole (writer_fold.c). The other tables are thinned beyond 65 536
 * rows (writer_thin.c). So run.db stays below 256 MB however long the run.
 *
 * The reader opens read-only and immutable: it cannot change a byte of the file. A database that
 * its writer still holds is refused (-EBUSY).
 */
#ifndef LEAT_STORE_STORE_H
#define LEAT_STORE_STORE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define STORE_SCHEMA     "9" /* meta.schema */
#define STORE_STEP_SHIFT 40  /* steps.id = rank << 40 | step */

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

enum step_flag {
    STEP_EPOCH_START = 1,
    STEP_COMPILE = 2,
    STEP_CHECKPOINT = 4,
    STEP_AFTER_EVAL = 8,
    STEP_EXCEPTION = 16,
    STEP_INFERENCE = 32
};

struct step_row {
    int32_t rank;
    uint32_t flags;
    int64_t step; /* from 0 */
    uint64_t end_ns, wall_ns;
    uint64_t phase_ns[PHASES];
    uint8_t known[PHASES]; /* 0: this phase was not measured (stored as NULL) */
    int64_t samples;       /* -1: unknown */
    uint32_t micro_steps, records;
};

/* ---- writing ---------------------------------------------------------------------------- */

struct store_writer; /* one owner, one thread */

/* Creates `path`, which must not exist. */
int store_writer_open(const char *path, struct store_writer **ret_writer, struct leat_err *err);

/* All adders return 0 or a negative code; a full disk is no error (see above). -EINVAL is a row
 * that does not fit its table; after -ENOMEM from an adder the row was not taken and may be added
 * again. Rows are grouped into transactions by store_flush, which the collector calls about once a
 * second; after a failed flush they are still there for the next. */
int store_add_step(struct store_writer *w, const struct step_row *row);
int store_flush(struct store_writer *w);

/* Any other table, by name, with values in the order of `columns` ("a,b,c"). `types` has one letter
 * a value: i int64_t, u uint64_t, d double, s const char * (NULL allowed), n nothing (NULL).
 * Statements are cached. `REPLACE` semantics for tables with a key. A text is cut to 1 024 bytes
 * (65 536 in meta). */
int store_add(struct store_writer *w, const char *table, const char *columns, const char *types,
              ...);
int store_set_meta(struct store_writer *w, const char *key, const char *value);
int store_set_metaf(struct store_writer *w, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The bin of step_hist and input_hist for a duration. */
int store_hist_bin(uint64_t ns);

/* Removes the steps of `rank` from `first` on (used when provisional inference steps turn out to
 * have been an evaluation before the training). Of steps that were folded already, all of the rank
 * go when `first` is among them: a histogram cannot give back a part. */
int store_drop_steps(struct store_writer *w, int rank, int64_t first);

/* Closes and tells where the database is now (*ret_path is the caller's to mem_free; ret_path and
 * `note` may be NULL). When the disk failed, `note` holds the sentence to tell the user; else it is
 * "". Fails only when the database could be put nowhere: *ret_path is then not set. The writer is
 * freed in any case; a NULL writer is nothing to close, and 0. */
int store_writer_close(struct store_writer *w, char **ret_path, struct leat_err *note);

/* ---- reading ---------------------------------------------------------------------------- */

struct store_reader;

int store_reader_open(const char *path, struct store_reader **ret_reader, struct leat_err *err);
/* For a run whose database lives in memory until the end (full disk): reads the writer's own
 * connection. The writer must be open, and outlive the reader. */
int store_reader_of_writer(struct store_writer *w, struct store_reader **ret_reader,
                           struct leat_err *err);
void store_reader_close(struct store_reader *reader); /* takes NULL */

/* Runs a SELECT of ours and calls `row` for each row until it returns non-zero, which becomes the
 * result. Values are read with the store_column_* functions from inside the callback. Parameters
 * ?1, ?2 ... are int64_t taken from `params`. */
struct store_row;
typedef int store_row_fn(const struct store_row *row, void *context);
int store_select(struct store_reader *reader, const char *sql, const int64_t *params,
                 int param_count, store_row_fn *row, void *context, struct leat_err *err);
int store_column_is_null(const struct store_row *row, int column);
int64_t store_column_int(const struct store_row *row, int column);      /* 0 for NULL */
double store_column_real(const struct store_row *row, int column);      /* NaN for NULL */
const char *store_column_text(const struct store_row *row, int column); /* NULL for NULL; valid
                                                                           during the callback */

#endif
