/* Tests of the device's clock against a fake CUDA (fake_cuda.h), whose stream is empty or has work
 * until a given time. The test sets the time by hand (fake_now_ns), for the probe and for the
 * device. So no stall is a sleep, and each expected time is exact, but for the nanosecond that each
 * reading of the clock takes (SLACK_NS). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "record/probe_abi.h"
#include "probe/gpu_clock.h"
#include "fake_cuda.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STALL_NS = 4000000, STEPS = 6, SLACK_NS = 100000, CREDIT_NS = 500000, COST_SHARE = 800 };

extern void leat_probe_phase(enum leat_clock_phase phase);
extern int leat_probe_clock(uint32_t phases, struct leat_clock_total *ret_totals);

static const struct fake_dim3 one = {1, 1, 1};
static void *const stream = (void *)64;
static struct leat_clock_total before[LEAT_CLOCK_PHASES_COUNT];
static uint64_t stalled_ns;

static void stall(void)
{
    fake_now_ns += STALL_NS;
    stalled_ns += STALL_NS;
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

/* One step that stalls in phase `where`; SYNC: nowhere. */
static void step(enum leat_clock_phase where)
{
#define AT(phase)                                                                                  \
    if (where == LEAT_CLOCK_##phase)                                                               \
    stall()
    leat_probe_phase(LEAT_CLOCK_INPUT);
    AT(INPUT);
    leat_probe_phase(LEAT_CLOCK_FORWARD);
    launch();
    operate_unseen();
    AT(FORWARD);
    operate_unseen();
    leat_probe_phase(LEAT_CLOCK_BACKWARD);
    launch();
    AT(BACKWARD);
    launch();
    leat_probe_phase(LEAT_CLOCK_OTHER);
    leat_probe_phase(LEAT_CLOCK_OPTIMIZER);
    launch();
    AT(OPTIMIZER);
    leat_probe_phase(LEAT_CLOCK_OTHER);
    AT(OTHER);
#undef AT
}

/* Events are read when a step begins; the event that begins it is read with the next one. */
static void read_events(void)
{
    leat_probe_phase(LEAT_CLOCK_INPUT);
    leat_probe_phase(LEAT_CLOCK_INPUT);
}

static void totals(struct leat_clock_total ret_totals[LEAT_CLOCK_PHASES_COUNT])
{
    assert_int_equal(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, ret_totals), 1);
}

/* The first steps are left out; so those that follow are measured. */
static int begin(void **state)
{
    fake_result = 0;
    fake_busy_until_ns = 0;
    fake_event_takes_ns = 0;
    launch();
    for (int i = 0; i < 6; i++) {
        step(LEAT_CLOCK_SYNC);
        fake_now_ns += 20000000;
    }
    read_events();
    if (!leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, before))
        memset(before, 0, sizeof before);
    stalled_ns = 0;
    return 0;
}

static struct leat_clock_total gained_unread(enum leat_clock_phase phase)
{
    struct leat_clock_total now[LEAT_CLOCK_PHASES_COUNT];
    totals(now);
    return (struct leat_clock_total){
        now[phase].n - before[phase].n, now[phase].device_ns - before[phase].device_ns,
        now[phase].idle_ns - before[phase].idle_ns, now[phase].hidden_ns - before[phase].hidden_ns};
}

static struct leat_clock_total gained(enum leat_clock_phase phase)
{
    read_events();
    return gained_unread(phase);
}

/* CUDA gives times as a float of milliseconds: of 4 ms, up to 0.24 ns are lost. */
static void assert_is(uint64_t ns, uint64_t expected_ns)
{
    assert_in_range(ns, expected_ns > STEPS ? expected_ns - STEPS : 0, expected_ns + SLACK_NS);
}

/* In a child of its own, whose clock begins with no totals, no steps and no saved time. */
static int in_child(int (*test)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(test());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- stalls and waits ----------------------------------------------------------------------- */

static void a_stall_is_charged_to_its_phase(void **state)
{
    const enum leat_clock_phase phases[] = {LEAT_CLOCK_INPUT, LEAT_CLOCK_FORWARD,
                                            LEAT_CLOCK_BACKWARD, LEAT_CLOCK_OPTIMIZER,
                                            LEAT_CLOCK_OTHER};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        begin(NULL);
        for (int k = 0; k < STEPS; k++)
            step(phases[i]);
        assert_is(gained(phases[i]).idle_ns, stalled_ns);
    }
}

