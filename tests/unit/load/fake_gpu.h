/* fake_gpu.h: how tests control and observe the driver in fake_gpu.c. */
#ifndef LEAT_TESTS_FAKE_GPU_H
#define LEAT_TESTS_FAKE_GPU_H

#include <stdatomic.h>

struct fake_gpu {
    atomic_int capturing;      /* streams capture a graph */
    atomic_int consumers_done; /* the work of consumers is finished, now and from now on */
    /* Counted. */
    atomic_int calls, context_records, gathers, host_locks, allocations;
    atomic_int broken_captures; /* recordings over the context during a capture */
    atomic_int torn_copies;     /* copies whose memory was written to before they were done */
};

/* Does what was enqueued, as far as it need not wait for consumers. */
void fake_gpu_run(void);

#endif
