/* Tests of the device's clock against a device that is not one (fake_cuda.h): its stream is empty,
 * or busy until a given moment. Stalls are sleeps, which are never too short; the device's clock is
 * the host's, so idle time is compared with what the test itself has seen pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "leat/recorder.h"
#include "probe/gpu_clock.h"
#include "fake_cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STALL_MS = 4, STEPS = 6 };

extern void leat_probe_mark(enum leat_clock_phase phase);
extern int leat_probe_clock(uint32_t phases, struct leat_clock_total *ret_totals);

static const struct fake_dim3 one = {1, 1, 1};
static void *const stream = (void *)64;
static struct leat_clock_total before[LEAT_CLOCK_PHASES_COUNT];
static uint64_t stalled_ns;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void stall(void)
{
    struct timespec pause = {0, STALL_MS * 1000000};
    uint64_t t0 = now_ns();
    nanosleep(&pause, NULL);
    stalled_ns += now_ns() - t0;
}

static void launch(void)
{
    cudaLaunchKernel(NULL, one, one, NULL, 0, stream);
}

/* An operation whose kernel the probe does not see. */
static void operate_unseen(void)
{
    int device;
    cudaGetDevice(&device);
    cudaGetDevice(&device);
}

/* One step that stalls where it is told to. */
static void step(enum leat_clock_phase where)
{
#define AT(phase)                                                                                  \
    if (where == LEAT_CLOCK_##phase)                                                               \
    stall()
    leat_probe_mark(LEAT_CLOCK_INPUT);
    AT(INPUT);
    leat_probe_mark(LEAT_CLOCK_FORWARD);
    launch();
    operate_unseen();
    AT(FORWARD);
    operate_unseen();
    leat_probe_mark(LEAT_CLOCK_BACKWARD);
    launch();
    AT(BACKWARD);
    launch();
    leat_probe_mark(LEAT_CLOCK_OTHER);
    leat_probe_mark(LEAT_CLOCK_OPTIMIZER);
    launch();
    AT(OPTIMIZER);
    leat_probe_mark(LEAT_CLOCK_OTHER);
    AT(OTHER);
#undef AT
}

/* Events are read when a step begins; the one that begins it, with the next. */
static void read_what_passed(void)
{
    leat_probe_mark(LEAT_CLOCK_INPUT);
    leat_probe_mark(LEAT_CLOCK_INPUT);
}

/* Steps that cost the clock next to nothing, so that it may follow those that come. */
static int begin(void **state)
{
    struct timespec pause = {0, 20000000};
    fake_result = 0;
    fake_busy_until_ns = 0;
    launch();
    for (int i = 0; i < 6; i++) {
        step(LEAT_CLOCK_SYNC);
        nanosleep(&pause, NULL);
    }
    read_what_passed();
    if (!leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, before))
        memset(before, 0, sizeof before);
    stalled_ns = 0;
    return 0;
}

static struct leat_clock_total gained(enum leat_clock_phase phase)
{
    struct leat_clock_total now[LEAT_CLOCK_PHASES_COUNT];
    read_what_passed();
    assert_int_equal(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, now), 1);
    return (struct leat_clock_total){
        now[phase].n - before[phase].n, now[phase].device_ns - before[phase].device_ns,
        now[phase].idle_ns - before[phase].idle_ns, now[phase].hidden_ns - before[phase].hidden_ns};
}

/* A float has 24 bits: of milliseconds, some parts in 10 million are lost. */
static void assert_is_stall(uint64_t idle_ns)
{
    assert_true(idle_ns >= stalled_ns - stalled_ns / 100000);
    assert_true(idle_ns < 2 * stalled_ns);
}

static void a_stall_is_charged_to_its_phase(void **state)
{
    const enum leat_clock_phase phases[] = {LEAT_CLOCK_INPUT, LEAT_CLOCK_FORWARD,
                                            LEAT_CLOCK_BACKWARD, LEAT_CLOCK_OPTIMIZER,
                                            LEAT_CLOCK_OTHER};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        begin(NULL);
        for (int k = 0; k < STEPS; k++)
            step(phases[i]);
        assert_is_stall(gained(phases[i]).idle_ns);
    }
}

