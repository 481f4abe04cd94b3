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

/* NULL when there is none. */
void *next_definition(enum probe_call call, const void *caller);

#endif