static void a_wait_behind_work_is_hidden(void **state)
{
    leat_probe_phase(LEAT_CLOCK_FORWARD);
    launch();
    fake_busy_until_ns = fake_now_ns + 200000000;
    for (int k = 0; k < STEPS; k++)
        step(LEAT_CLOCK_INPUT);
    fake_now_ns = fake_busy_until_ns;
    step(LEAT_CLOCK_SYNC);
    struct leat_clock_total input = gained(LEAT_CLOCK_INPUT);
    assert_is(input.idle_ns, 0);
    assert_is(input.hidden_ns, stalled_ns);
}

/* In the first step it is not known how much of the gap the device worked; then the beginning of
 * the gap is known and an event stands there. */
static void work_before_a_gap_is_not_idle(void **state)
{
    for (int k = 0; k < STEPS; k++) {
        leat_probe_phase(LEAT_CLOCK_INPUT);
        leat_probe_phase(LEAT_CLOCK_FORWARD);
        launch();
        fake_busy_until_ns = fake_now_ns + STALL_NS / 2;
        launch();
        stall();
        launch();
    }
    assert_is(gained(LEAT_CLOCK_FORWARD).idle_ns, stalled_ns / 2 + STALL_NS / 2);
}

/* The host waits for a free entry in the queue, and the device has work all the time. */
static void a_gap_behind_work_is_hidden(void **state)
{
    fake_busy_until_ns = fake_now_ns + 10ull * STALL_NS;
    for (int k = 0; k < STEPS; k++) {
        leat_probe_phase(LEAT_CLOCK_INPUT);
        leat_probe_phase(LEAT_CLOCK_FORWARD);
        for (int i = 0; i < 20 + 3 * k; i++) /* never after the same call, so no call is learned */
            launch();
        fake_busy_until_ns += 2ull * STALL_NS; /* the time that these launches take */
        stall();
        launch();
    }
    leat_probe_phase(LEAT_CLOCK_OTHER);
    fake_now_ns = fake_busy_until_ns;
    step(LEAT_CLOCK_SYNC);
    struct leat_clock_total forward = gained(LEAT_CLOCK_FORWARD);
    assert_is(forward.idle_ns, 0);
    assert_int_equal(forward.n, 0);
}

static void a_wait_for_the_device_is_charged_to_synchronisation(void **state)
{
    for (int k = 0; k < STEPS; k++) {
        leat_probe_phase(LEAT_CLOCK_INPUT);
        leat_probe_phase(LEAT_CLOCK_FORWARD);
        launch();
        cudaStreamSynchronize(stream);
        operate_unseen(); /* still the same operation */
        launch();
        stall();
    }
    assert_int_equal(gained(LEAT_CLOCK_SYNC).n, STEPS);
}

/* The phase around a collective continues after it; inside an evaluation none is counted. */
static void a_collective_is_a_cause_of_its_own(void **state)
{
    for (int k = 0; k < STEPS; k++) {
        leat_probe_phase(LEAT_CLOCK_INPUT);
        leat_probe_phase(LEAT_CLOCK_FORWARD);
        launch();
        leat_probe_phase(LEAT_CLOCK_COLLECTIVE);
        stall();
        leat_probe_phase(LEAT_CLOCK_RESUMED);
        launch();
    }
    assert_is(gained(LEAT_CLOCK_COLLECTIVE).idle_ns, stalled_ns);
    uint64_t collective_ns = stalled_ns;
    stalled_ns = 0;
    for (int k = 0; k < STEPS; k++) {
        leat_probe_phase(LEAT_CLOCK_INPUT);
        leat_probe_phase(LEAT_CLOCK_FORWARD);
        leat_probe_phase(LEAT_CLOCK_COLLECTIVE);
        leat_probe_phase(LEAT_CLOCK_RESUMED);
        launch();
        stall();
        launch();
    }
    assert_is(gained(LEAT_CLOCK_FORWARD).idle_ns, stalled_ns);
    leat_probe_phase(LEAT_CLOCK_SKIPPED);
    leat_probe_phase(LEAT_CLOCK_COLLECTIVE);
    stall();
    leat_probe_phase(LEAT_CLOCK_RESUMED);
    assert_is(gained(LEAT_CLOCK_COLLECTIVE).idle_ns, collective_ns);
}

