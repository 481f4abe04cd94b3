/* fake_driver.c: see fake_cuda.h. */
#include "fake_cuda.h"

_Atomic long fake_asked;
const void *fake_pinned, *fake_device;

int cuStreamSynchronize(void *stream)
{
    return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream)
{
    return 0;
}

int cuPointerGetAttribute(void *data, int attribute, uint64_t address)
{
    enum { HOST = 1, DEVICE = 2, INVALID_VALUE = 1, MEMORY_TYPE = 2 };
    fake_asked++;
    if (attribute != MEMORY_TYPE ||
        (address != (uintptr_t)fake_pinned && address != (uintptr_t)fake_device))
        return INVALID_VALUE;
    *(unsigned *)data = address == (uintptr_t)fake_pinned ? HOST : DEVICE;
    return 0;
}
