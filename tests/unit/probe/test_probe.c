/* Tests of the probe against a fake CUDA (fake_cuda.h). This program is linked with the
 * probe before it is linked with the fake runtime, so calls are bound as LD_PRELOAD binds them, and
 * sanitizers work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <cmocka.h>

#include "record/probe_abi.h"
#include "fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { H2D = 1, D2H, D2D, DEFAULT }; /* cudaMemcpyKind */

extern int leat_probe_read(uint32_t classes, struct leat_cuda_total *ret_totals);
extern void leat_probe_watch(leat_probe_seen_fn seen);
extern void leat_probe_on_first_call(void (*callback)(void));

static struct leat_cuda_total before[LEAT_CUDA_CLASSES_COUNT];
static char device[64]; /* an address to stand for the device's */
static const struct fake_dim3 one = {1, 1, 1};

static void read_totals(struct leat_cuda_total *totals)
{
    if (!leat_probe_read(LEAT_CUDA_CLASSES_COUNT, totals))
        memset(totals, 0, LEAT_CUDA_CLASSES_COUNT * sizeof *totals);
}

static int begin(void **state)
{
    fake_result = fake_nested = 0;
    fake_pinned = fake_device = NULL;
    read_totals(before);
    return 0;
}

/* What a class has gained since the test began. */
static struct leat_cuda_total gained(enum leat_cuda_class class)
{
    struct leat_cuda_total now[LEAT_CUDA_CLASSES_COUNT];
    read_totals(now);
    /* The rate of the counter becomes more exact with time, so a total may decrease slightly. */
    uint64_t ns = now[class].ns > before[class].ns ? now[class].ns - before[class].ns : 0;
    return (struct leat_cuda_total){now[class].n - before[class].n, ns,
                                    now[class].bytes - before[class].bytes};
}

static uint64_t count_all(void)
{
    uint64_t n = 0;
    for (int k = 0; k < LEAT_CUDA_CLASSES_COUNT; k++)
        n += gained((enum leat_cuda_class)k).n;
    return n;
}

/* First: nothing may have been called yet. */
static void no_totals_without_a_call(void **state)
{
    struct leat_cuda_total totals[LEAT_CUDA_CLASSES_COUNT];
    assert_int_equal(leat_probe_read(LEAT_CUDA_CLASSES_COUNT, totals), 0);
}

static atomic_int early_calls, late_calls; /* calls of the two callbacks */

static void callback_early(void)
{
    early_calls++;
}

static void callback_late(void)
{
    late_calls++;
}

