/* fake_driver.c: see fake_cuda.h. */
#include "fake_cuda.h"

#include <time.h>

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

uint64_t fake_busy_until_ns;
_Atomic long fake_events;
void *fake_event_stream;

uint64_t fake_now_ns;

static uint64_t now_ns(void)
{
    struct timespec t;
    if (fake_now_ns)
        return fake_now_ns;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The clock of a probe that is compiled with LEAT_TEST_CLOCK. Each reading advances the time by a
 * nanosecond, so that a loop that waits ends. */
uint64_t leat_test_clock_ns(void)
{
    return fake_now_ns++;
}

int cuEventCreate(void **event, unsigned flags)
{
    static uint64_t times[1024];
    static int used;
    if (used == 1024)
        return 2;
    *event = &times[used++];
    return 0;
}

uint64_t fake_event_takes_ns;

int cuEventRecord(void *event, void *stream)
{
    *(uint64_t *)event = now_ns() < fake_busy_until_ns ? fake_busy_until_ns : now_ns();
    if (fake_now_ns)
        fake_now_ns += fake_event_takes_ns;
    for (uint64_t begin = now_ns(); !fake_now_ns && now_ns() - begin < fake_event_takes_ns;)
        ;
    fake_event_stream = stream;
    fake_events++;
    return 0;
}

int fake_reports_late;
uint64_t fake_report_delay_ns;
_Atomic long fake_queries;

int cuStreamQuery(void *stream)
{
    enum { NOT_READY = 600, AT_ONCE_NS = 10000 };
    static uint64_t last_ns;
    uint64_t now = now_ns(), since = now - last_ns;
    fake_queries++;
    last_ns = now;
    return now < fake_busy_until_ns + fake_report_delay_ns ||
                   (fake_reports_late && since > AT_ONCE_NS)
               ? NOT_READY
               : 0;
}

int cuEventQuery(void *event)
{
    enum { NOT_READY = 600 };
    return now_ns() < *(uint64_t *)event + fake_report_delay_ns ? NOT_READY : 0;
}

int cuEventElapsedTime(float *ms, void *from, void *to)
{
    enum { NOT_READY = 600 };
    if (*(uint64_t *)to > now_ns())
        return NOT_READY;
    *ms = (float)((double)(*(uint64_t *)to - *(uint64_t *)from) / 1e6);
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    *status = 0;
    return 0;
}
