/* probe.c: the cost of one CUDA call with the probe, compared with the same call without it.
 *
 *     build/bench/probe LIBRARY [CALLS]
 *
 * LIBRARY is a libcudart: CUDA's own, on a machine with a GPU; or that of the tests
 * (build/tests/unit/probe/libcudart.so.99), whose functions do nearly nothing. The cheapest calls
 * are used: a query of an event that has passed, and a copy of no bytes of pageable memory. The
 * probe adds two reads of the clock, three additions and one indirect call, and for a copy a check
 * of the kind of memory. Rounds of calls with and without the probe alternate and the median
 * counts, so that a busy machine slows both. All run on the core that other programs use least, by
 * the time of calls without the probe: a second thread on the core makes calls slower by half. For
 * the same reason only rounds count in which the call without the probe was at most 10 % slower
 * than a fast one.
 */
#include "record/probe_abi.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 101 };

/* Of the probe. */
extern int cudaEventQuery(void *event);
extern int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream);
extern int leat_probe_read(uint32_t classes, struct leat_cuda_total *ret_totals);

/* An event that has passed; NULL if the library has no events. */
static void *passed_event(void *library)
{
    int (*create)(void **) = (int (*)(void **))dlsym(library, "cudaEventCreate");
    int (*record)(void *, void *) = (int (*)(void *, void *))dlsym(library, "cudaEventRecord");
    int (*wait)(void) = (int (*)(void))dlsym(library, "cudaDeviceSynchronize");
    void *event = NULL;
    if (create && record && wait && (create(&event) || record(event, NULL) || wait())) {
        fprintf(stderr, "CUDA makes no event here: is there a GPU?\n");
        exit(2);
    }
    return event;
}

typedef int query_fn(void *event);
typedef int copy_fn(void *to, const void *from, size_t n, int kind, void *stream);

static double query_ns(query_fn *query, void *event, long calls)
{
    uint64_t start_ns = clock_now_ns();
    for (long i = 0; i < calls; i++)
        query(event);
    return (double)(clock_now_ns() - start_ns) / (double)calls;
}

static double copy_ns(copy_fn *copy, long calls)
{
    static char from[64], to[64];
    uint64_t start_ns = clock_now_ns();
    for (long i = 0; i < calls; i++)
        copy(to, from, 0, 1, NULL); /* 1: to the device */
    return (double)(clock_now_ns() - start_ns) / (double)calls;
}

static void move_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* Measures each core several times, in rounds, so that a short load does not decide. */
static void choose_core(copy_fn *copy, long calls)
{
    enum { MEASUREMENTS = 5 };
    static double ns[CPU_SETSIZE];
    cpu_set_t allowed;
    int best = -1;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int i = 0; i < MEASUREMENTS; i++)
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET(core, &allowed)) {
                move_to(core);
                ns[core] += copy_ns(copy, calls);
            }
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && (best < 0 || ns[core] < ns[best]))
            best = core;
    move_to(best);
}

static uint64_t counted(void)
{
    struct leat_cuda_total totals[LEAT_CUDA_CLASSES_COUNT] = {0};
    uint64_t n = 0;
    leat_probe_read(LEAT_CUDA_CLASSES_COUNT, totals);
    for (int i = 0; i < LEAT_CUDA_CLASSES_COUNT; i++)
        n += totals[i].n;
    return n;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct side {
    double without[ROUNDS], with[ROUNDS], added[ROUNDS];
};

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* Keeps the rounds in which no other program used the core; returns how many. */
static int keep_quiet_rounds(struct side *s)
{
    double sorted[ROUNDS];
    int kept = 0;
    memcpy(sorted, s->without, sizeof sorted);
    median(sorted, ROUNDS);
    double most = 1.1 * sorted[ROUNDS / 10]; /* the shortest may be a clock error */
    for (int i = 0; i < ROUNDS; i++)
        if (s->without[i] <= most) {
            s->without[kept] = s->without[i];
            s->with[kept] = s->with[i];
            s->added[kept++] = s->with[i] - s->without[i];
        }
    return kept;
}

static void show(const char *what, struct side *s)
{
    int kept = keep_quiet_rounds(s);
    printf("%-10s %8.1f %8.1f %8.1f\n", what, median(s->without, kept), median(s->with, kept),
           median(s->added, kept));
}

int main(int argc, char **argv)
{
    long calls = argc > 2 ? strtol(argv[2], NULL, 10) : 10000;
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    query_fn *query = library ? (query_fn *)dlsym(library, "cudaEventQuery") : NULL;
    copy_fn *copy = library ? (copy_fn *)dlsym(library, "cudaMemcpyAsync") : NULL;
    if (!query || !copy || calls <= 0) {
        fprintf(stderr, "usage: probe LIBRARY [CALLS]%s%s\n", argc > 1 ? ": " : "",
                argc > 1 && !library ? dlerror() : "");
        return 2;
    }
    static struct side asked, copied;
    void *event = passed_event(library);
    choose_core(copy, calls);
    uint64_t before = counted();
    for (int i = 0; i < ROUNDS; i++) {
        asked.without[i] = query_ns(query, event, calls);
        asked.with[i] = query_ns(cudaEventQuery, event, calls);
        copied.without[i] = copy_ns(copy, calls);
        copied.with[i] = copy_ns(cudaMemcpyAsync, calls);
    }
    if (counted() - before != (uint64_t)(2 * ROUNDS * calls)) {
        fprintf(stderr, "%llu calls were counted, %ld were made\n",
                (unsigned long long)(counted() - before), 2 * ROUNDS * calls);
        return 1;
    }
    printf("%-10s %8s %8s %8s\n", "ns a call", "without", "with", "added");
    show("query", &asked);
    show("copy", &copied);
    return 0;
}