/* Second, for the same reason. */
static void the_first_call_runs_the_callback(void **state)
{
    leat_probe_on_first_call(callback_early);
    assert_int_equal(early_calls, 0);
    cudaDeviceSynchronize();
    assert_int_equal(early_calls, 1);
    leat_probe_on_first_call(callback_late);
    assert_int_equal(late_calls, 1);
    pid_t pid = fork();
    if (pid == 0) {
        cudaDeviceSynchronize();
        _exit(late_calls == 2 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void another_list_of_classes_is_refused(void **state)
{
    struct leat_cuda_total totals[LEAT_CUDA_CLASSES_COUNT];
    cudaDeviceSynchronize();
    assert_int_equal(leat_probe_read(LEAT_CUDA_CLASSES_COUNT, totals), 1);
    assert_int_equal(leat_probe_read(LEAT_CUDA_CLASSES_COUNT + 1, totals), 0);
}

static void launches_are_counted_and_passed_on(void **state)
{
    struct fake_dim3 grid = {2, 3, 5}, block = {7, 11, 13};
    for (int i = 0; i < 101; i++)
        assert_int_equal(cudaLaunchKernel(&one, grid, block, NULL, 17, (void *)19), 0);
    for (int i = 0; i < 23; i++)
        __cudaLaunchKernel(NULL, one, one, NULL, 0, NULL);
    for (int i = 0; i < 13; i++)
        cudaLaunchKernelExC(NULL, NULL, NULL);
    for (int i = 0; i < 7; i++)
        cudaGraphLaunch(NULL, NULL);
    const unsigned expected[8] = {2, 3, 5, 7, 11, 13, 17, 19};
    assert_memory_equal(fake_seen, expected, sizeof expected);
    assert_int_equal(gained(LEAT_CUDA_LAUNCH).n, 137);
    assert_int_equal(gained(LEAT_CUDA_GRAPH_LAUNCH).n, 7);
    assert_int_equal(count_all(), 144);
}

/* After the first thousand calls only some are timed, and stand for all. */
static void many_calls_are_all_counted_and_some_timed(void **state)
{
    enum { FIRST = 1000, MORE = 7000 };
    static const enum leat_cuda_class classes[] = {LEAT_CUDA_LAUNCH, LEAT_CUDA_EVENT};
    uint64_t first_ns[2];
    for (int i = 0; i < FIRST; i++) {
        cudaLaunchKernel(&one, one, one, NULL, 0, NULL);
        cudaEventQuery(NULL);
    }
    for (int k = 0; k < 2; k++)
        first_ns[k] = gained(classes[k]).ns;
    for (int i = 0; i < MORE; i++) {
        cudaLaunchKernel(&one, one, one, NULL, 0, NULL);
        cudaEventQuery(NULL);
    }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(gained(classes[k]).n, FIRST + MORE);
        assert_in_range(gained(classes[k]).ns, first_ns[k] + MORE, UINT64_MAX); /* 1 ns each */
    }
}

static void errors_pass_and_move_no_bytes(void **state)
{
    fake_result = 719;
    assert_int_equal(cudaMemcpyAsync(device, device, 100, D2D, NULL), 719);
    fake_result = 600; /* not ready */
    assert_int_equal(cudaEventQuery(NULL), 600);
    assert_int_equal(gained(LEAT_CUDA_D2D).n, 1);
    assert_int_equal(gained(LEAT_CUDA_D2D).bytes, 0);
    assert_int_equal(gained(LEAT_CUDA_EVENT).n, 1);
}

static void copies_are_classified(void **state)
{
    char *pinned = NULL, pageable[512], *registered = malloc(512);
    assert_int_equal(cudaHostAlloc((void **)&pinned, 4096, 0), 0);
    assert_int_equal(cudaHostRegister(registered, 512, 0), 0);
    for (int i = 0; i < 17; i++)
        cudaMemcpyAsync(device, pinned + i, 1000, H2D, NULL);
    for (int i = 0; i < 23; i++)
        cudaMemcpyAsync(device, pageable, 100, H2D, NULL);
    for (int i = 0; i < 3; i++)
        cudaMemcpyAsync(registered + 511, device, 1, D2H, NULL);
    cudaMemcpyAsync(registered + 512, device, 1, D2H, NULL); /* one byte too far */
    cudaMemcpy2DAsync(device, 10, pinned, 20, 5, 7, H2D, NULL);
    cudaMemcpyAsync(device, device, 11, D2D, NULL);
    cudaMemsetAsync(device, 0, 29, NULL);
    assert_int_equal(gained(LEAT_CUDA_H2D_PINNED).n, 18);
    assert_int_equal(gained(LEAT_CUDA_H2D_PINNED).bytes, 17035);
    assert_int_equal(gained(LEAT_CUDA_H2D_PAGEABLE).n, 23);
    assert_int_equal(gained(LEAT_CUDA_H2D_PAGEABLE).bytes, 2300);
    assert_int_equal(gained(LEAT_CUDA_D2H_PINNED).n, 3);
    assert_int_equal(gained(LEAT_CUDA_D2H_PAGEABLE).n, 1);
    assert_int_equal(gained(LEAT_CUDA_D2D).bytes, 11);
    assert_int_equal(gained(LEAT_CUDA_MEMSET).bytes, 29);
    assert_int_equal(gained(LEAT_CUDA_ALLOC_HOST).n, 2);
    assert_int_equal(gained(LEAT_CUDA_ALLOC_HOST).bytes, 4608);
    cudaHostUnregister(registered);
    cudaFreeHost(pinned);
    free(registered);
    assert_int_equal(gained(LEAT_CUDA_FREE_HOST).n, 2);
}

/* Memory that was unpinned or freed must not count as pinned. */
static void freed_memory_is_forgotten(void **state)
{
    static char memory[4096];
    cudaHostRegister(memory, sizeof memory, 0);
    cudaMemcpyAsync(device, memory, 1, H2D, NULL);
    cudaHostUnregister(memory);
    cudaMemcpyAsync(device, memory, 1, H2D, NULL);
    cudaHostRegister(memory, sizeof memory, 0);
    cudaMemcpyAsync(device, memory, 1, H2D, NULL);
    cudaHostUnregister(memory);
    assert_int_equal(gained(LEAT_CUDA_H2D_PINNED).n, 2);
    assert_int_equal(gained(LEAT_CUDA_H2D_PAGEABLE).n, 1);
}

/* Memory pinned by calls that the probe does not see: the driver knows, and is asked rarely. */
static void the_driver_is_asked_once(void **state)
{
    static char memory[1 << 14];
    fake_pinned = memory;
    long asked = fake_asked;
    for (int i = 0; i < 100; i++)
        cudaMemcpyAsync(device, memory, 1, H2D, NULL);
    assert_int_equal(gained(LEAT_CUDA_H2D_PINNED).n, 100);
    assert_int_equal(fake_asked - asked, 1);
    fake_pinned = NULL; /* freed unseen: the old answer holds until something is freed */
    cudaFree(NULL);
    cudaMemcpyAsync(device, memory, 1, H2D, NULL);
    assert_int_equal(gained(LEAT_CUDA_H2D_PAGEABLE).n, 1);
    fake_pinned = memory;
    for (int i = 0; i < 300; i++)
        cudaMemcpyAsync(device, memory, 1, H2D, NULL);
    assert_int_equal(gained(LEAT_CUDA_H2D_PAGEABLE).n, 1 + 255); /* then it is asked again */
    assert_int_equal(gained(LEAT_CUDA_H2D_PINNED).n, 100 + 45);
    assert_int_equal(fake_asked - asked, 3);
}

static void a_copy_without_direction_finds_its_own(void **state)
{
    static char pinned[1 << 13];
    char pageable[16];
    fake_device = device;
    cudaHostRegister(pinned, sizeof pinned, 0);
    cudaMemcpyAsync(device, pinned, 1, DEFAULT, NULL);
    cudaMemcpyAsync(device, pageable, 1, DEFAULT, NULL);
    cudaMemcpyAsync(pageable, device, 1, DEFAULT, NULL);
    cudaMemcpyAsync(device, device, 1, DEFAULT, NULL);
    cudaMemcpyAsync(pageable, pinned, 1, DEFAULT, NULL);
    cudaHostUnregister(pinned);
    assert_int_equal(gained(LEAT_CUDA_H2D_PINNED).n, 1);
    assert_int_equal(gained(LEAT_CUDA_H2D_PAGEABLE).n, 1);
    assert_int_equal(gained(LEAT_CUDA_D2H_PAGEABLE).n, 1);
    assert_int_equal(gained(LEAT_CUDA_D2D).n, 1);
    assert_int_equal(gained(LEAT_CUDA_COPY_OTHER).n, 1);
}

/* More pinned ranges than the table holds: the driver is asked about the rest. */
static void many_ranges_are_kept_in_order(void **state)
{
    enum { RANGES = 1500, BYTES = 64 };
    static char memory[RANGES][BYTES];
    for (int i = 0; i < RANGES; i++) /* 7 and 1500 have no divisor in common */
        cudaHostRegister(memory[i * 7 % RANGES], BYTES, 0);
    for (int i = 0; i < 1000; i++)
        cudaMemcpyAsync(device, memory[i * 7 % RANGES] + BYTES - 1, 1, H2D, NULL);
    assert_int_equal(gained(LEAT_CUDA_H2D_PINNED).n, 1000);
    for (int i = 0; i < RANGES; i++)
        cudaHostUnregister(memory[i]);
    cudaMemcpyAsync(device, memory[7], 1, H2D, NULL);
    assert_int_equal(gained(LEAT_CUDA_H2D_PAGEABLE).n, 1);
}

static void waiting_is_timed(void **state)
{
    for (int i = 0; i < 13; i++)
        cudaStreamSynchronize(NULL); /* sleeps for 1 ms */
    cudaDeviceSynchronize();
    cudaEventSynchronize(NULL);
    assert_int_equal(gained(LEAT_CUDA_SYNC).n, 14);
    assert_int_equal(gained(LEAT_CUDA_EVENT_SYNC).n, 1);
    assert_true(gained(LEAT_CUDA_SYNC).ns >
                12900000); /* 13 ms, by the measured rate of the counter */
}

static void a_call_inside_a_call_is_counted_once(void **state)
{
    fake_nested = 1;
    cudaStreamSynchronize(NULL); /* calls cuStreamSynchronize */
    assert_int_equal(gained(LEAT_CUDA_SYNC).n, 1);
    cuStreamSynchronize(NULL);
    assert_int_equal(gained(LEAT_CUDA_SYNC).n, 2);
    assert_int_equal(count_all(), 2);
}

static pthread_barrier_t all_have_slots;

static void *launch_many(void *count)
{
    cudaDeviceSynchronize(); /* takes a slot; no thread gives one back before the barrier */
    pthread_barrier_wait(&all_have_slots);
    for (long i = 0; i < (long)(intptr_t)count; i++)
        cudaLaunchKernel(NULL, one, one, NULL, 0, NULL);
    return NULL;
}

/* Each round of threads reuses the slots of the round before; threads beyond the slots share the
 * last. */
static void threads_lose_nothing(void **state)
{
    enum { THREADS = 100, ROUNDS = 3, CALLS = 20011 };
    pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&all_have_slots, NULL, THREADS), 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, launch_many, (void *)CALLS), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&all_have_slots);
    assert_int_equal(gained(LEAT_CUDA_LAUNCH).n, THREADS * ROUNDS * CALLS);
    assert_int_equal(gained(LEAT_CUDA_SYNC).n, THREADS * ROUNDS);
}