static void a_wait_behind_work_is_hidden(void **state)
{
    leat_probe_mark(LEAT_CLOCK_FORWARD);
    launch();
    fake_busy_until_ns = now_ns() + 200000000;
    for (int k = 0; k < STEPS; k++)
        step(LEAT_CLOCK_INPUT);
    while (now_ns() < fake_busy_until_ns)
        stall();
    step(LEAT_CLOCK_SYNC);
    struct leat_clock_total input = gained(LEAT_CLOCK_INPUT);
    assert_true(input.idle_ns < 1000000);
    assert_true(input.hidden_ns >= STEPS * STALL_MS * 1000000ull);
}

/* What a gap holds besides is not known at first; it is when its beginning has been learned. */
static void work_before_a_gap_is_no_idle_time(void **state)
{
    for (int k = 0; k < STEPS; k++) {
        leat_probe_mark(LEAT_CLOCK_INPUT);
        leat_probe_mark(LEAT_CLOCK_FORWARD);
        launch();
        fake_busy_until_ns = now_ns() + STALL_MS * 1000000ull / 2;
        launch();
        stall();
        launch();
    }
    uint64_t idle_ns = gained(LEAT_CLOCK_FORWARD).idle_ns;
    assert_true(idle_ns < stalled_ns * 3 / 4 + STALL_MS * 1000000ull);
    assert_true(idle_ns > stalled_ns / 4);
}

/* The host is far ahead: it has stopped, say until there is room in the queue, and the device not.
 */
static void a_gap_behind_work_is_hidden(void **state)
{
    fake_busy_until_ns = now_ns() + 10 * STALL_MS * 1000000ull;
    for (int k = 0; k < STEPS; k++) {
        leat_probe_mark(LEAT_CLOCK_INPUT);
        leat_probe_mark(LEAT_CLOCK_FORWARD);
        for (int i = 0; i < 20 + 3 * k; i++) /* never at the same place, so that none is learned */
            launch();
        fake_busy_until_ns += 2 * STALL_MS * 1000000ull; /* what these have to do */
        stall();
        launch();
    }
    uint64_t stalls_ns = stalled_ns;
    leat_probe_mark(LEAT_CLOCK_OTHER);
    while (now_ns() < fake_busy_until_ns)
        stall();
    step(LEAT_CLOCK_SYNC);
    struct leat_clock_total forward = gained(LEAT_CLOCK_FORWARD);
    assert_true(forward.idle_ns < 1000000);
    assert_true(forward.hidden_ns >= stalls_ns / 2);
}

static void work_on_the_host(uint64_t ns)
{
    for (uint64_t t0 = now_ns(); now_ns() - t0 < ns;)
        ;
}

static uint64_t pause_ns = 20000;

/* Launches that follow each other far more closely than a gap; each keeps the device busy so long.
 */
static void launch_often(uint64_t busy_ns, int launches)
{
    const int all = (int)(480000000 / pause_ns);
    for (int k = 0; k < all / launches; k++) {
        leat_probe_mark(LEAT_CLOCK_INPUT);
        leat_probe_mark(LEAT_CLOCK_FORWARD);
        for (int i = 0; i < launches; i++) {
            launch();
            fake_busy_until_ns = now_ns() + busy_ns;
            work_on_the_host(pause_ns);
            operate_unseen();
        }
        if (busy_ns == 0)
            cudaStreamSynchronize(stream);
    }
    work_on_the_host(busy_ns);
}

/* The share of idle time between launches, in time of which events tell nothing, by a clock that
 * begins at nothing, as it does in a child; in percent, or more than 100 when too few moments were
 * asked for. */
static int idle_percent_of(uint64_t busy_ns, int launches)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        begin(NULL);
        launch_often(busy_ns, launches);
        struct leat_clock_total between = gained(LEAT_CLOCK_LAUNCH);
        struct leat_clock_total forward = gained(LEAT_CLOCK_FORWARD);
        if (between.n < 32 || between.idle_ns != between.device_ns)
            _exit(101);
        _exit((int)(100 * between.idle_ns /
                    (between.device_ns + forward.device_ns - forward.idle_ns)));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int idle_percent(uint64_t busy_ns)
{
    return idle_percent_of(busy_ns, 200);
}

static void short_pauses_are_sampled(void **state)
{
    assert_in_range(idle_percent(0), 50, 100);
}

