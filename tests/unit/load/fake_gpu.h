/* fake_gpu.h: what a test may ask of the driver in fake_gpu.c and do to it. */
#ifndef LEAT_TESTS_FAKE_GPU_H
#define LEAT_TESTS_FAKE_GPU_H

#include <stdatomic.h>

struct fake_gpu {
    atomic_int capturing;      /* streams capture a graph */
    atomic_int consumers_done; /* what consumers had enqueued is finished, now and from now on */
    /* Counted. */
    atomic_int calls, context_records, gathers, host_locks, allocations;
    atomic_int broken_captures; /* recorded over the context during a capture */
    atomic_int torn_copies;     /* what was to be copied was written to before it was */
};

/* Does what was enqueued, as far as it need not wait for consumers. */
void fake_gpu_run(void);

#endif
