/* probe.c: what one call costs through the probe, beside the same call without it.
 *
 * The callee does nearly nothing (tests/unit/probe), so that what is seen is the wrapper: two reads
 * of the clock, three additions, one indirect call. Rounds take turns and the best of each side
 * counts, so that a busy machine makes both slower and not one.
 *
 *     build/bench/probe [CALLS]
 */
#include "base/clock.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 15 };

extern _Atomic long fake_calls; /* the callee's: so that its library is linked at all */
extern int cudaEventQuery(void *event);
extern int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream);

static double best_ns(double best, uint64_t start_ns, long calls)
{
    double ns = (double)(clock_now_ns() - start_ns) / (double)calls;
    return best == 0 || ns < best ? ns : best;
}

int main(int argc, char **argv)
{
    long calls = argc > 1 ? strtol(argv[1], NULL, 10) : 1000000;
    void *library = dlopen("libcudart.so.99", RTLD_LAZY | RTLD_NOLOAD);
    int (*query)(void *) = library ? (int (*)(void *))dlsym(library, "cudaEventQuery") : NULL;
    int (*copy)(void *, const void *, size_t, int, void *) =
        library
            ? (int (*)(void *, const void *, size_t, int, void *))dlsym(library, "cudaMemcpyAsync")
            : NULL;
    if (!query || !copy || calls <= 0) {
        fprintf(stderr, "usage: probe [CALLS]; built with its tests, beside them\n");
        return 2;
    }
    static char host[4096], device[4096];
    double direct = 0, probed = 0, copied = 0, copied_probed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t t = clock_now_ns();
        for (long i = 0; i < calls; i++)
            query(NULL);
        direct = best_ns(direct, t, calls);
        t = clock_now_ns();
        for (long i = 0; i < calls; i++)
            cudaEventQuery(NULL);
        probed = best_ns(probed, t, calls);
        t = clock_now_ns();
        for (long i = 0; i < calls; i++)
            copy(device, host, 1, 1, NULL);
        copied = best_ns(copied, t, calls);
        t = clock_now_ns();
        for (long i = 0; i < calls; i++)
            cudaMemcpyAsync(device, host, 1, 1, NULL);
        copied_probed = best_ns(copied_probed, t, calls);
    }
    if (fake_calls != 4 * ROUNDS * calls) {
        fprintf(stderr, "%ld calls arrived, %ld were made\n", (long)fake_calls, 4 * ROUNDS * calls);
        return 1;
    }
    printf("%-28s %8s %8s %8s\n", "ns a call", "without", "with", "added");
    printf("%-28s %8.1f %8.1f %8.1f\n", "a call", direct, probed, probed - direct);
    printf("%-28s %8.1f %8.1f %8.1f\n", "a copy of pageable memory", copied, copied_probed,
           copied_probed - copied);
    return 0;
}