static void a_large_copy_is_charged_to_transfer(void **state)
{
    static char pageable[1 << 20];
    for (int k = 0; k < STEPS; k++) {
        leat_probe_phase(LEAT_CLOCK_INPUT);
        leat_probe_phase(LEAT_CLOCK_FORWARD);
        launch();
        cudaMemcpyAsync(pageable, pageable, sizeof pageable, 1, stream);
        cudaMemcpyAsync(pageable, pageable, 16, 1, stream);
        cudaMemcpyAsync(pageable, pageable, sizeof pageable, 1, (void *)128);
        launch();
        stall();
    }
    assert_int_equal(gained(LEAT_CLOCK_H2D).n, STEPS);
}

/* ---- short pauses are sampled --------------------------------------------------------------- */

enum { LAUNCHES = 24000, PART_NS = 10000 };
static uint64_t pause_ns = 20000;

/* Launches at a distance far below a gap; each keeps the device busy for `busy_ns`. The host asks
 * for the device after each part of a pause. */
static void launch_often(uint64_t busy_ns, int launches_per_step)
{
    for (int k = 0; k < LAUNCHES / launches_per_step; k++) {
        leat_probe_phase(LEAT_CLOCK_INPUT);
        leat_probe_phase(LEAT_CLOCK_FORWARD);
        for (int i = 0; i < launches_per_step; i++) {
            launch();
            fake_busy_until_ns = fake_now_ns + busy_ns;
            for (uint64_t ns = 0; ns < pause_ns; ns += PART_NS) {
                fake_now_ns += PART_NS;
                operate_unseen();
            }
        }
        if (busy_ns == 0)
            cudaStreamSynchronize(stream);
    }
    fake_now_ns += busy_ns;
}

static uint64_t child_busy_ns;
static int child_launches_per_step;

static int idle_percent_in_child(void)
{
    begin(NULL);
    launch_often(child_busy_ns, child_launches_per_step);
    struct leat_clock_total between = gained(LEAT_CLOCK_LAUNCH);
    struct leat_clock_total forward = gained(LEAT_CLOCK_FORWARD);
    if (between.n < 32 || between.idle_ns != between.device_ns)
        return 101;
    return (int)(100 * between.idle_ns / (between.device_ns + forward.device_ns - forward.idle_ns));
}

/* The sampled share of idle time between launches, in percent; more than 100 when too few samples
 * were taken. */
static int idle_percent(uint64_t busy_ns, int launches_per_step)
{
    child_busy_ns = busy_ns;
    child_launches_per_step = launches_per_step;
    return in_child(idle_percent_in_child);
}

static void short_pauses_are_sampled(void **state)
{
    assert_in_range(idle_percent(0, 200), 90, 100);
    pause_ns = 200000;
    int percent = idle_percent(pause_ns / 2, 200);
    pause_ns = 20000;
    assert_in_range(percent, 40, 60);
}

static void a_busy_device_is_not_idle_between_launches(void **state)
{
    assert_int_equal(idle_percent(50000000, 200), 0);
}

/* In phases of many beats, most questions behind a launch are ignored; samples are still taken. */
static void short_pauses_of_many_launches_are_sampled(void **state)
{
    assert_in_range(idle_percent(0, 3000), 90, 100);
    assert_int_equal(idle_percent(50000000, 3000), 0);
}

static void a_stream_seen_empty_late_is_asked_twice(void **state)
{
    fake_reports_late = 1;
    int percent = idle_percent(0, 200);
    fake_reports_late = 0;
    assert_in_range(percent, 90, 100);
}

