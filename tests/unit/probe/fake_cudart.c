/* fake_cudart.c: see fake_cuda.h. */
#include "fake_cuda.h"

#include <stdlib.h>
#include <time.h>

_Atomic long fake_calls;
int fake_result, fake_nested;
unsigned fake_seen[8];

static int called(void)
{
    fake_calls++;
    return fake_result;
}

int cudaLaunchKernel(const void *kernel, struct fake_dim3 grid, struct fake_dim3 block,
                     void **values, size_t shared, void *stream)
{
    const unsigned seen[8] = {grid.x,  grid.y,  grid.z,           block.x,
                              block.y, block.z, (unsigned)shared, (unsigned)(uintptr_t)stream};
    for (int i = 0; kernel && i < 8; i++)
        fake_seen[i] = seen[i];
    return called();
}

int __cudaLaunchKernel(const void *kernel, struct fake_dim3 grid, struct fake_dim3 block,
                       void **values, size_t shared, void *stream)
{
    return called();
}

int cudaLaunchKernelExC(const void *config, const void *kernel, void **values)
{
    return called();
}

int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream)
{
    return called();
}

int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t height, int kind, void *stream)
{
    return called();
}

int cudaMemsetAsync(void *to, int value, size_t n, void *stream)
{
    return called();
}

int cudaStreamSynchronize(void *stream)
{
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
    fake_now_ns += fake_now_ns ? 1000000 : 0;
    return fake_nested ? called() + cuStreamSynchronize(stream) : called();
}

int cudaDeviceSynchronize(void)
{
    return called();
}

int cudaEventSynchronize(void *event)
{
    return called();
}

int cudaEventQuery(void *event)
{
    return called();
}

int cudaGraphLaunch(void *graph, void *stream)
{
    return called();
}

int cudaMalloc(void **at, size_t n)
{
    return called();
}

int cudaFree(void *at)
{
    return called();
}

int cudaMallocAsync(void **at, size_t n, void *stream)
{
    return called();
}

int cudaFreeAsync(void *at, void *stream)
{
    return called();
}

int cudaHostAlloc(void **at, size_t n, unsigned flags)
{
    *at = malloc(n);
    return called();
}

int cudaFreeHost(void *at)
{
    free(at);
    return called();
}

int cudaHostRegister(void *at, size_t n, unsigned flags)
{
    return called();
}

int cudaHostUnregister(void *at)
{
    return called();
}

int cudaGetDevice(int *device)
{
    *device = 0;
    return called();
}

int cudaStreamBeginCapture(void *stream, int mode)
{
    return called();
}

int cudaStreamEndCapture(void *stream, void **graph)
{
    return called();
}
