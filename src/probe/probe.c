/* probe.c: libleat-probe.so, which `leat run` preloads, counts the CUDA calls of a process.
 *
 * It defines functions of CUDA's runtime and driver under their own names, so that the dynamic
 * loader binds calls to them; each counts and calls the real one (next_definition.h). The idle time
 * of the device is measured on the way (gpu_clock.h). Nothing is written anywhere: the recorder in
 * the same process finds leat_probe_read() by dlsym() and copies the sums into the shared memory at
 * the end of each step (record/probe_abi.h).
 *
 * Guarantees
 *   - Results, errors and arguments are not changed. No thread, file, output or allocation.
 *   - A process that never calls CUDA pays only for loading this file.
 *   - In a forked child all counts are 0.
 *   - A signal handler that calls CUDA in the middle of a timed call is part of that call.
 *
 * Caveat: these names exist in every process. A program that looks for CUDA by
 * dlsym(RTLD_DEFAULT, "cudaFree") finds them; calling them without CUDA returns "no device".
 */
#include "probe/call_counters.h"
#include "probe/cuda_calls.h"
#include "probe/gpu_clock.h"
#include "probe/host_memory.h"
#include "probe/next_definition.h"

#include <pthread.h>
#include <string.h>

enum { NO_DEVICE = 100 }; /* cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE */

enum { COPY_H2H, COPY_H2D, COPY_D2H, COPY_D2D, COPY_DEFAULT }; /* cudaMemcpyKind */

static enum leat_cuda_class to_device(const void *from)
{
    return host_memory_of(from) == HOST_PINNED ? LEAT_CUDA_H2D_PINNED : LEAT_CUDA_H2D_PAGEABLE;
}

static enum leat_cuda_class to_host(const void *to)
{
    return host_memory_of(to) == HOST_PINNED ? LEAT_CUDA_D2H_PINNED : LEAT_CUDA_D2H_PAGEABLE;
}

static enum leat_cuda_class copy_class(int kind, const void *to, const void *from)
{
    if (kind == COPY_DEFAULT) {
        int from_host = host_memory_of(from) != HOST_NOT, to_host = host_memory_of(to) != HOST_NOT;
        kind = from_host ? (to_host ? COPY_H2H : COPY_H2D) : to_host ? COPY_D2H : COPY_D2D;
    }
    switch (kind) {
    case COPY_H2D: return to_device(from);
    case COPY_D2H: return to_host(to);
    case COPY_D2D: return LEAT_CUDA_D2D;
    default: return LEAT_CUDA_COPY_OTHER;
    }
}

/* Called after copies and waits (LEAT_PROBE_WATCH in probe_abi.h). */
static _Atomic(leat_probe_seen_fn) watcher;

static inline int is_watched(enum leat_cuda_class class)
{
    return 1u << class & LEAT_CUDA_WATCHED; /* for most calls the compiler knows the result */
}

static void call_watcher(enum leat_cuda_class class, uint64_t start, uint64_t end, uint64_t bytes)
{
    leat_probe_seen_fn seen = atomic_load_explicit(&watcher, memory_order_acquire);
    if (seen)
        seen(class, call_nanoseconds(end > start ? end - start : 0), bytes);
}

static enum leat_cuda_class copy_begins(int kind, const void *to, const void *from, void *stream,
                                        uint64_t bytes)
{
    enum leat_cuda_class class = copy_class(kind, to, from);
    bool to_device = class == LEAT_CUDA_H2D_PINNED || class == LEAT_CUDA_H2D_PAGEABLE;
    gpu_clock_copy_begins(stream, to_device ? bytes : 0);
    return class;
}

static inline enum leat_cuda_class launch_class(void *stream)
{
    gpu_clock_launch(stream);
    return LEAT_CUDA_LAUNCH;
}

/* cudaLaunchConfig_t and CUlaunchConfig have the stream at the same offset. */
static void *config_stream(const void *config)
{
    enum { STREAM_AT = 32 };
    void *stream = NULL;
    if (config)
        memcpy(&stream, (const char *)config + STREAM_AT, sizeof stream);
    return stream;
}

