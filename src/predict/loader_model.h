/* loader_model.h: the loader of a run as input of the what-if model, and the range of gains of
 * other settings. */
#ifndef LEAT_PREDICT_LOADER_MODEL_H
#define LEAT_PREDICT_LOADER_MODEL_H

#include "facts/loader_view.h"
#include "predict/what_if.h"

/* Unpacking a batch of two tensors in the training process: an entry of the queue, and for each
 * tensor a connection to the worker that holds its memory. 0.7 to 2.5 ms on two machines; the
 * bytes hardly matter, because they are not copied. Assumed where it was not measured. */
#define HAND_OVER_MS 1.0
#define QUEUE_MS     0.1 /* of it the entry of the queue alone */
/* The longest delay of an answer of a worker whose Python computes: for each of two tensors its
 * other thread needs the interpreter's lock five times and waits 5 ms each time
 * (sys.getswitchinterval()). 25 ms were measured for one tensor, 33 to 37 for two. */
#define LATE_MS 50.0

/* The loader as it is now. */
struct what_if loader_model(const struct loader_view *view);
void loader_model_scale(struct what_if *w,
                        double make_ms); /* keeps the distribution, changes its mean */

/* The fewest workers, up to `most`, that are as fast as the step, or as the device if it has a
 * clock. */
int loader_model_workers(const struct loader_view *view, const struct what_if *w, int most);

/* The present step time over the predicted one: the least and the greatest that is possible. */
struct gain_range {
    double low, high;
};
struct gain_range loader_model_gains(const struct loader_view *view, const struct what_if *then);

#endif
