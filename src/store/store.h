/* store.h: the run database, run.db. The only room that knows SQLite.
 *
 * tables.def defines the tables; tables.h has a row struct, a writer and a reader for each.
 *
 * Failures. Rows are written in transactions of about a second. When the disk is full or a write
 * fails, the rows of that second are lost; they are counted, the count is stored in `lost` as soon
 * as a transaction succeeds again, and store_writer_close reports it. The training never waits for
 * a disk that fails. When leat is killed, the file has everything up to the last commit.
 *
 * Size. The newest million steps are kept row by row; older ones are folded into intervals and
 * histograms, outliers stay rows (writer_fold.c). The other tables are thinned beyond 65 536 rows
 * (writer_thin.c). So run.db stays below 256 MB whatever the length of the run.
 *
 * The reader never changes a byte of the file. A database that its writer still holds is refused
 * (-EBUSY).
 */
#ifndef LEAT_STORE_STORE_H
#define LEAT_STORE_STORE_H

#include "store/tables.h"

#define STORE_STEP_SHIFT 40 /* steps.id = rank << 40 | step */

enum step_flag {
    STEP_EPOCH_START = 1,
    STEP_COMPILE = 2,
    STEP_CHECKPOINT = 4,
    STEP_AFTER_EVAL = 8,
    STEP_EXCEPTION = 16,
    STEP_INFERENCE = 32
};

/* ---- writing ---------------------------------------------------------------------------- */

struct store_writer; /* one owner, one thread */

/* Creates `path`, which must not exist. */
int store_writer_open(const char *path, struct store_writer **ret_writer, struct leat_err *err);

/* steps.id, or -1 (which store_add_step refuses) for a rank or a step that does not fit. */
int64_t store_step_id(int64_t rank, int64_t step);

/* Commits what was added, about once per second. A negative code: what was added since the last
 * flush is lost, and counted. */
int store_flush(struct store_writer *w);

int store_set_meta(struct store_writer *w, const char *key, const char *value);
int store_set_metaf(struct store_writer *w, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Removes the steps of `rank` from `first` on (used when provisional inference steps turn out to
 * have been an evaluation before the training). When `first` is among the folded steps, all folded
 * steps of the rank are removed: a histogram cannot give back a part. */
int store_drop_steps(struct store_writer *w, int rank, int64_t first);

/* Commits, closes and frees; NULL is allowed for `w` and `note`. `note` gets the sentence to show
 * to the user when rows were lost, or ""; a negative code: the database is not usable. */
int store_writer_close(struct store_writer *w, struct leat_err *note);

/* ---- reading ---------------------------------------------------------------------------- */

struct store_reader;

int store_reader_open(const char *path, struct store_reader **ret_reader, struct leat_err *err);
/* Commits, then reads the connection of the writer, which must outlive the reader. */
int store_reader_of_writer(struct store_writer *w, struct store_reader **ret_reader,
                           struct leat_err *err);
void store_reader_close(struct store_reader *reader); /* takes NULL */

#endif
