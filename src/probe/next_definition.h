/* next_definition.h: where a call goes on: the definition that the caller would have reached
 * without the probe.
 *
 * That depends on the caller. One process may hold two versions of CUDA, each of them used by other
 * libraries; and a library that was loaded for one caller only (RTLD_LOCAL, as Python loads its
 * extensions) is in no scope that everybody sees. So what comes next is found for each calling
 * object (executable or library) and call, once:
 *
 *     the object was linked with a library that has it       that one
 *     else, the next in the global scope has it              that one (PyTorch puts libcudart
 * there) else, the object has it itself (CUDA linked in)        its own else, any CUDA that is
 * loaded
 *
 * The third is not the first, because the loader too prefers the global scope to an object's own.
 *
 * There is no lock: two threads that look at the same time find the same. Looking takes the lock of
 * the dynamic loader, as binding the call itself would have.
 */
#ifndef LEAT_PROBE_NEXT_DEFINITION_H
#define LEAT_PROBE_NEXT_DEFINITION_H

#include "probe/cuda_calls.h"

#include <stdatomic.h>
#include <stdbool.h>

struct next_object {
    uintptr_t low, bytes; /* where it lies; set before anybody sees the object */
    _Atomic(void *) next[PROBE_CALLS];
};

void *next_definition_find(enum probe_call call, const void *caller);

/* The objects that were the first to make a call: few calls are made by more. All that has to be
 * known of one lies together, and what many calls look at in one page, because a step displaces
 * such memory from the caches between two calls. */
enum { NEXT_FIRST = 3 };
struct next_first {
    _Atomic uintptr_t low;
    _Atomic uintptr_t bytes; /* the last to be set, 0 before */
    _Atomic(void *) next;
};
extern struct next_first next_first[PROBE_CALLS][NEXT_FIRST];

/* Whether the caller is the very first, and then where it goes on. */
static inline bool next_definition_is_first(enum probe_call call, const void *caller,
                                            void **ret_next)
{
    struct next_first *first = &next_first[call][0];
    uintptr_t bytes = atomic_load_explicit(&first->bytes, memory_order_acquire);
    if ((uintptr_t)caller - atomic_load_explicit(&first->low, memory_order_relaxed) >= bytes)
        return false;
    *ret_next = atomic_load_explicit(&first->next, memory_order_relaxed);
    return true;
}

/* NULL when the caller is another. */
static inline void *next_definition_first(enum probe_call call, const void *caller)
{
    for (int i = 0; i < NEXT_FIRST; i++) {
        struct next_first *first = &next_first[call][i];
        uintptr_t bytes = atomic_load_explicit(&first->bytes, memory_order_acquire);
        if ((uintptr_t)caller - atomic_load_explicit(&first->low, memory_order_relaxed) < bytes)
            return atomic_load_explicit(&first->next, memory_order_relaxed);
    }
    return NULL;
}

/* Whether the very first caller of a call goes past the probe from now on. One thread at a time. */
void next_definition_pass_by(enum probe_call call, bool past);

/* NULL when there is none. */
static inline void *next_definition(enum probe_call call, const void *caller)
{
    void *next = next_definition_first(call, caller);
    return next ? next : next_definition_find(call, caller);
}

#endif
