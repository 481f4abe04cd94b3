/* cuda_calls.h: the calls that the probe sees: three lists, from which the wrappers (probe.c) and
 * the table of their next definitions (next_definition.h) are made. A call is added here and
 * nowhere else. Those that are counted:
 *
 *     X(name, parameters, arguments, class, bytes, after)
 *
 *     class   evaluated before the call: what it is counted as (LEAT_CUDA_CLASSES in probe_abi.h)
 *     bytes   counted when the call succeeded
 *     after   done when the call succeeded
 *
 * The prototypes are ours, so that nothing of CUDA is needed to build. They are those of CUDA 11,
 * 12 and 13: handles are pointers, results and kinds of copies are ints, device addresses of the
 * driver are 64 bits. A name that a version does not have is never called. Those that end in _ptsz
 * and _ptds are what a program built with a default stream for each thread calls instead.
 *
 * Not in the list, and so not seen:
 *   - what a library finds by dlsym(), cuGetProcAddress() or cudaGetDriverEntryPoint(): kernels of
 *     Triton (torch.compile), of NVRTC, of cuBLAS and cuDNN, which go to the driver that way. To be
 *     in their way the probe would have to stand in for dlsym() itself, whose answer depends on who
 *     asks: a mistake there breaks programs that have nothing to do with CUDA;
 *   - programs with the runtime linked in statically;
 *   - calls that only ask or set (devices, attributes, streams made and destroyed).
 */
#ifndef LEAT_PROBE_CUDA_CALLS_H
#define LEAT_PROBE_CUDA_CALLS_H

#include <stddef.h>
#include <stdint.h>

struct probe_dim3 { /* dim3: passed by value */
    unsigned x, y, z;
};

/* Launches, which are most of what is counted: X(name, parameters, arguments, stream). Those of the
 * runtime have one shape, whatever they are called. */
#define PROBE_LAUNCH(X, name)                                                                      \
    X(name,                                                                                        \
      (const void *kernel, struct probe_dim3 grid, struct probe_dim3 block, void **values,         \
       size_t shared, void *stream),                                                               \
      (kernel, grid, block, values, shared, stream), stream)

#define PROBE_LAUNCH_EX(X, name)                                                                   \
    X(name, (const void *config, const void *kernel, void **values), (config, kernel, values),     \
      config_stream(config))

#define PROBE_CUDA_LAUNCHES(X)                                                                     \
    PROBE_LAUNCH(X, cudaLaunchKernel)                                                              \
    PROBE_LAUNCH(X, cudaLaunchKernel_ptsz)                                                         \
    PROBE_LAUNCH(X, __cudaLaunchKernel)                                                            \
    PROBE_LAUNCH(X, __cudaLaunchKernel_ptsz)                                                       \
    PROBE_LAUNCH(X, cudaLaunchCooperativeKernel)                                                   \
    PROBE_LAUNCH(X, cudaLaunchCooperativeKernel_ptsz)                                              \
    PROBE_LAUNCH_EX(X, cudaLaunchKernelExC)                                                        \
    PROBE_LAUNCH_EX(X, cudaLaunchKernelExC_ptsz)                                                   \
    X(cuLaunchKernel,                                                                              \
      (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
       unsigned shared, void *stream, void **values, void **extra),                                \
      (kernel, gx, gy, gz, bx, by, bz, shared, stream, values, extra), stream)                     \
    X(cuLaunchKernelEx, (const void *config, void *kernel, void **values, void **extra),           \
      (config, kernel, values, extra), config_stream(config))

#define PROBE_GRAPH_LAUNCH(X, name)                                                                \
    X(name, (void *graph, void *stream), (graph, stream),                                          \
      (launch_class(stream), LEAT_CUDA_GRAPH_LAUNCH), 0, gpu_clock_launched(end))

#define PROBE_COPY(X, name)                                                                        \
    X(name, (void *to, const void *from, size_t n, int kind), (to, from, n, kind),                 \
      copy_begins(kind, to, from, NULL, n), n, gpu_clock_copy_ends(end))

#define PROBE_COPY_ASYNC(X, name)                                                                  \
    X(name, (void *to, const void *from, size_t n, int kind, void *stream),                        \
      (to, from, n, kind, stream), copy_begins(kind, to, from, stream, n), n,                      \
      gpu_clock_copy_ends(end))

#define PROBE_COPY_2D_ASYNC(X, name)                                                               \
    X(name,                                                                                        \
      (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,               \
       size_t height, int kind, void *stream),                                                     \
      (to, to_pitch, from, from_pitch, width, height, kind, stream),                               \
      copy_begins(kind, to, from, stream, width *height), width *height, gpu_clock_copy_ends(end))

