/* cuda_driver.h: the calls of the CUDA driver that batches on a GPU need.
 *
 * libcuda.so.1 comes with the driver: it is opened when the first loader asks for a device, so the
 * same build runs without it. The driver's interface is a stable ABI; what is used of it is
 * declared here. It is not called in a process that asks for no device, nor in a child of one that
 * did: CUDA does not survive a fork.
 */
#ifndef LEAT_LOAD_CUDA_DRIVER_H
#define LEAT_LOAD_CUDA_DRIVER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef uint64_t cu_address;

enum {
    CU_SUCCESS = 0,
    CU_NOT_READY = 600,
    CU_STREAM_NON_BLOCKING = 1,     /* not synchronized with the legacy stream */
    CU_EVENT_BLOCKING_NO_TIMES = 3, /* a waiting thread sleeps; no time stamps */
    CU_CAPTURE_RELAXED = 2,
    CU_HOST_REGISTER_PORTABLE = 1
};

/* Names as the library exports them, and ours. */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(device_count, "cuDeviceGetCount", (int *count))                                              \
    X(device_get, "cuDeviceGet", (int *device, int ordinal))                                       \
    X(context_retain, "cuDevicePrimaryCtxRetain", (cu_context * context, int device))              \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                               \
    X(context_push, "cuCtxPushCurrent_v2", (cu_context context))                                   \
    X(context_pop, "cuCtxPopCurrent_v2", (cu_context * context))                                   \
    X(context_wait, "cuCtxSynchronize", (void))                                                    \
    X(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                             \
    X(memory_get, "cuMemAlloc_v2", (cu_address * memory, size_t bytes))                            \
    X(memory_free, "cuMemFree_v2", (cu_address memory))                                            \
    X(host_lock, "cuMemHostRegister_v2", (void *memory, size_t bytes, unsigned flags))             \
    X(host_unlock, "cuMemHostUnregister", (void *memory))                                          \
    X(copy_in, "cuMemcpyHtoDAsync_v2",                                                             \
      (cu_address to, const void *from, size_t bytes, cu_stream stream))                           \
    X(stream_new, "cuStreamCreate", (cu_stream * stream, unsigned flags))                          \
    X(stream_free, "cuStreamDestroy_v2", (cu_stream stream))                                       \
    X(stream_wait, "cuStreamWaitEvent", (cu_stream stream, cu_event event, unsigned flags))        \
    X(stream_capturing, "cuStreamIsCapturing", (cu_stream stream, int *capturing))                 \
    X(stream_finish, "cuStreamSynchronize", (cu_stream stream))                                    \
    X(event_new, "cuEventCreate", (cu_event * event, unsigned flags))                              \
    X(event_free, "cuEventDestroy_v2", (cu_event event))                                           \
    X(event_record, "cuEventRecord", (cu_event event, cu_stream stream))                           \
    X(event_query, "cuEventQuery", (cu_event event))                                               \
    X(event_wait, "cuEventSynchronize", (cu_event event))                                          \
    X(module_load, "cuModuleLoadData", (cu_module * module, const void *text))                     \
    X(module_free, "cuModuleUnload", (cu_module module))                                           \
    X(module_function, "cuModuleGetFunction",                                                      \
      (cu_function * function, cu_module module, const char *name))                                \
    X(launch, "cuLaunchKernel",                                                                    \
      (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream,                \
       void **arguments, void **extra))                                                            \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                              \
    X(error_text, "cuGetErrorString", (int result, const char **text))

/* Missing in older drivers: NULL then. */
#define CUDA_FUNCTIONS_NEWER(X)                                                                    \
    X(context_record, "cuCtxRecordEvent", (cu_context context, cu_event event))

struct cuda_driver {
#define X(name, symbol, arguments) int(*name) arguments;
    CUDA_FUNCTIONS(X)
    CUDA_FUNCTIONS_NEWER(X)
#undef X
};

/* The driver, opened and initialised once per process, never closed. NULL with a message when there
 * is none or it is too old. */
const struct cuda_driver *cuda_driver_open(struct leat_err *err);

/* The driver's text for a result; never NULL. */
const char *cuda_driver_text(const struct cuda_driver *driver, int result);

#endif
