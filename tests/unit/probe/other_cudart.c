/* other_cudart.c: a second version of the runtime (fake_cuda.h has the first): two of them may be
 * in one process, each used by other libraries. */
#include <stddef.h>

#include "fake_cuda.h"

_Atomic long other_calls;

int cudaLaunchKernel(const void *kernel, struct fake_dim3 grid, struct fake_dim3 block,
                     void **values, size_t shared, void *stream)
{
    other_calls++;
    return 0;
}