#define PROBE_FILL_ASYNC(X, name)                                                                  \
    X(name, (void *to, int value, size_t n, void *stream), (to, value, n, stream),                 \
      (gpu_clock_before(true), LEAT_CUDA_MEMSET), n, gpu_clock_launched(end))

/* One handle. */
#define PROBE_HANDLE(X, name, class)                                                               \
    X(name, (void *handle), (handle), LEAT_CUDA_##class, 0, (void)0)

/* The device, or a stream of it, is waited for. */
#define PROBE_DRAIN(X, name, parameters, arguments)                                                \
    X(name, parameters, arguments, (gpu_clock_drain_begins(), LEAT_CUDA_SYNC), 0,                  \
      gpu_clock_drained())

/* Two handles. */
#define PROBE_PAIR(X, name, class)                                                                 \
    X(name, (void *first, void *second), (first, second), LEAT_CUDA_##class, 0, (void)0)

#define PROBE_WAIT_EVENT(X, name)                                                                  \
    X(name, (void *stream, void *event, unsigned flags), (stream, event, flags), LEAT_CUDA_EVENT,  \
      0, (void)0)

/* A range of host memory is forgotten before it is let go of: afterwards another thread may already
 * have been given it. */
#define PROBE_CUDA_CALLS(X)                                                                        \
    PROBE_GRAPH_LAUNCH(X, cudaGraphLaunch)                                                         \
    PROBE_GRAPH_LAUNCH(X, cudaGraphLaunch_ptsz)                                                    \
    PROBE_COPY(X, cudaMemcpy)                                                                      \
    PROBE_COPY(X, cudaMemcpy_ptds)                                                                 \
    PROBE_COPY_ASYNC(X, cudaMemcpyAsync)                                                           \
    PROBE_COPY_ASYNC(X, cudaMemcpyAsync_ptsz)                                                      \
    X(cudaMemcpy2D,                                                                                \
      (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,               \
       size_t height, int kind),                                                                   \
      (to, to_pitch, from, from_pitch, width, height, kind), copy_class(kind, to, from),           \
      width *height, (void)0)                                                                      \
    PROBE_COPY_2D_ASYNC(X, cudaMemcpy2DAsync)                                                      \
    PROBE_COPY_2D_ASYNC(X, cudaMemcpy2DAsync_ptsz)                                                 \
    X(cudaMemcpyPeerAsync,                                                                         \
      (void *to, int to_device, const void *from, int from_device, size_t n, void *stream),        \
      (to, to_device, from, from_device, n, stream), LEAT_CUDA_D2D, n, (void)0)                    \
    X(cudaMemset, (void *to, int value, size_t n), (to, value, n), LEAT_CUDA_MEMSET, n, (void)0)   \
    PROBE_FILL_ASYNC(X, cudaMemsetAsync)                                                           \
    PROBE_FILL_ASYNC(X, cudaMemsetAsync_ptsz)                                                      \
    PROBE_DRAIN(X, cudaStreamSynchronize, (void *stream), (stream))                                \
    PROBE_DRAIN(X, cudaStreamSynchronize_ptsz, (void *stream), (stream))                           \
    PROBE_DRAIN(X, cudaDeviceSynchronize, (void), ())                                              \
    PROBE_HANDLE(X, cudaEventSynchronize, EVENT_SYNC)                                              \
    PROBE_HANDLE(X, cudaEventQuery, EVENT)                                                         \
    PROBE_HANDLE(X, cudaStreamQuery, EVENT)                                                        \
    PROBE_PAIR(X, cudaEventRecord, EVENT)                                                          \
    PROBE_PAIR(X, cudaEventRecord_ptsz, EVENT)                                                     \
    X(cudaEventRecordWithFlags, (void *event, void *stream, unsigned flags),                       \
      (event, stream, flags), LEAT_CUDA_EVENT, 0, (void)0)                                         \
    PROBE_WAIT_EVENT(X, cudaStreamWaitEvent)                                                       \
    PROBE_WAIT_EVENT(X, cudaStreamWaitEvent_ptsz)                                                  \
    X(cudaMalloc, (void **at, size_t n), (at, n), LEAT_CUDA_ALLOC, n,                              \
      gpu_clock_allocated(end - start))                                                            \
    X(cudaFree, (void *at), (at), (host_memory_drop_answers(), LEAT_CUDA_FREE), 0,                 \
      gpu_clock_allocated(end - start))                                                            \
    X(cudaMallocAsync, (void **at, size_t n, void *stream), (at, n, stream),                       \
      LEAT_CUDA_ALLOC_ASYNC, n, (void)0)                                                           \
    X(cudaMallocFromPoolAsync, (void **at, size_t n, void *pool, void *stream),                    \
      (at, n, pool, stream), LEAT_CUDA_ALLOC_ASYNC, n, (void)0)                                    \
    X(cudaFreeAsync, (void *at, void *stream), (at, stream),                                       \
      (host_memory_drop_answers(), LEAT_CUDA_FREE_ASYNC), 0, (void)0)                              \
    X(cudaHostAlloc, (void **at, size_t n, unsigned flags), (at, n, flags), LEAT_CUDA_ALLOC_HOST,  \
      n, host_memory_add(*at, n))                                                                  \
    X(cudaMallocHost, (void **at, size_t n), (at, n), LEAT_CUDA_ALLOC_HOST, n,                     \
      host_memory_add(*at, n))                                                                     \
    X(cudaHostRegister, (void *at, size_t n, unsigned flags), (at, n, flags),                      \
      LEAT_CUDA_ALLOC_HOST, n, host_memory_add(at, n))                                             \
    X(cudaFreeHost, (void *at), (at), (host_memory_remove(at), LEAT_CUDA_FREE_HOST), 0, (void)0)   \
    X(cudaHostUnregister, (void *at), (at), (host_memory_remove(at), LEAT_CUDA_FREE_HOST), 0,      \
      (void)0)                                                                                     \
    PROBE_GRAPH_LAUNCH(X, cuGraphLaunch)                                                           \
    X(cuMemcpyAsync, (uint64_t to, uint64_t from, size_t n, void *stream), (to, from, n, stream),  \
      copy_class(COPY_DEFAULT, (void *)to, (const void *)from), n, (void)0)                        \
    X(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t n), (to, from, n),                   \
      copy_class(COPY_H2D, NULL, from), n, (void)0)                                                \
    X(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t n, void *stream),               \
      (to, from, n, stream), copy_class(COPY_H2D, NULL, from), n, (void)0)                         \
    X(cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t n), (to, from, n),                         \
      copy_class(COPY_D2H, to, NULL), n, (void)0)                                                  \
    X(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t n, void *stream),                     \
      (to, from, n, stream), copy_class(COPY_D2H, to, NULL), n, (void)0)                           \
    X(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t n, void *stream),                  \
      (to, from, n, stream), LEAT_CUDA_D2D, n, (void)0)                                            \
    PROBE_DRAIN(X, cuStreamSynchronize, (void *stream), (stream))                                  \
    PROBE_DRAIN(X, cuCtxSynchronize, (void), ())                                                   \
    PROBE_HANDLE(X, cuEventSynchronize, EVENT_SYNC)                                                \
    X(cuMemAlloc_v2, (uint64_t * at, size_t n), (at, n), LEAT_CUDA_ALLOC, n, (void)0)              \
    X(cuMemFree_v2, (uint64_t at), (at), (host_memory_drop_answers(), LEAT_CUDA_FREE), 0, (void)0)

