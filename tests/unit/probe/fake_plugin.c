/* fake_plugin.c: a library that is linked with CUDA and loaded for its caller alone, as Python
 * loads extensions: its calls are bound to the probe, but the next definition is not in the global
 * scope. */
#include "fake_cuda.h"

int fake_plugin_launch(void);
int fake_plugin_launch(void)
{
    struct fake_dim3 one = {1, 1, 1};
    return cudaLaunchKernel(NULL, one, one, NULL, 0, NULL);
}

#ifndef OTHER
/* `volatile`: a tail call would return to the caller, and seem to be made by it. */
int fake_plugin_copy(void), fake_plugin_wait(void);
int fake_plugin_copy(void)
{
    static char host[64], device[64];
    volatile int result = cudaMemcpyAsync(device, host, sizeof host, 1, NULL);
    return result;
}

int fake_plugin_wait(void)
{
    volatile int result = cudaStreamSynchronize(NULL);
    return result;
}

int fake_plugin_missing(void);
int fake_plugin_missing(void)
{
    extern int cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, void *);
    return cudaMemcpyPeerAsync(NULL, 0, NULL, 0, 1, NULL); /* the fake runtime has none */
}
#endif