static void a_busy_device_is_not_idle_between_launches(void **state)
{
    assert_in_range(idle_percent(50000000), 0, 25);
}

/* Where questions behind a launch are not heard, moments still are. */
static void short_pauses_of_many_launches_are_sampled(void **state)
{
    assert_in_range(idle_percent_of(0, 3000), 50, 100);
    assert_in_range(idle_percent_of(50000000, 3000), 0, 25);
}

static void what_is_seen_late_is_asked_for_twice(void **state)
{
    fake_seen_late = 1;
    int percent = idle_percent(0);
    fake_seen_late = 0;
    assert_in_range(percent, 50, 100);
}

/* The host learns of the end of a kernel when the next one is launched already. */
static void how_late_it_is_seen_is_measured(void **state)
{
    fake_dark_ns = 16000;
    pause_ns = 10000;
    int percent = idle_percent_of(0, 3000);
    fake_dark_ns = 0;
    pause_ns = 20000;
    assert_in_range(percent, 40, 100);
}

static void a_wait_for_the_device_is_the_waits(void **state)
{
    for (int k = 0; k < STEPS; k++) {
        leat_probe_mark(LEAT_CLOCK_INPUT);
        leat_probe_mark(LEAT_CLOCK_FORWARD);
        launch();
        cudaStreamSynchronize(stream);
        operate_unseen(); /* still the same operation */
        launch();
        stall();
    }
    assert_int_equal(gained(LEAT_CLOCK_SYNC).n, STEPS);
}

/* Whatever it is inside of goes on behind it; an evaluation is left out with all that is in it. */
static void a_collective_is_a_cause_of_its_own(void **state)
{
    for (int k = 0; k < STEPS; k++) {
        leat_probe_mark(LEAT_CLOCK_INPUT);
        leat_probe_mark(LEAT_CLOCK_FORWARD);
        launch();
        leat_probe_mark(LEAT_CLOCK_COLLECTIVE);
        stall();
        leat_probe_mark(LEAT_CLOCK_RESUMED);
        launch();
    }
    assert_is_stall(gained(LEAT_CLOCK_COLLECTIVE).idle_ns);
    uint64_t collective_ns = stalled_ns;
    stalled_ns = 0;
    for (int k = 0; k < STEPS; k++) {
        leat_probe_mark(LEAT_CLOCK_INPUT);
        leat_probe_mark(LEAT_CLOCK_FORWARD);
        leat_probe_mark(LEAT_CLOCK_COLLECTIVE);
        leat_probe_mark(LEAT_CLOCK_RESUMED);
        launch();
        stall();
        launch();
    }
    assert_is_stall(gained(LEAT_CLOCK_FORWARD).idle_ns);
    leat_probe_mark(LEAT_CLOCK_SKIPPED);
    leat_probe_mark(LEAT_CLOCK_COLLECTIVE);
    stall();
    leat_probe_mark(LEAT_CLOCK_RESUMED);
    assert_true(gained(LEAT_CLOCK_COLLECTIVE).idle_ns < 2 * collective_ns);
}

static void a_large_copy_is_the_transfers(void **state)
{
    static char pageable[1 << 20];
    for (int k = 0; k < STEPS; k++) {
        leat_probe_mark(LEAT_CLOCK_INPUT);
        leat_probe_mark(LEAT_CLOCK_FORWARD);
        launch();
        cudaMemcpyAsync(pageable, pageable, sizeof pageable, 1, stream);
        cudaMemcpyAsync(pageable, pageable, 16, 1, stream);
        cudaMemcpyAsync(pageable, pageable, sizeof pageable, 1, (void *)128);
        launch();
        stall();
    }
    assert_int_equal(gained(LEAT_CLOCK_H2D).n, STEPS);
}

/* For what the clock has spent. */
static void pay(void)
{
    struct timespec pause = {0, 500000000};
    nanosleep(&pause, NULL);
}

static void nothing_is_recorded_into_a_capture(void **state)
{
    void *graph;
    cudaStreamBeginCapture(stream, 0);
    long events = fake_events, queries = fake_queries;
    launch_often(0, 200);
    assert_int_equal(fake_events, events);
    assert_int_equal(fake_queries, queries);
    cudaStreamEndCapture(stream, &graph);
    pay();
    step(LEAT_CLOCK_FORWARD);
    assert_true(fake_events > events);
    assert_ptr_equal(fake_event_stream, stream);
}

