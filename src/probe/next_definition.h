/* next_definition.h: the definition that a caller would have reached without the probe.
 *
 * It depends on the caller: a process may hold two versions of CUDA used by different libraries,
 * and a library loaded with RTLD_LOCAL (as Python loads extensions) is not in the global scope. So
 * the definition is found once for each calling object (executable or library) and call:
 *
 *     1. a library that the object was linked with has it          that one
 *     2. the next definition in the global scope                   that one (PyTorch's libcudart)
 *     3. the object has it itself (CUDA linked statically)         its own
 *     4. any CUDA library that is loaded                           that one
 *
 * 3 comes after 2 because the dynamic loader too prefers the global scope to an object's own.
 *
 * No lock: two threads that search at the same time find the same. Searching takes the lock of the
 * dynamic loader, as binding the call itself would have.
 */
#ifndef LEAT_PROBE_NEXT_DEFINITION_H
#define LEAT_PROBE_NEXT_DEFINITION_H

#include "probe/cuda_calls.h"

/* NULL when there is none. */
void *next_definition(enum probe_call call, const void *caller);

#endif
