/* collector_cuda.c: what the probe counted in a process: CUDA calls, the lines that copy or wait,
 * and the clock of the device.
 *
 * The recorder copies the totals of the probe into the process's memory as they were when the first
 * batch had come, at the end of the last step and at the end. Here they become rows: at most one
 * for each of three spans and each class, one for each phase of the device's clock, and one for
 * each line, of which a process keeps at most 256. So their number does not grow with the run.
 */
#include "collect/collector_internal.h"

#include <string.h>

static const char *const class_names[LEAT_CUDA_CLASSES_COUNT] = {
#define X(name, text) text,
    LEAT_CUDA_CLASSES(X)
#undef X
};

static const char *const clock_phase_names[LEAT_CLOCK_PHASES_COUNT] = {
#define X(name, text) text,
    LEAT_CLOCK_PHASES(X)
#undef X
};

static const char *const span_names[RING_CUDA_SPANS] = {"before", "steps", "after"};

static void write_lines(struct recording_process *s, int rank)
{
    struct ring_cuda_line l;
    for (uint32_t id = 0; id < REC_CUDA_LINES; id++) {
        if (!ring_reader_cuda_line(&s->reader, id, &l) || l.n == 0)
            continue;
        struct cuda_line_row row = {
            .pid = s->pid,
            .rank = rank,
            .file = l.file,
            .line = l.line,
            .function = l.function,
            .class = class_names[l.class],
            .n = store_signed(l.n),
            .ns = store_signed(l.ns),
            .bytes = store_signed(l.bytes),
            .steps = store_signed(l.steps),
        };
        store_add_cuda_line(s->collector->writer, &row);
    }
}

static void write_calls(struct recording_process *s, int rank, const struct ring_cuda *calls)
{
    for (int span = 0; span < RING_CUDA_SPANS; span++)
        for (int k = 0; k < LEAT_CUDA_CLASSES_COUNT; k++) {
            const struct leat_cuda_total *t = &calls->of[span][k];
            if (t->n == 0)
                continue;
            struct cuda_call_row row = {
                .pid = s->pid,
                .rank = rank,
                .span = span_names[span],
                .class = class_names[k],
                .n = store_signed(t->n),
                .ns = store_signed(t->ns),
                .bytes = store_signed(t->bytes),
            };
            store_add_cuda_call(s->collector->writer, &row);
        }
}

static void write_clock(struct recording_process *s, int rank, const struct ring_cuda *calls)
{
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++) {
        const struct leat_clock_total *t = &calls->clock[k];
        if (t->device_ns == 0 && t->n == 0)
            continue;
        struct gpu_phase_row row = {
            .pid = s->pid,
            .rank = rank,
            .phase = clock_phase_names[k],
            .n = store_signed(t->n),
            .device_ns = store_signed(t->device_ns),
            .idle_ns = store_signed(t->idle_ns),
            .hidden_ns = store_signed(t->hidden_ns),
        };
        store_add_gpu_phase(s->collector->writer, &row);
    }
}

void cuda_write(struct recording_process *s, int rank)
{
    struct ring_cuda calls;
    write_lines(s, rank);
    if (!ring_reader_cuda(&s->reader, &calls))
        return;
    write_calls(s, rank, &calls);
    write_clock(s, rank, &calls);
}

/* A process that copies to a device has CUDA. When it has no probe although the run was started
 * with one, LD_PRELOAD was replaced on the way. */
void cuda_lost(struct collector *c)
{
    for (size_t i = 0; c->options.probe && i < c->recording_count; i++) {
        const struct recording_process *s = c->recording[i];
        unsigned signals = s->header.signals;
        if (signals & LEAT_SIGNAL_H2D && !(signals & LEAT_SIGNAL_CUDA)) {
            lost_add(c, "probes", 1,
                     "process %d was started with another LD_PRELOAD: CUDA calls not counted",
                     (int)s->pid);
            return; /* the ranks of a run are started alike: report it once */
        }
    }
}