/* The host sees the end of a kernel after the next launch. */
static void the_delay_of_seeing_an_end_is_measured(void **state)
{
    fake_report_delay_ns = 16000;
    pause_ns = 10000;
    int percent = idle_percent(0, 3000);
    fake_report_delay_ns = 0;
    pause_ns = 20000;
    assert_in_range(percent, 80, 100);
}

/* ---- when the clock is off ------------------------------------------------------------------ */

/* Saves time for the clock's own cost. */
static void pay(void)
{
    fake_now_ns += CREDIT_NS * (uint64_t)COST_SHARE;
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

static void an_evaluation_is_left_out(void **state)
{
    leat_probe_phase(LEAT_CLOCK_SKIPPED);
    launch();
    stall();
    launch();
    uint64_t all_ns = 0;
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++)
        all_ns += gained((enum leat_clock_phase)k).idle_ns;
    assert_is(all_ns, 0);
}

/* ---- the clock's own cost ------------------------------------------------------------------- */

/* A step of 300 us has at least six events of 2 us each: 32 times the share that may be spent. */
static int costly_steps(void)
{
    enum { MANY = 2000, STEP_NS = 300000, EVENT_NS = 2000 };
    begin(NULL);
    for (int k = 0; k < 8; k++) /* the first steps are measured at any cost */
        step(LEAT_CLOCK_SYNC);
    fake_event_takes_ns = EVENT_NS;
    long events = fake_events;
    for (int k = 0; k < MANY; k++) {
        step(LEAT_CLOCK_SYNC);
        fake_now_ns += STEP_NS;
    }
    uint64_t spent_ns = (uint64_t)(fake_events - events) * EVENT_NS;
    uint64_t may_spend_ns = (uint64_t)MANY * STEP_NS / COST_SHARE;
    return spent_ns < may_spend_ns / 2 ? 1 : spent_ns > may_spend_ns + 2 * CREDIT_NS ? 2 : 0;
}

static void a_costly_clock_leaves_steps_out(void **state)
{
    assert_int_equal(in_child(costly_steps), 0);
}

static int child_questions_per_launch;

/* The events in steps of very many questions, with a launch after every so many. */
static int events_of_questions(void)
{
    enum { FIRST = 8, MANY = 400, BEATS = 4000, WORK_NS = 200000, MOST = 255 };
    int device;
    begin(NULL);
    for (int k = 0; k < FIRST; k++)
        step(LEAT_CLOCK_SYNC);
    long events = fake_events;
    for (int k = 0; k < MANY; k++) {
        step(LEAT_CLOCK_SYNC);
        leat_probe_phase(LEAT_CLOCK_FORWARD);
        for (int i = 1; i <= BEATS; i++) {
            cudaGetDevice(&device);
            if (i % child_questions_per_launch == 0)
                launch();
        }
        fake_now_ns += WORK_NS;
    }
    events = fake_events - events;
    return (int)(events < MOST ? events : MOST);
}

/* The probe's own time in a beat counts as cost, though no single one is measured. Questions behind
 * launches are ignored there, so such steps are measured more often. */
static void steps_of_many_beats_are_rarely_measured(void **state)
{
    child_questions_per_launch = INT32_MAX;
    int questions = in_child(events_of_questions);
    child_questions_per_launch = 10;
    int launches = in_child(events_of_questions);
    assert_in_range(questions, 1, 60);
    assert_true(launches > questions);
}

/* A run of a few steps is measured whatever an event costs; a long run then leaves steps out. */
static int events_of_first_steps(void)
{
    enum { FIRST = 10, MANY = 100, EVENT_NS = 100000, LEAST_EVENTS = 8 * 3 };
    fake_event_takes_ns = EVENT_NS;
    launch();
    long none = fake_events;
    for (int k = 0; k < FIRST; k++)
        step(LEAT_CLOCK_SYNC);
    long first = fake_events;
    for (int k = 0; k < MANY; k++)
        step(LEAT_CLOCK_SYNC);
    return first - none < LEAST_EVENTS ? 1 : fake_events - first >= MANY ? 2 : 0;
}

static void the_first_steps_are_measured_at_any_cost(void **state)
{
    assert_int_equal(in_child(events_of_first_steps), 0);
}

