/* loader_model.h: the loader of a run as input of the what-if model, and what a change of its
 * settings would give, with what is not known assumed both ways. */
#ifndef LEAT_PREDICT_LOADER_MODEL_H
#define LEAT_PREDICT_LOADER_MODEL_H

#include "facts/loader_view.h"
#include "predict/what_if.h"

/* A batch of two tensors in the process of the loader: an entry of the queue, and for each tensor a
 * connection to the worker that holds its memory. 0.7 to 2.5 ms on two machines; bytes hardly
 * matter, because they stay where they are. Assumed where it was not measured. */
#define HAND_OVER_MS 1.0
#define QUEUE_MS     0.1 /* of it the entry alone, where the connections were measured */
/* The most that a worker answers later because its Python computes: for each of two tensors its
 * other thread asks for the lock of the interpreter five times, and waits for 5 ms each time
 * (sys.getswitchinterval()). 25 ms were measured for one tensor, 33 to 37 for two. */
#define LATE_MS 50.0

/* The loader as it is. */
struct what_if loader_model(const struct loader_view *view);
void loader_model_scale(struct what_if *w,
                        double make_ms); /* the same spread around another mean */

/* How many workers, at most `most`, keep up with the step and with the device, if it has a clock.
 */
int loader_model_workers(const struct loader_view *view, const struct what_if *w, int most);

/* The present step time over the predicted one: the least and the most that is possible. */
struct gain_range {
    double low, high;
};
struct gain_range loader_model_gains(const struct loader_view *view, const struct what_if *then);

#endif
