/* probe_abi.h: the private interface between the recorder and the CUDA probe.
 *
 *     libleat-probe.so (LD_PRELOAD)            extension leat._record
 *     counts calls of CUDA              ◄────  finds these functions by dlsym(), reads the totals
 *     measures idle time of the device  ◄────  reports the training's phases
 *                                       ────►  is called after copies and waits
 *
 * Both come from the same build. The functions that read totals take the number of classes or
 * phases and return 0 when it differs. Programs use leat/recorder.h only.
 */
#ifndef LEAT_RECORD_PROBE_ABI_H
#define LEAT_RECORD_PROBE_ABI_H

#include <stdint.h>

/* ---- calls of CUDA ------------------------------------------------------------------------ */

/* Classes of CUDA calls. Copies are distinguished by direction and by the kind of host memory. */
#define LEAT_CUDA_CLASSES(X)                                                                       \
    X(LAUNCH, "launch")             /* of a kernel */                                              \
    X(GRAPH_LAUNCH, "graph_launch") /* of a captured graph */                                      \
    X(H2D_PINNED, "h2d_pinned")                                                                    \
    X(H2D_PAGEABLE, "h2d_pageable")                                                                \
    X(D2H_PINNED, "d2h_pinned")                                                                    \
    X(D2H_PAGEABLE, "d2h_pageable")                                                                \
    X(D2D, "d2d")                                                                                  \
    X(COPY_OTHER, "copy_other") /* from host to host */                                            \
    X(MEMSET, "memset")                                                                            \
    X(SYNC, "sync")             /* waits for a stream or the device */                             \
    X(EVENT_SYNC, "event_sync") /* waits for an event */                                           \
    X(EVENT, "event")           /* recorded, queried, or waited for by a stream */                 \
    X(ALLOC, "alloc")           /* cudaMalloc: stops the device */                                 \
    X(FREE, "free")                                                                                \
    X(ALLOC_ASYNC, "alloc_async")                                                                  \
    X(FREE_ASYNC, "free_async")                                                                    \
    X(ALLOC_HOST, "alloc_host") /* pinned memory, or host memory registered as pinned */           \
    X(FREE_HOST, "free_host")

enum leat_cuda_class {
#define X(name, text) LEAT_CUDA_##name,
    LEAT_CUDA_CLASSES(X)
#undef X
        LEAT_CUDA_CLASSES_COUNT
};

/* Totals of the process, over all threads. `ns` is the host's time inside the calls. */
struct leat_cuda_total {
    uint64_t n, ns, bytes;
};

/* 1, or 0 when no call was made. The recorder reads the totals when a batch has arrived, when a
 * step ends and at the end. */
#define LEAT_PROBE_READ "leat_probe_read"
typedef int (*leat_probe_read_fn)(uint32_t classes, struct leat_cuda_total *ret_totals);

/* Sets the function to call at the first call of CUDA of each thread. It is called at once if there
 * was one already. A forked child has no calls yet. */
#define LEAT_PROBE_ON_FIRST_CALL "leat_probe_on_first_call"
typedef void (*leat_probe_on_first_call_fn)(void (*first_call)(void));

/* Sets the function to call after each call of a class below: copies between host and device, and
 * waits. NULL: none. It runs in the thread that made the call, whatever locks that holds, and must
 * not call CUDA. */
#define LEAT_PROBE_WATCH "leat_probe_watch"
#define LEAT_CUDA_WATCHED                                                                          \
    (1u << LEAT_CUDA_H2D_PINNED | 1u << LEAT_CUDA_H2D_PAGEABLE | 1u << LEAT_CUDA_D2H_PINNED |      \
     1u << LEAT_CUDA_D2H_PAGEABLE | 1u << LEAT_CUDA_SYNC | 1u << LEAT_CUDA_EVENT_SYNC)
typedef void (*leat_probe_seen_fn)(enum leat_cuda_class what, uint64_t ns, uint64_t bytes);
typedef void (*leat_probe_watch_fn)(leat_probe_seen_fn seen);

/* A line of code that copies between host and device or waits for the device. n, ns and bytes are
 * added to the slot of this line; of `steps`, the number of steps so far in which it did so, the
 * maximum is kept. One thread at a time. 0, or -1 when the table is full. */
struct leat_cuda_line {
    enum leat_cuda_class what;
    int line;
    const char *file, *function;
    uint64_t n, ns, bytes, steps;
};
int leat_recorder_cuda_line(const struct leat_cuda_line *line);
uint64_t leat_recorder_steps(void); /* that have ended, as the totals count them */

/* ---- idle time of the device -------------------------------------------------------------- */

/* Device time by what the host did meanwhile (src/probe/gpu_clock.h). */
#define LEAT_CLOCK_PHASES(X)                                                                       \
    X(INPUT, "input")     /* waited for a batch */                                                 \
    X(H2D, "h2d")         /* copied to the device, on the stream that computes */                  \
    X(FORWARD, "forward") /* from the batch's arrival to the backward */                           \
    X(BACKWARD, "backward")                                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(SYNC, "sync")           /* had just waited for the device */                                 \
    X(ALLOCATOR, "allocator") /* cudaMalloc, cudaFree */                                           \
    X(OTHER, "other")                                                                              \
    X(LAUNCH, "launch")         /* ran between launches less than 250 us apart: sampled */         \
    X(COLLECTIVE, "collective") /* waited for other ranks */

enum leat_clock_phase {
#define X(name, text) LEAT_CLOCK_##name,
    LEAT_CLOCK_PHASES(X)
#undef X
        LEAT_CLOCK_PHASES_COUNT,
    LEAT_CLOCK_SKIPPED = LEAT_CLOCK_PHASES_COUNT, /* evaluation, not part of a step */
    LEAT_CLOCK_RESUMED /* the collective is over: back to the phase before it */
};

struct leat_clock_total {
    uint64_t n;         /* stretches in which the host launched nothing; of LAUNCH: samples */
    uint64_t device_ns; /* all device time charged to the phase */
    uint64_t idle_ns;   /* of it: the device had no work */
    uint64_t hidden_ns; /* host time in those stretches while the device still had work */
};

/* The calling thread, which trains, begins a phase. */
#define LEAT_PROBE_PHASE "leat_probe_phase"
typedef void (*leat_probe_phase_fn)(enum leat_clock_phase phase);

/* 1, or 0 when nothing was measured. */
#define LEAT_PROBE_CLOCK "leat_probe_clock"
typedef int (*leat_probe_clock_fn)(uint32_t phases, struct leat_clock_total *ret_totals);

/* The recorder's: passes the phase on to the probe, if there is one. */
void leat_gpu_phase(enum leat_clock_phase phase);

#endif
