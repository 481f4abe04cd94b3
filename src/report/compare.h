/* compare.h: the inside of `leat compare`, for its own files and their tests. */
#ifndef LEAT_REPORT_COMPARE_H
#define LEAT_REPORT_COMPARE_H

#include "base/json.h"
#include "store/store.h"

#include <stddef.h>
#include <stdint.h>

/* ---- compare_stats.c ------------------------------------------------------------------------- */

/* After / before, of medians, with its 95 % interval. */
struct ratio {
    double ratio, low, high;          /* NaN: could not be had */
    size_t n_before, n_after;         /* values used, after thinning */
    size_t block_before, block_after; /* 1: the steps do not depend on their neighbours */
};

/* Fewer steps than this in either run give no interval: the bootstrap of a median has too few
 * distinct values there to mean 95 %. */
#define RATIO_LEAST_STEPS 10
#define RATIO_RESAMPLES   2000
/* The most steps of a run that the verdict is made of (compare_rows.c). */
#define RATIO_MOST_STEPS 4096

/* Both series in the order of their steps, all values finite. Of more than `most_values` a random
 * one of each stretch is used. The same input gives the same interval on every machine. 0, or
 * -ENOMEM; too few values or a median of 0 give NaN. */
int ratio_of_medians(const double *before, size_t before_count, const double *after,
                     size_t after_count, size_t most_values, struct ratio *ret_ratio);

/* The length of blocks that keeps the dependence between neighbouring steps (see the file). */
size_t ratio_block_length(const double *values, size_t n);

/* ---- compare.c ------------------------------------------------------------------------------- */

enum change { CHANGE_UNCLEAR, CHANGE_SAME, CHANGE_WORSE, CHANGE_BETTER };

/* What an interval says against a threshold; larger is worse. */
enum change ratio_judge(const struct ratio *r, double threshold);

/* How many more steps each run needs for ratio_judge to decide, by the square-root law and with
 * odds of four in five, if the true change is the present one; -1 when it sits so near the
 * threshold, or steps differ so much, that no number would. */
int64_t ratio_more_steps(const struct ratio *r, double threshold);

/* The kept steps of a run's typical rank, one by one. */
struct step_series {
    double *wall;          /* owned, as are the phases; NULL: there are none */
    double *phase[PHASES]; /* NULL: not measured */
    size_t count;
    char note[400]; /* why there are none, or what was left out; "" otherwise */
};

/* The comparison of two parsed summaries; the series may be empty. `before_run` and `after_run` are
 * what the user called them. */
int compare_summaries(const char *before_run, const json_t *before,
                      const struct step_series *before_steps, const char *after_run,
                      const json_t *after, const struct step_series *after_steps, double threshold,
                      json_t **ret_result, struct leat_err *err);

/* ---- compare_rows.c -------------------------------------------------------------------------- */

/* The rows of the table, the step time first, whose judgement is given back with its ratio; and
 * what memory says: the GPU's where there is one, else the rank's own on the host. NULL when out of
 * memory. */
json_t *compare_rows(const json_t *before, const struct step_series *before_steps,
                     const json_t *after, const struct step_series *after_steps, double threshold,
                     struct ratio *ret_time, enum change *ret_memory);

/* ---- compare_prediction.c -------------------------------------------------------------------- */

/* What the run before predicted for a change, against what the run after reached; null when it
 * predicted nothing. The loaders are those that feed the steps. NULL when out of memory. */
json_t *compare_prediction(const json_t *before, const json_t *before_loader, const json_t *after,
                           const json_t *after_loader);

#endif