/* Where this program's own entry for the question leads. */
static __attribute__((noinline)) const void *asks(void)
{
    int (*volatile entry)(int *) = cudaGetDevice;
    return (const void *)entry;
}

static void questions_go_past_a_clock_that_is_off(void **state)
{
    const void *probe = dlsym(RTLD_DEFAULT, "cudaGetDevice");
    void *library = dlopen("libcudart.so.99", RTLD_LAZY | RTLD_NOLOAD);
    const void *cuda = dlsym(library, "cudaGetDevice");
    assert_non_null(cuda);
    assert_ptr_not_equal(cuda, probe);
    leat_probe_mark(LEAT_CLOCK_SKIPPED);
    assert_ptr_equal(asks(), cuda);
    pay();
    step(LEAT_CLOCK_SYNC);
    leat_probe_mark(LEAT_CLOCK_INPUT);
    assert_ptr_equal(asks(), probe);
    leat_probe_mark(LEAT_CLOCK_SKIPPED);
    assert_ptr_equal(asks(), cuda);
    operate_unseen();
    pid_t pid = fork();
    if (pid == 0) {
        operate_unseen();
        _exit(asks() != cuda);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    dlclose(library);
}

static void an_evaluation_is_left_out(void **state)
{
    leat_probe_mark(LEAT_CLOCK_SKIPPED);
    launch();
    stall();
    launch();
    uint64_t all = 0;
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++)
        all += gained((enum leat_clock_phase)k).idle_ns;
    assert_true(all < stalled_ns);
}

