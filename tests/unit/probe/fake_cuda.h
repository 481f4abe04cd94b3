/* fake_cuda.h: a CUDA for tests: every function counts its calls, keeps its arguments, and returns
 * what the test sets. fake_cudart.c and fake_driver.c are two libraries, as in CUDA; the driver has
 * the real one's soname, because the probe asks it by that name. */
#ifndef LEAT_TESTS_FAKE_CUDA_H
#define LEAT_TESTS_FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

struct fake_dim3 {
    unsigned x, y, z;
};

/* fake_cudart.c */
extern _Atomic long fake_calls; /* of any function of the runtime */
extern int fake_result;         /* what they return */
extern int fake_nested;         /* synchronizing calls the driver, as the real one does */
extern unsigned fake_seen[8];   /* grid and block of the last launch, shared bytes, stream */
int cudaLaunchKernel(const void *kernel, struct fake_dim3 grid, struct fake_dim3 block,
                     void **values, size_t shared, void *stream);
int __cudaLaunchKernel(const void *kernel, struct fake_dim3 grid, struct fake_dim3 block,
                       void **values, size_t shared, void *stream);
int cudaLaunchKernelExC(const void *config, const void *kernel, void **values);
int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream);
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t height, int kind, void *stream);
int cudaMemsetAsync(void *to, int value, size_t n, void *stream);
int cudaStreamSynchronize(void *stream);
int cudaDeviceSynchronize(void);
int cudaEventSynchronize(void *event);
int cudaEventQuery(void *event);
int cudaGraphLaunch(void *graph, void *stream);
int cudaMalloc(void **at, size_t n);
int cudaFree(void *at);
int cudaMallocAsync(void **at, size_t n, void *stream);
int cudaFreeAsync(void *at, void *stream);
int cudaHostAlloc(void **at, size_t n, unsigned flags);
int cudaFreeHost(void *at);
int cudaHostRegister(void *at, size_t n, unsigned flags);
int cudaHostUnregister(void *at);
int cudaGetDevice(int *device);
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);

/* fake_driver.c */
extern _Atomic long fake_asked;               /* how often the driver was asked about an address */
extern const void *fake_pinned, *fake_device; /* its answers for these addresses */
int cuStreamSynchronize(void *stream);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream);
int cuPointerGetAttribute(void *data, int attribute, uint64_t address);
/* The time of the driver and the device, and of a probe that is compiled for it, as the test sets
 * it. 0: that of CLOCK_MONOTONIC. */
extern uint64_t fake_now_ns;
uint64_t leat_test_clock_ns(void);
/* Events. The device has work until `fake_busy_until_ns`; what is recorded earlier comes then. */
extern uint64_t fake_busy_until_ns;
extern _Atomic long fake_events; /* recorded */
extern void *fake_event_stream;  /* of the last */
extern uint64_t fake_event_takes_ns;
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuEventElapsedTime(float *ms, void *from, void *to);
int cuStreamIsCapturing(void *stream, int *status);
/* Whether it has work. With fake_reports_late, only a second query right after the first reports
 * the end. */
extern int fake_reports_late;
extern uint64_t
    fake_report_delay_ns; /* the end of work or of an event is reported this much later */
extern _Atomic long fake_queries;
int cuStreamQuery(void *stream);
int cuEventQuery(void *event);

#endif