static void *pin_and_copy(void *unused)
{
    char *memory = malloc(4096);
    for (int i = 0; i < 500; i++) {
        cudaHostRegister(memory, 4096, 0);
        cudaMemcpyAsync(device, memory + 9, 1, H2D, NULL);
        cudaHostUnregister(memory);
    }
    free(memory);
    return NULL;
}

static void threads_may_pin_at_the_same_time(void **state)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pin_and_copy, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(gained(LEAT_CUDA_H2D_PINNED).n, 2000);
}

static void a_forked_child_starts_at_zero(void **state)
{
    cudaDeviceSynchronize();
    pid_t pid = fork();
    if (pid == 0) {
        struct leat_cuda_total totals[LEAT_CUDA_CLASSES_COUNT];
        int right = leat_probe_read(LEAT_CUDA_CLASSES_COUNT, totals) == 0;
        cudaDeviceSynchronize();
        cudaDeviceSynchronize();
        right = right && leat_probe_read(LEAT_CUDA_CLASSES_COUNT, totals) == 1 &&
                totals[LEAT_CUDA_SYNC].n == 2 && totals[LEAT_CUDA_LAUNCH].n == 0;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(gained(LEAT_CUDA_SYNC).n, 1);
}

/* ---- watchers ------------------------------------------------------------------------------- */

static struct leat_cuda_total watched[LEAT_CUDA_CLASSES_COUNT];

static void see(enum leat_cuda_class class, uint64_t ns, uint64_t bytes)
{
    watched[class].n++;
    watched[class].ns += ns;
    watched[class].bytes += bytes;
    cudaDeviceSynchronize(); /* what a watcher calls is part of the call */
}

static void a_watcher_gets_copies_and_waits(void **state)
{
    static char pageable[100];
    leat_probe_watch(see);
    for (int i = 0; i < 5; i++)
        cudaMemcpyAsync(device, pageable, 100, H2D, NULL);
    cudaStreamSynchronize(NULL);
    cudaEventSynchronize(NULL);
    cudaLaunchKernel(NULL, one, one, NULL, 0, NULL); /* not reported: frequent, and no wait */
    cudaMemcpyAsync(device, device, 100, D2D, NULL);
    cudaEventQuery(NULL);
    pid_t pid = fork(); /* the child's watcher would be the parent's */
    if (pid == 0) {
        cudaStreamSynchronize(NULL);
        _exit(watched[LEAT_CUDA_SYNC].n == 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    leat_probe_watch(NULL);
    cudaStreamSynchronize(NULL);
    assert_int_equal(status, 0);
    assert_int_equal(watched[LEAT_CUDA_H2D_PAGEABLE].n, 5);
    assert_int_equal(watched[LEAT_CUDA_H2D_PAGEABLE].bytes, 500);
    assert_true(watched[LEAT_CUDA_SYNC].n == 1 && watched[LEAT_CUDA_SYNC].ns > 0);
    assert_int_equal(watched[LEAT_CUDA_EVENT_SYNC].n, 1);
    assert_int_equal(watched[LEAT_CUDA_LAUNCH].n + watched[LEAT_CUDA_D2D].n, 0);
    assert_int_equal(gained(LEAT_CUDA_SYNC).n, 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(no_totals_without_a_call),
        TEST(the_first_call_runs_the_callback),
        TEST(another_list_of_classes_is_refused),
        TEST(launches_are_counted_and_passed_on),
        TEST(many_calls_are_all_counted_and_some_timed),
        TEST(errors_pass_and_move_no_bytes),
        TEST(copies_are_classified),
        TEST(freed_memory_is_forgotten),
        TEST(the_driver_is_asked_once),
        TEST(a_copy_without_direction_finds_its_own),
        TEST(many_ranges_are_kept_in_order),
        TEST(waiting_is_timed),
        TEST(a_call_inside_a_call_is_counted_once),
        TEST(threads_lose_nothing),
        TEST(threads_may_pin_at_the_same_time),
        TEST(a_forked_child_starts_at_zero),
        TEST(a_watcher_gets_copies_and_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
