/* fake_plugin.c: a library that is linked with CUDA and loaded for its caller alone, as Python
 * loads extensions: its calls are bound to the probe, but what comes next is not in the global
 * scope. */
#include "fake_cuda.h"

int fake_plugin_launch(void);
int fake_plugin_launch(void)
{
    struct fake_dim3 one = {1, 1, 1};
    return cudaLaunchKernel(NULL, one, one, NULL, 0, NULL);
}

#ifndef OTHER
int fake_plugin_missing(void);
int fake_plugin_missing(void)
{
    extern int cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, void *);
    return cudaMemcpyPeerAsync(NULL, 0, NULL, 0, 1, NULL); /* the fake runtime has none */
}
#endif
