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

struct next_object {
    uintptr_t low, bytes; /* where it lies; set before anybody sees the object */
    _Atomic(void *) next[PROBE_CALLS];
};

/* The objects that this thread was called by last, for calls that are counted and for those that
 * are only noticed: mostly the next callers too. PyTorch makes the two from different libraries, by
 * turns. */
struct next_callers {
    struct next_object *counted, *noticed;
};
extern __thread struct next_callers next_last __attribute__((tls_model("initial-exec")));

static inline struct next_object **next_last_of(enum probe_call call)
{
    return call < PROBE_NOTICED ? &next_last.counted : &next_last.noticed;
}

void *next_definition_find(enum probe_call call, const void *caller);

/* Of the object that called last; NULL when it is another, or has to be looked for. */
static inline void *next_definition_known(enum probe_call call, const void *caller)
{
    struct next_object *object = *next_last_of(call);
    if (!object || (uintptr_t)caller - object->low >= object->bytes)
        return NULL;
    return atomic_load_explicit(&object->next[call], memory_order_relaxed);
}

/* NULL when there is none. */
static inline void *next_definition(enum probe_call call, const void *caller)
{
    void *next = next_definition_known(call, caller);
    return next ? next : next_definition_find(call, caller);
}

#endif