/* `bytes` and `after` use the parameters, so they are evaluated where those are in scope; and
 * before the call is left, so that a signal handler never meets a table that is being changed. */
#define COUNT(name, parameters, arguments, class, bytes, after)                                    \
    int name parameters __attribute__((visibility("default")));                                    \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters =                                                                    \
            (int(*) parameters)next_definition(PROBE_##name, __builtin_return_address(0));         \
        if (!next)                                                                                 \
            return NO_DEVICE;                                                                      \
        if (!call_enter())                                                                         \
            return next arguments;                                                                 \
        enum leat_cuda_class counted_as = (class);                                                 \
        uint64_t weight = call_weight(counted_as);                                                 \
        bool timed = weight || gpu_clock_on();                                                     \
        uint64_t start = timed ? call_ticks() : 0;                                                 \
        int result = next arguments;                                                               \
        uint64_t end = timed ? call_ticks() : 0;                                                   \
        if (result == 0 && timed)                                                                  \
            after;                                                                                 \
        if (is_watched(counted_as))                                                                \
            call_watcher(counted_as, start, end, result == 0 ? (uint64_t)(bytes) : 0);             \
        call_leave(counted_as, weight, start, end, result == 0 ? (uint64_t)(bytes) : 0);           \
        return result;                                                                             \
    }
PROBE_CUDA_CALLS(COUNT)

#define X(name, parameters, arguments, stream)                                                     \
    COUNT(name, parameters, arguments, launch_class(stream), 0, gpu_clock_launched(end))
PROBE_CUDA_LAUNCHES(X)
#undef X

#define X(name, parameters, arguments, idle, before, after)                                        \
    int name parameters __attribute__((visibility("default")));                                    \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters =                                                                    \
            (int(*) parameters)next_definition(PROBE_##name, __builtin_return_address(0));         \
        if (!next)                                                                                 \
            return NO_DEVICE;                                                                      \
        if ((idle) || call_thread.depth)                                                           \
            return next arguments;                                                                 \
        before;                                                                                    \
        int result = next arguments;                                                               \
        after;                                                                                     \
        return result;                                                                             \
    }
PROBE_CUDA_NOTICED(X)
#undef X

/* See LEAT_PROBE_READ in probe_abi.h. */
int leat_probe_read(uint32_t classes, struct leat_cuda_total *ret_totals)
    __attribute__((visibility("default")));
int leat_probe_read(uint32_t classes, struct leat_cuda_total *ret_totals)
{
    return classes == LEAT_CUDA_CLASSES_COUNT && call_counters_read(ret_totals);
}

void leat_probe_on_first_call(void (*callback)(void)) __attribute__((visibility("default")));
void leat_probe_on_first_call(void (*callback)(void))
{
    call_counters_on_first_call(callback);
}

void leat_probe_watch(leat_probe_seen_fn seen) __attribute__((visibility("default")));
void leat_probe_watch(leat_probe_seen_fn seen)
{
    atomic_store_explicit(&watcher, seen, memory_order_release);
}

/* See LEAT_PROBE_PHASE and LEAT_PROBE_CLOCK in probe_abi.h. */
void leat_probe_phase(enum leat_clock_phase phase) __attribute__((visibility("default")));
void leat_probe_phase(enum leat_clock_phase phase)
{
    gpu_clock_begin_phase(phase);
}

int leat_probe_clock(uint32_t phases, struct leat_clock_total *ret_totals)
    __attribute__((visibility("default")));
int leat_probe_clock(uint32_t phases, struct leat_clock_total *ret_totals)
{
    return phases == LEAT_CLOCK_PHASES_COUNT && gpu_clock_read(ret_totals);
}

static void after_fork_in_child(void)
{
    gpu_clock_reset();
    atomic_store(&watcher, NULL);
    call_counters_reset();
    host_memory_reset();
}

__attribute__((constructor)) static void loaded(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}