/* The time that a long pause would allow is not spent on the steps that follow it. */
static void a_pause_saves_time_for_few_steps(void **state)
{
    enum { QUICK = 150, EVENT_NS = 10000, EVENTS_PER_STEP = 6 };
    fake_now_ns += 1000000000;
    step(LEAT_CLOCK_SYNC);
    fake_event_takes_ns = EVENT_NS;
    long events = fake_events;
    for (int k = 0; k < QUICK; k++)
        step(LEAT_CLOCK_SYNC);
    fake_event_takes_ns = 0;
    assert_in_range(fake_events - events, CREDIT_NS / EVENT_NS / 2,
                    CREDIT_NS / EVENT_NS + 2 * EVENTS_PER_STEP);
}

/* ---- the ends of steps and processes --------------------------------------------------------- */

static void events_of_the_last_step_are_read(void **state)
{
    pay();
    step(LEAT_CLOCK_OPTIMIZER);
    assert_is(gained_unread(LEAT_CLOCK_OPTIMIZER).idle_ns, stalled_ns);
}

/* What follows the optimizer belongs to a step only when another step follows. The recorder reads
 * the totals when a batch has arrived: then they have all of the step before it, and not sooner. */
static void a_step_is_complete_when_the_next_has_its_batch(void **state)
{
    step(LEAT_CLOCK_OTHER);
    launch();
    assert_is(gained_unread(LEAT_CLOCK_OTHER).idle_ns, 0);
    leat_probe_phase(LEAT_CLOCK_INPUT);
    leat_probe_phase(LEAT_CLOCK_FORWARD);
    assert_is(gained_unread(LEAT_CLOCK_OTHER).idle_ns, stalled_ns);
}

/* A program takes time to end after its training, and still calls CUDA. */
static void what_follows_the_last_step_is_not_read(void **state)
{
    step(LEAT_CLOCK_SYNC);
    leat_probe_phase(LEAT_CLOCK_INPUT); /* there is no batch left */
    stall();
    leat_probe_phase(LEAT_CLOCK_OTHER);
    launch();
    stall();
    launch();
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++)
        assert_is(gained_unread((enum leat_clock_phase)k).idle_ns, 0);
}

static int has_totals(void)
{
    struct leat_clock_total any[LEAT_CLOCK_PHASES_COUNT];
    return leat_probe_clock(LEAT_CLOCK_PHASES_COUNT, any);
}

static void a_forked_child_starts_at_zero(void **state)
{
    struct leat_clock_total any[LEAT_CLOCK_PHASES_COUNT];
    assert_int_equal(has_totals(), 1);
    assert_int_equal(in_child(has_totals), 0);
    assert_int_equal(leat_probe_clock(LEAT_CLOCK_PHASES_COUNT + 1, any), 0);
}

int main(void)
{
    fake_now_ns = 1000000000;
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(a_stall_is_charged_to_its_phase),
        TEST(a_wait_behind_work_is_hidden),
        TEST(work_before_a_gap_is_not_idle),
        TEST(a_gap_behind_work_is_hidden),
        TEST(a_wait_for_the_device_is_charged_to_synchronisation),
        TEST(a_large_copy_is_charged_to_transfer),
        TEST(a_collective_is_a_cause_of_its_own),
        TEST(short_pauses_are_sampled),
        TEST(a_stream_seen_empty_late_is_asked_twice),
        TEST(the_delay_of_seeing_an_end_is_measured),
        TEST(a_busy_device_is_not_idle_between_launches),
        TEST(short_pauses_of_many_launches_are_sampled),
        TEST(nothing_is_recorded_into_a_capture),
        TEST(an_evaluation_is_left_out),
        TEST(a_forked_child_starts_at_zero),
        TEST(a_costly_clock_leaves_steps_out),
        TEST(steps_of_many_beats_are_rarely_measured),
        TEST(the_first_steps_are_measured_at_any_cost),
        TEST(a_pause_saves_time_for_few_steps),
        TEST(events_of_the_last_step_are_read),
        TEST(a_step_is_complete_when_the_next_has_its_batch),
        TEST(what_follows_the_last_step_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
