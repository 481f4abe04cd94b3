/* next_definition.h: where a call goes on: the definition that the caller would have reached
 * without the probe.
 *
 * Of a library that is in the global scope (PyTorch puts libcudart there) everybody sees the same
 * definition, the next one after ours, and it is found once. A library that was loaded for one
 * caller only (RTLD_LOCAL, as Python loads its extensions) is not in that scope: for such callers
 * the definition is looked for among what the caller itself was linked with, and kept for each
 * calling object, so that two versions of CUDA in one process stay apart.
 *
 * There is no lock: two threads that look at the same time find the same. Looking takes the lock of
 * the dynamic loader, as binding the call itself would have.
 */
#ifndef LEAT_PROBE_NEXT_DEFINITION_H
#define LEAT_PROBE_NEXT_DEFINITION_H

#include "probe/cuda_calls.h"

#include <stdatomic.h>

extern _Atomic(void *) next_for_all[PROBE_CALLS];

void *next_definition_find(enum probe_call call, const void *caller);

/* NULL when there is none. */
static inline void *next_definition(enum probe_call call, const void *caller)
{
    void *next = atomic_load_explicit(&next_for_all[call], memory_order_relaxed);
    return next ? next : next_definition_find(call, caller);
}

#endif
