/* collector_cuda.c: what a process asked of CUDA, and of whom it is not known.
 *
 * The probe counts in the process; the recorder there puts the totals into its memory as they stood
 * when the first batch had come, at the end of the last step and at the end. Here they become rows:
 * at most one for each of three spans and each class, however long the run; and one for each line
 * that copies or waits, of which the process keeps at most 256.
 */
#include "collect/collector_internal.h"

#include <string.h>

static const char *const class_names[LEAT_CUDA_CLASSES_COUNT] = {
#define X(name, text) text,
    LEAT_CUDA_CLASSES(X)
#undef X
};

static const char *const span_names[RING_CUDA_SPANS] = {"before", "steps", "after"};

/* A scribbled total must not become a negative number. */
static uint64_t sane(uint64_t value)
{
    return value <= INT64_MAX ? value : INT64_MAX;
}

static void write_lines(struct speaker *s, int rank)
{
    struct ring_cuda_line l;
    for (uint32_t id = 0; id < REC_CUDA_LINES; id++)
        if (ring_reader_cuda_line(&s->reader, id, &l) && l.n > 0)
            store_add(s->collector->writer, "cuda_lines",
                      "pid,rank,file,line,function,class,n,ns,bytes,steps", "iisissuuuu",
                      (int64_t)s->pid, (int64_t)rank, l.file, (int64_t)l.line, l.function,
                      class_names[l.class], sane(l.n), sane(l.ns), sane(l.bytes), sane(l.steps));
}

void cuda_write(struct speaker *s, int rank)
{
    write_lines(s, rank);
    struct ring_cuda calls;
    if (!ring_reader_cuda(&s->reader, &calls))
        return;
    for (int span = 0; span < RING_CUDA_SPANS; span++)
        for (int k = 0; k < LEAT_CUDA_CLASSES_COUNT; k++) {
            const struct leat_cuda_total *t = &calls.of[span][k];
            if (t->n > 0)
                store_add(s->collector->writer, "cuda_calls", "pid,rank,span,class,n,ns,bytes",
                          "iissuuu", (int64_t)s->pid, (int64_t)rank, span_names[span],
                          class_names[k], sane(t->n), sane(t->ns), sane(t->bytes));
        }
}

/* A process that copies to a device has CUDA. When leat gave the run a probe and this process has
 * none, somebody has replaced LD_PRELOAD on the way. */
void cuda_lost(struct collector *c)
{
    for (size_t i = 0; c->options.probe && i < c->speaker_count; i++) {
        const struct speaker *s = c->speakers[i];
        unsigned signals = s->header.signals;
        if (signals & LEAT_SIGNAL_H2D && !(signals & LEAT_SIGNAL_CUDA)) {
            lost_add(c, "probes", 1,
                     "process %d was started with another LD_PRELOAD: its calls of CUDA were not "
                     "counted",
                     (int)s->pid);
            return; /* the ranks of a run are started alike: say it once */
        }
    }
}
