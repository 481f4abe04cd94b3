/* compare.h: internal functions of `leat compare`, for its files and their tests. */
#ifndef LEAT_REPORT_COMPARE_H
#define LEAT_REPORT_COMPARE_H

#include "base/json.h"
#include "store/store.h"

#include <stddef.h>
#include <stdint.h>

/* ---- compare_stats.c ------------------------------------------------------------------------- */

/* After / before, of medians, with its 95 % interval. */
struct ratio {
    double ratio, low, high;          /* NaN: not known */
    size_t n_before, n_after;         /* values used, after thinning */
    size_t block_before, block_after; /* 1: the steps do not depend on their neighbours */
};

/* With fewer steps in a run there is no interval: a bootstrap of their median has too few distinct
 * values for 95 %. */
#define RATIO_LEAST_STEPS 10
#define RATIO_RESAMPLES   2000
/* The most steps of a run that are used (compare_rows.c). */
#define RATIO_MOST_STEPS 4096

/* Both series in the order of their steps, all values finite. Of more than `most_values`, one
 * random value per stretch is used. The same input gives the same interval on every machine. 0, or
 * -ENOMEM; too few values or a median of 0 give NaN. */
int ratio_of_medians(const double *before, size_t before_count, const double *after,
                     size_t after_count, size_t most_values, struct ratio *ret_ratio);

/* The length of blocks that keeps the dependence between neighbouring steps (see the file). */
size_t ratio_block_length(const double *values, size_t n);

/* ---- compare.c ------------------------------------------------------------------------------- */

enum change { CHANGE_UNCLEAR, CHANGE_SAME, CHANGE_WORSE, CHANGE_BETTER };

/* Compares the interval to the threshold; larger is worse. */
enum change ratio_judge(const struct ratio *r, double threshold);

/* How many more steps per run ratio_judge needs to decide with a probability of 80 %, if the true
 * change is the present one; -1 when no usable number would do. */
int64_t ratio_more_steps(const struct ratio *r, double threshold);

/* The kept steps of the typical rank of a run. */
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

/* The rows of the table, the step time first. Also returns the ratio of the step time, and the
 * change of memory: of the GPU if there is one, else of the rank on the host. NULL when out of
 * memory. */
json_t *compare_rows(const json_t *before, const struct step_series *before_steps,
                     const json_t *after, const struct step_series *after_steps, double threshold,
                     struct ratio *ret_time, enum change *ret_memory);

/* ---- compare_prediction.c -------------------------------------------------------------------- */

/* The prediction of the run before, and what the run after reached; null without a prediction. The
 * loaders are those that feed the steps. NULL when out of memory. */
json_t *compare_prediction(const json_t *before, const json_t *before_loader, const json_t *after,
                           const json_t *after_loader);

#endif
