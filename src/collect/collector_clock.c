/* collector_clock.c: the clock of the device: at most one row for each phase, however long the run.
 */
#include "collect/collector_internal.h"

static const char *const phase_names[LEAT_CLOCK_PHASES_COUNT] = {
#define X(name, text) text,
    LEAT_CLOCK_PHASES(X)
#undef X
};

/* A scribbled total must not become a negative number. */
static uint64_t sane(uint64_t value)
{
    return value <= INT64_MAX ? value : INT64_MAX;
}

void clock_write(struct speaker *s, int rank)
{
    struct ring_cuda calls;
    if (!ring_reader_cuda(&s->reader, &calls))
        return;
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++) {
        const struct leat_clock_total *t = &calls.clock[k];
        if (t->device_ns > 0 || t->n > 0)
            store_add(s->collector->writer, "gpu_clock",
                      "pid,rank,phase,n,device_ns,idle_ns,hidden_ns", "iisuuuu", (int64_t)s->pid,
                      (int64_t)rank, phase_names[k], sane(t->n), sane(t->device_ns),
                      sane(t->idle_ns), sane(t->hidden_ns));
    }
}