/* In a child, whose clock has no time saved up. */
static void a_costly_clock_leaves_steps_out(void **state)
{
    enum { MANY = 100000, EVENTS_A_STEP = 6 };
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        begin(NULL);
        long events = fake_events;
        for (int k = 0; k < MANY; k++)
            step(LEAT_CLOCK_SYNC);
        _exit(fake_events - events >= MANY * EVENTS_A_STEP / 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* How many events are put in steps of very many questions, with a launch behind so many each. */
static int events_of(int questions)
{
    enum { FIRST = 8, MANY = 1000, BEATS = 10000, WORK_NS = 300000, MOST = 255 };
    int status, device;
    pid_t pid = fork();
    if (pid == 0) {
        begin(NULL);
        for (int k = 0; k < FIRST; k++) /* are followed at any cost */
            step(LEAT_CLOCK_SYNC);
        long events = fake_events;
        for (int k = 0; k < MANY; k++) {
            step(LEAT_CLOCK_SYNC);
            leat_probe_mark(LEAT_CLOCK_FORWARD);
            for (int i = 1; i <= BEATS; i++) {
                cudaGetDevice(&device);
                if (i % questions == 0)
                    launch();
            }
            work_on_the_host(WORK_NS);
        }
        events = fake_events - events;
        _exit((int)(events < MOST ? events : MOST));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Beats are its own time, too, though none of them is measured. Questions behind launches are no
 * beats, so such steps are followed more often. */
static void a_step_of_many_beats_is_seldom_followed(void **state)
{
    if (GPU_CLOCK_SLOWED > 1)
        skip(); /* there the clock may spend as much as it likes */
    int questions = events_of(INT_MAX), launches = events_of(10);
    assert_in_range(questions, 1, 60);
    assert_true(launches > questions);
}

/* A run of a few steps has a clock, too, whatever an event costs there; a long one pays for it. */
static void the_first_steps_are_followed_at_any_cost(void **state)
{
    enum { FIRST = 10, MANY = 100, EVENT_NS = 100000, LEAST_EVENTS = 8 * 3 };
    int status;
    if (GPU_CLOCK_SLOWED > 1)
        skip();
    pid_t pid = fork();
    if (pid == 0) {
        fake_event_takes_ns = EVENT_NS;
        launch();
        long none = fake_events;
        for (int k = 0; k < FIRST; k++)
            step(LEAT_CLOCK_SYNC);
        long first = fake_events;
        for (int k = 0; k < MANY; k++)
            step(LEAT_CLOCK_SYNC);
        int seldom = fake_events - first < MANY;
        _exit(first - none < LEAST_EVENTS ? 1 : seldom ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* What a pause would pay for is not spent on the steps that come after it. */
static void a_pause_pays_for_few_steps(void **state)
{
    enum { QUICK = 150, LEAST_EVENT_NS = 10000, CREDIT_NS = 500000 * GPU_CLOCK_SLOWED };
    struct timespec pause = {1, 0};
    nanosleep(&pause, NULL);
    step(LEAT_CLOCK_SYNC);
    fake_event_takes_ns = LEAST_EVENT_NS;
    long events = fake_events;
    for (int k = 0; k < QUICK; k++)
        step(LEAT_CLOCK_SYNC);
    fake_event_takes_ns = 0;
    assert_in_range(fake_events - events, 1, 2 * CREDIT_NS / LEAST_EVENT_NS);
}

/* The process ends, and no step begins that would read them. */
static void events_of_the_last_step_are_read(void **state)
{
    struct leat_clock_total now[LEAT_CLOCK_PHASES_COUNT];
    pay();
    step(LEAT_CLOCK_OPTIMIZER);
    assert_int_equal(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, now), 1);
    assert_is_stall(now[LEAT_CLOCK_OPTIMIZER].idle_ns - before[LEAT_CLOCK_OPTIMIZER].idle_ns);
}

static uint64_t other_ns_told(void)
{
    struct leat_clock_total now[LEAT_CLOCK_PHASES_COUNT];
    assert_int_equal(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, now), 1);
    return now[LEAT_CLOCK_OTHER].idle_ns - before[LEAT_CLOCK_OTHER].idle_ns;
}

/* What follows the optimizer is of a step only where another step comes: so whoever reads while a
 * batch is there, as the recorder does, has all of the step before, and no step has it sooner. */
static void a_step_is_told_when_the_next_has_its_batch(void **state)
{
    step(LEAT_CLOCK_OTHER);
    launch();
    assert_true(other_ns_told() < stalled_ns / 4);
    leat_probe_mark(LEAT_CLOCK_INPUT);
    leat_probe_mark(LEAT_CLOCK_FORWARD);
    assert_is_stall(other_ns_told());
}

/* A program that has trained takes its time to end, and still calls CUDA. */
static void what_comes_after_the_last_step_is_not_read(void **state)
{
    struct leat_clock_total now[LEAT_CLOCK_PHASES_COUNT];
    step(LEAT_CLOCK_SYNC);
    leat_probe_mark(LEAT_CLOCK_INPUT); /* there is no batch left */
    stall();
    leat_probe_mark(LEAT_CLOCK_OTHER);
    launch();
    stall();
    launch();
    assert_int_equal(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, now), 1);
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++)
        assert_true(now[k].idle_ns - before[k].idle_ns < stalled_ns / 4);
}

static void a_forked_child_begins_at_nothing(void **state)
{
    struct leat_clock_total totals[LEAT_CLOCK_PHASES_COUNT];
    pid_t pid = fork();
    if (pid == 0)
        _exit(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, totals));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, totals), 1);
    assert_int_equal(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT + 1, totals), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(a_stall_is_charged_to_its_phase),
        TEST(a_wait_behind_work_is_hidden),
        TEST(work_before_a_gap_is_no_idle_time),
        TEST(a_gap_behind_work_is_hidden),
        TEST(a_wait_for_the_device_is_the_waits),
        TEST(a_large_copy_is_the_transfers),
        TEST(a_collective_is_a_cause_of_its_own),
        TEST(short_pauses_are_sampled),
        TEST(what_is_seen_late_is_asked_for_twice),
        TEST(how_late_it_is_seen_is_measured),
        TEST(a_busy_device_is_not_idle_between_launches),
        TEST(short_pauses_of_many_launches_are_sampled),
        TEST(nothing_is_recorded_into_a_capture),
        TEST(questions_go_past_a_clock_that_is_off),
        TEST(an_evaluation_is_left_out),
        TEST(a_forked_child_begins_at_nothing),
        TEST(a_costly_clock_leaves_steps_out),
        TEST(a_step_of_many_beats_is_seldom_followed),
        TEST(the_first_steps_are_followed_at_any_cost),
        TEST(a_pause_pays_for_few_steps),
        TEST(events_of_the_last_step_are_read),
        TEST(a_step_is_told_when_the_next_has_its_batch),
        TEST(what_comes_after_the_last_step_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
