/* fake_gpu.c: a CUDA driver for the tests of device/. Its memory is the CPU's, and its one stream
 * does nothing until a thread waits for it, so that a missing wait gives wrong data.
 *
 *     queue   copy | gather | wait | record | ...     done in order; a wait for what a consumer has
 *                                                     enqueued stops it until consumers_done
 */
#include "fake_gpu.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define F(name) __attribute__((visibility("default"))) int name

struct fake_gpu fake_gpu __attribute__((visibility("default")));

struct event {
    int done, of_consumers;
};

enum kind { COPY, GATHER, WAIT, RECORD };
struct op {
    enum kind kind;
    uint64_t to, from, idx, bytes;
    uint32_t units, total;
    struct event *event;
    uint64_t print; /* of the memory to be copied */
};

static struct op queue[1 << 16];
static size_t first, last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int streams[1];
static const int sizes[] = {16, 4, 1};

static uint64_t print_of(uint64_t from, uint64_t bytes)
{
    uint64_t print = 0;
    for (uint64_t i = 0; i < bytes; i++)
        print = print * 31 + ((const uint8_t *)(uintptr_t)from)[i];
    return print;
}

static void do_copy(const struct op *op)
{
    fake_gpu.torn_copies += print_of(op->from, op->bytes) != op->print;
    memcpy((void *)(uintptr_t)op->to, (const void *)(uintptr_t)op->from, op->bytes);
}

static void put(struct op op)
{
    pthread_mutex_lock(&lock);
    fake_gpu.calls++;
    queue[last++ % (1 << 16)] = op;
    pthread_mutex_unlock(&lock);
}

static int is_done(const struct event *event)
{
    return event->of_consumers ? fake_gpu.consumers_done : event->done;
}

static void do_gather(const struct op *op)
{
    const int64_t *idx = (const int64_t *)(uintptr_t)op->idx;
    for (uint32_t i = 0; i < op->total; i++)
        memcpy((char *)(uintptr_t)op->to + i * op->bytes,
               (const char *)(uintptr_t)op->from +
                   ((uint64_t)idx[i / op->units] * op->units + i % op->units) * op->bytes,
               op->bytes);
}

/* Lock held. Until the event is done, or the queue must wait. */
static void run_until(const struct event *event)
{
    while (first < last && !(event && is_done(event))) {
        struct op *op = &queue[first % (1 << 16)];
        if (op->kind == WAIT && !is_done(op->event))
            return;
        if (op->kind == COPY)
            do_copy(op);
        else if (op->kind == GATHER)
            do_gather(op);
        else if (op->kind == RECORD)
            op->event->done = 1;
        first++;
    }
}

__attribute__((visibility("default"))) void fake_gpu_run(void)
{
    pthread_mutex_lock(&lock);
    run_until(NULL);
    pthread_mutex_unlock(&lock);
}

F(cuInit)(unsigned flags)
{
    return 0;
}
F(cuDeviceGetCount)(int *count)
{
    *count = 1;
    return 0;
}
F(cuDeviceGet)(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}
F(cuDevicePrimaryCtxRetain)(void **context, int device)
{
    *context = &fake_gpu;
    return 0;
}
F(cuDevicePrimaryCtxRelease_v2)(int device)
{
    return 0;
}
F(cuCtxPushCurrent_v2)(void *context)
{
    fake_gpu.calls++;
    return 0;
}
F(cuCtxPopCurrent_v2)(void **context)
{
    return 0;
}
F(cuCtxSynchronize)(void)
{
    return 0;
}
F(cuMemGetInfo_v2)(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = 64 << 20;
    return 0;
}
F(cuMemAlloc_v2)(uint64_t *memory, size_t bytes)
{
    fake_gpu.allocations++;
    *memory = (uint64_t)(uintptr_t)calloc(1, bytes);
    return *memory ? 0 : 2;
}
F(cuMemFree_v2)(uint64_t memory)
{
    fake_gpu_run();
    free((void *)(uintptr_t)memory);
    return 0;
}
F(cuMemHostRegister_v2)(void *memory, size_t bytes, unsigned flags)
{
    fake_gpu.host_locks++;
    return ((uintptr_t)memory | bytes) % 4096 ? 1 : 0; /* whole pages */
}
F(cuMemHostUnregister)(void *memory)
{
    return 0;
}
F(cuMemcpyHtoDAsync_v2)(uint64_t to, const void *from, size_t bytes, void *stream)
{
    uint64_t at = (uint64_t)(uintptr_t)from;
    put((struct op){
        .kind = COPY, .to = to, .from = at, .bytes = bytes, .print = print_of(at, bytes)});
    return 0;
}
F(cuStreamCreate)(void **stream, unsigned flags)
{
    *stream = streams;
    return 0;
}
F(cuStreamDestroy_v2)(void *stream)
{
    return 0;
}
F(cuStreamWaitEvent)(void *stream, void *event, unsigned flags)
{
    if (stream == streams)
        put((struct op){.kind = WAIT, .event = event});
    else
        fake_gpu_run(); /* called by the consumer, which reads the batch next */
    return 0;
}
F(cuStreamIsCapturing)(void *stream, int *capturing)
{
    *capturing = fake_gpu.capturing;
    return 0;
}
F(cuStreamSynchronize)(void *stream)
{
    fake_gpu_run();
    return 0;
}
F(cuEventCreate)(void **event, unsigned flags)
{
    struct event *made = calloc(1, sizeof *made);
    made->done = 1;
    *event = made;
    return 0;
}
F(cuEventDestroy_v2)(void *event)
{
    free(event);
    return 0;
}
F(cuEventRecord)(void *event, void *stream)
{
    pthread_mutex_lock(&lock);
    ((struct event *)event)->done = 0;
    pthread_mutex_unlock(&lock);
    put((struct op){.kind = RECORD, .event = event});
    return 0;
}
F(cuEventQuery)(void *event)
{
    return is_done(event) ? 0 : 600;
}
F(cuEventSynchronize)(void *event)
{
    pthread_mutex_lock(&lock);
    run_until(event);
    while (!is_done(event)) { /* a consumer is in the way: it ends by itself */
        fake_gpu.consumers_done = 1;
        run_until(event);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
F(cuThreadExchangeStreamCaptureMode)(int *mode)
{
    return 0;
}
F(cuGetErrorString)(int result, const char **text)
{
    *text = "fake";
    return 0;
}
F(cuCtxRecordEvent)(void *context, void *event)
{
    fake_gpu.context_records++;
    fake_gpu.broken_captures += fake_gpu.capturing;
    pthread_mutex_lock(&lock);
    ((struct event *)event)->of_consumers = 1;
    pthread_mutex_unlock(&lock);
    return 0;
}
F(cuModuleLoadData)(void **module, const void *text)
{
    *module = streams;
    return 0;
}
F(cuModuleUnload)(void *module)
{
    return 0;
}
F(cuModuleGetFunction)(void **function, void *module, const char *name)
{
    *function = (void *)&sizes[strcmp(name, "gather_16") ? strcmp(name, "gather_4") ? 2 : 1 : 0];
    return 0;
}
F(cuLaunchKernel)
(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
 unsigned shared, void *stream, void **a, void **extra)
{
    fake_gpu.gathers++;
    put((struct op){.kind = GATHER,
                    .from = *(uint64_t *)a[0],
                    .idx = *(uint64_t *)a[1],
                    .to = *(uint64_t *)a[2],
                    .units = *(uint32_t *)a[3],
                    .total = *(uint32_t *)a[4],
                    .bytes = (uint64_t) * (const int *)function});
    return 0;
}