/* Calls that are not counted, only noticed by the clock of the device (gpu_clock.h):
 *
 *     X(name, parameters, arguments, idle, before, after)  `after` sees the call's `result`
 *
 * While `idle` holds there is nothing to notice: PyTorch asks for the device ten times a launch.
 */
#define PROBE_CUDA_NOTICED(X)                                                                      \
    X(cudaGetDevice, (int *device), (device), gpu_clock_ignores_query(), gpu_clock_query(),        \
      gpu_clock_query_done())                                                                      \
    X(cudaStreamBeginCapture, (void *stream, int mode), (stream, mode), 0, gpu_clock_capture(1),   \
      gpu_clock_capture(result == 0 ? 0 : -1))                                                     \
    X(cudaStreamBeginCaptureToGraph,                                                               \
      (void *stream, void *graph, const void *needs, const void *data, size_t count, int mode),    \
      (stream, graph, needs, data, count, mode), 0, gpu_clock_capture(1),                          \
      gpu_clock_capture(result == 0 ? 0 : -1))                                                     \
    X(cudaStreamEndCapture, (void *stream, void **graph), (stream, graph), 0, (void)0,             \
      gpu_clock_capture(-1))

/* Those first that every step makes many of. */
enum probe_call {
#define X(name, ...) PROBE_##name,
    PROBE_CUDA_LAUNCHES(X) PROBE_CUDA_NOTICED(X) PROBE_CUDA_CALLS(X)
#undef X
        PROBE_CALLS
};

#endif
