/* engine_model.h: leat's own loader: what its threads did, and the step with other threads.
 *
 * Making the batches of one step takes W of work, the rest of the step takes R. T threads work all
 * the time, the training helps while it waits, and pieces of work are small, so no thread idles
 * while a batch is wanted: T x S + (S - R) = W. So a step takes
 *
 *     S = max(R, (W + R) / (T + 1))
 *
 * and not less than the CPU time of all threads over the cores that other programs leave. The
 * prediction is the measured step times the ratio of two such S: what the model leaves out, mainly
 * memory bandwidth, then applies to both. */
#ifndef LEAT_PREDICT_ENGINE_MODEL_H
#define LEAT_PREDICT_ENGINE_MODEL_H

#include "facts/loader_view.h"

#define NEAR 1.02 /* step times closer than this are equal within the precision of one run */

struct engine_view {
    const struct loader_view *view;
    const struct engine_fact *e;
    double work_ms;     /* of all stages, the training's help included */
    double busy;        /* share of the threads' time; NaN: no thread was seen */
    double cpu;         /* cores per busy thread, the training counted as one thread; NaN */
    const char *stage;  /* the largest stage, in words */
    double stage_share; /* of the work */
    double idle;        /* cores; NaN: not sampled */
};

struct engine_view engine_look(const struct loader_view *view, const struct engine_fact *e);

/* The work of one step, ms; NaN without batches. */
double engine_step_work(const struct engine_view *v);
/* The step with `work_ms` of work and so many threads, ms. */
double engine_step_ms(const struct engine_view *v, double work_ms, double threads);
/* The fewest threads up to `most` whose step is near the best of them. */
int engine_threads_for(const struct engine_view *v, int most);

#endif
