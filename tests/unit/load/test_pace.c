/* test_pace.c: how many threads and batches ahead: the decision on invented windows, and a loader
 * whose source sleeps. */
#include "samples.h"

#include "base/cgroup.h"
#include "load/engine.h"
#include "load/pace.h"
#include "load/source.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull

/* ---- invented windows ------------------------------------------------------------------------ */

/* A source and a consumer: a batch takes `work_ms` of a thread's time, `cpu` of it on a core; the
 * rest of the consumer's step takes rest_ms. Threads share a batch, the consumer helps. */
struct world {
    double work_ms, cpu, rest_ms;
    double worth; /* effect of a thread beyond the first: 1 full, 0 none */
};

static struct pace_sample window_of(const struct world *w, int threads)
{
    double hands = 1 + (threads - 1) * w->worth;
    double step = (w->work_ms + w->rest_ms) / (hands + 1);
    step = step > w->rest_ms ? step : w->rest_ms;
    double wait = step - w->rest_ms, made = w->work_ms - wait;
    /* Threads without effect block each other: busy all the same. */
    double busy = wait > 0 ? threads * step : made;
    struct pace_sample s = {.batches = 10};
    s.elapsed_ns = (uint64_t)(10 * step * MS);
    s.wait_ns = (uint64_t)(10 * wait * MS);
    s.busy_ns = (uint64_t)(10 * busy * MS);
    s.cpu_ns = (uint64_t)(10 * busy * w->cpu * MS);
    return s;
}

static int play(struct pace *p, const struct world *w, int windows)
{
    int changes = 0;
    for (int i = 0; i < windows; i++) {
        struct pace_sample s = window_of(w, p->threads);
        changes += pace_decide(p, &s);
    }
    return changes;
}

static void threads_are_added_until_the_consumer_does_not_wait(void **state)
{
    struct pace p;
    struct world w = {.work_ms = 40, .cpu = 0.02, .rest_ms = 10, .worth = 1};
    pace_init(&p, 1, 2, 1, 4, 64);
    play(&p, &w, 100);
    assert_int_equal(p.threads, 4);
    assert_string_equal(pace_text(p.why),
                        "one more: the consumer waited, and every thread was busy");
    assert_int_equal(play(&p, &w, 1000), 0); /* settled */
    assert_true(pace_window(&p) > 400);
}

static void threads_that_compute_leave_a_core(void **state)
{
    struct pace p;
    struct world w = {.work_ms = 400, .cpu = 1, .rest_ms = 10, .worth = 1};
    pace_init(&p, 1, 8, 1, 4, 64);
    play(&p, &w, 200);
    assert_int_equal(p.threads, 7);
    assert_int_equal(p.why, PACE_CORES);
    pace_init(&p, 1, 1.5, 1, 4, 64); /* a quota of one and a half */
    play(&p, &w, 200);
    assert_int_equal(p.threads, 1);
    pace_init(&p, 1, 64, 63, 4, 64);
    play(&p, &w, 200);
    assert_true(p.threads >= 40 && p.threads <= 63);
}

static void changes_that_do_not_help_are_undone(void **state)
{
    struct pace p;
    struct world w = {.work_ms = 40, .cpu = 0.02, .rest_ms = 10, .worth = 0};
    pace_init(&p, 1, 8, 2, 4, 64);
    int changes = play(&p, &w, 1000);
    assert_int_equal(p.threads, 2);
    assert_int_equal(p.why, PACE_BACK);
    assert_true(changes >= 2 && changes <= 14); /* tried again, at growing intervals */
    w.worth = 1;                                /* and when it would help, it comes */
    play(&p, &w, 2000);
    assert_int_equal(p.threads, 4);
}

static void idle_threads_are_removed(void **state)
{
    struct pace p;
    struct world w = {.work_ms = 2, .cpu = 1, .rest_ms = 10, .worth = 1};
    pace_init(&p, 1, 8, 7, 4, 64);
    play(&p, &w, 100);
    assert_int_equal(p.threads, 1);
    assert_int_equal(p.why, PACE_LESS);
    assert_int_equal(play(&p, &w, 1000), 0);
    w.work_ms = 25; /* three are busy for 83 % of the time; two would be too few */
    pace_init(&p, 1, 8, 7, 4, 64);
    play(&p, &w, 1000);
    assert_in_range(p.threads, 3, 5);
    assert_true(play(&p, &w, 1000) <= 2);
}

static void changed_steps_are_adapted_to(void **state)
{
    struct pace p;
    struct world quick = {.work_ms = 40, .cpu = 0.02, .rest_ms = 10, .worth = 1};
    struct world slow = {.work_ms = 40, .cpu = 0.02, .rest_ms = 200, .worth = 1};
    pace_init(&p, 1, 2, 1, 4, 64);
    play(&p, &quick, 300);
    assert_int_equal(p.threads, 4);
    play(&p, &slow, 300);
    assert_int_equal(p.threads, 1);
    play(&p, &quick, 3000);
    assert_int_equal(p.threads, 4);
}

/* Waits of 8 % that halve with every doubling of the batches ahead, or do not change. */
static struct pace_sample burst(const struct pace *p, int bridged)
{
    struct pace_sample s = {.batches = 10, .elapsed_ns = 100 * MS, .busy_ns = 120 * MS};
    s.wait_ns = (bridged ? 32 : 8 * (uint64_t)p->ahead) * MS / (uint64_t)p->ahead;
    return s;
}

static void bursts_are_bridged_by_more_ahead(void **state)
{
    struct pace p;
    pace_init(&p, 1, 8, 3, 4, 12);
    for (int i = 0; i < 50; i++) {
        struct pace_sample s = burst(&p, 1);
        pace_decide(&p, &s);
    }
    assert_int_equal(p.threads, 3);
    assert_int_equal(p.ahead, 12); /* as many as the memory holds */
    assert_int_equal(p.why, PACE_AHEAD);
    pace_init(&p, 1, 8, 3, 4, 64);
    for (int i = 0; i < 50; i++) {
        struct pace_sample s = burst(&p, 1);
        pace_decide(&p, &s);
    }
    assert_int_equal(p.ahead, 16); /* 2 % are left: enough */
}

static void more_ahead_without_effect_is_undone(void **state)
{
    struct pace p;
    pace_init(&p, 1, 8, 3, 4, 64);
    for (int i = 0; i < 500; i++) {
        struct pace_sample s = burst(&p, 0);
        pace_decide(&p, &s);
    }
    assert_int_equal(p.ahead, 4);
    assert_int_equal(p.why, PACE_NO_BURSTS);
    /* A consumer without work waits longer than the threads are idle: no bursts. */
    struct pace_sample always = {.batches = 10, .elapsed_ns = 100 * MS, .wait_ns = 95 * MS};
    always.busy_ns = 70 * MS;
    pace_init(&p, 1, 2, 1, 2, 64);
    for (int i = 0; i < 500; i++)
        assert_false(pace_decide(&p, &always));
}

/* An evaluation or a pause between two windows changes nothing. */
static void one_window_changes_nothing(void **state)
{
    struct pace p;
    struct world w = {.work_ms = 25, .cpu = 1, .rest_ms = 10, .worth = 1};
    struct pace_sample rest = {.batches = 10, .elapsed_ns = 10000 * MS, .busy_ns = 200 * MS};
    struct pace_sample hiccup = {.batches = 10, .elapsed_ns = 200 * MS, .wait_ns = 100 * MS};
    hiccup.busy_ns = 600 * MS;
    pace_init(&p, 1, 8, 3, 4, 64);
    play(&p, &w, 20);
    for (int i = 0; i < 20; i++) {
        assert_false(pace_decide(&p, i % 2 ? &rest : &hiccup));
        assert_int_equal(play(&p, &w, 1), 0);
    }
    assert_int_equal(p.threads, 3);
}

static void empty_windows_and_no_autotune_change_nothing(void **state)
{
    struct pace p;
    struct pace_sample empty = {0};
    struct world w = {.work_ms = 40, .cpu = 0, .rest_ms = 1, .worth = 1};
    pace_init(&p, 1, 8, 3, 4, 64);
    for (int i = 0; i < 20; i++)
        assert_false(pace_decide(&p, &empty));
    pace_init(&p, 0, 8, 3, 4, 64);
    assert_int_equal(play(&p, &w, 100), 0);
    assert_string_equal(pace_text(p.why), "as it was asked for");
}

/* ---- a loader -------------------------------------------------------------------------------- */

static _Atomic uint64_t sample_sleep_ns; /* a test changes it while threads read */
static _Atomic uint64_t sample_cpu_ns;   /* the same, of computing */

static void sleep_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&t, NULL);
}

static void compute_ns(uint64_t ns)
{
    struct timespec t;
    uint64_t from = 0, now;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
        from = from ? from : now;
    } while (now - from < ns);
}

static int read_sleeping(struct leat_source *source, const struct source_request *request,
                         struct source_report *report, struct leat_err *why)
{
    uint64_t each_ns = sample_sleep_ns;
    if (each_ns)
        sleep_ns(each_ns * request->count);
    if (sample_cpu_ns)
        compute_ns(sample_cpu_ns * request->count);
    for (size_t i = 0; i < request->count; i++)
        memcpy(request->places[0] + i * sizeof(int64_t), &request->indices[i], sizeof(int64_t));
    return 0;
}

static void done_sleeping(struct leat_source *source) {}

static const struct source_ops sleeping_ops = {.read = read_sleeping, .done = done_sleeping};

static struct leat_source *sleeping_source(int64_t count)
{
    struct leat_source *source = source_new(sizeof *source, &sleeping_ops);
    int64_t shape[] = {count};
    assert_int_equal(source_add_field(source, "x", LEAT_INT64, 8, 1, shape, "", NULL), 0);
    source->sample_ns = 1e6;
    snprintf(source->text, sizeof source->text, "asleep");
    return source;
}

/* `batches` of them, each followed by a rest; every sample comes once per epoch meanwhile. */
static void take(struct leat_loader *l, int batches, uint64_t rest_ns)
{
    struct leat_batch *batch;
    for (int i = 0; i < batches; i++) {
        int got = leat_loader_next(l, -1, &batch, NULL);
        if (got == 0) { /* the next epoch */
            assert_int_equal(leat_loader_start(l, 0, NULL), 0);
            got = leat_loader_next(l, -1, &batch, NULL);
        }
        assert_int_equal(got, 1);
        assert_int_equal(((const int64_t *)batch->data[0])[0], batch->indices[0]);
        leat_batch_unref(batch);
        sleep_ns(rest_ns);
    }
}

/* Samples of 1 ms and a consumer without work: threads are added, four soon. Then samples that take
 * no time and a slow consumer: one thread remains. Time is not tested; a busy machine needs more
 * batches. */
static void a_loader_gets_the_threads_it_needs(void **state)
{
    struct leat_source *source = sleeping_source(8080);
    struct leat_loader_options options = {.batch_size = 8, .order = LEAT_ORDER_FULL, .threads = 1};
    struct leat_loader_stats stats;
    struct leat_loader *l;
    options.autotune = 1;
    options.no_help = 1; /* so that the threads alone are counted */
    assert_int_equal(leat_loader_new(source, &options, &l, NULL), 0);
    assert_int_equal(leat_loader_start(l, 0, NULL), 0);
    sample_sleep_ns = MS;
    int rounds = 0;
    do {
        take(l, 50, 0);
        leat_loader_stats(l, &stats);
    } while (stats.threads < 4 && ++rounds < 200);
    assert_true(stats.threads >= 4);
    assert_true(stats.pace_changes >= 3);
    sample_sleep_ns = 0;
    for (rounds = 0; stats.threads > 1 && rounds < 200; rounds++) {
        take(l, 50, 2 * MS);
        leat_loader_stats(l, &stats);
    }
    assert_int_equal(stats.threads, 1);
    assert_string_equal(stats.pace, "one less: threads were idle most of the time");
    leat_loader_close(l);
    leat_source_unref(source);
}

/* One core shared with three other programs: the thread has a quarter of it and is runnable all the
 * time. More threads would only take the core from the others. */
static void threads_that_queue_for_a_core_stay_few(void **state)
{
    cpu_set_t before, one;
    pid_t others[3];
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 3; i++)
        if ((others[i] = fork()) == 0)
            for (;;) {
            }
    struct leat_source *source = sleeping_source(8080);
    struct leat_loader_options options = {.batch_size = 8, .threads = 1, .autotune = 1};
    struct leat_loader_stats stats;
    struct leat_loader *l;
    options.no_help = 1;
    sample_cpu_ns = MS / 10;
    assert_int_equal(leat_loader_new(source, &options, &l, NULL), 0);
    assert_int_equal(leat_loader_start(l, 0, NULL), 0);
    take(l, 500, 0);
    leat_loader_stats(l, &stats);
    for (int i = 0; i < 3; i++) {
        kill(others[i], SIGKILL);
        waitpid(others[i], NULL, 0);
    }
    sched_setaffinity(0, sizeof before, &before);
    sample_cpu_ns = 0;
    assert_int_equal(stats.threads, 1);
    leat_loader_close(l);
    leat_source_unref(source);
}

static void an_explicit_thread_count_stays(void **state)
{
    struct leat_source *source = sleeping_source(808);
    struct leat_loader_options options = {.batch_size = 8, .threads = 2};
    struct leat_loader_stats stats;
    struct leat_loader *l;
    sample_sleep_ns = MS / 10;
    assert_int_equal(leat_loader_new(source, &options, &l, NULL), 0);
    assert_int_equal(leat_loader_start(l, 0, NULL), 0);
    take(l, 100, 0);
    leat_loader_stats(l, &stats);
    assert_int_equal(stats.threads, 2);
    assert_int_equal(stats.pace_changes, 0);
    assert_string_equal(stats.pace, "as it was asked for");
    leat_loader_close(l);
    options.threads = 0; /* adapts, until a number is given */
    assert_int_equal(leat_loader_new(source, &options, &l, NULL), 0);
    leat_loader_stats(l, &stats);
    assert_string_equal(stats.pace, "one less than the cores; not adapted yet");
    assert_int_equal(leat_loader_set_threads(l, 3, NULL), 0);
    assert_int_equal(leat_loader_start(l, 0, NULL), 0);
    take(l, 100, 0);
    leat_loader_stats(l, &stats);
    assert_int_equal(stats.threads, 3);
    leat_loader_close(l);
    options.autotune = 2;
    assert_int_equal(leat_loader_new(source, &options, &l, NULL), -LEAT_E_USAGE);
    leat_source_unref(source);
}

/* Whatever this machine is: its cores but one, and a quarter of its memory, as the cgroup has it.
 */
static void the_defaults_heed_the_cgroup(void **state)
{
    struct cgroup_info limits;
    struct leat_source *source = sleeping_source(80);
    struct leat_loader_options options = {.batch_size = 8};
    struct leat_loader_stats stats;
    struct leat_loader *l;
    assert_int_equal(cgroup_read("/", &limits), 0);
    assert_int_equal(leat_loader_new(source, &options, &l, NULL), 0);
    leat_loader_stats(l, &stats);
    int cores = (int)limits.cpus;
    assert_int_equal(stats.threads, cores > 2 ? cores - 1 : 1);
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (limits.memory_limit_bytes >= 0)
        machine = (uint64_t)limits.memory_limit_bytes;
    assert_int_equal(stats.memory_most_bytes, machine / 4);
    leat_loader_close(l);
    leat_source_unref(source);
}

/* With a core each: by default the consumer's core is left free. */
static void a_loader_that_computes_leaves_the_consumers_core(void **state)
{
    struct cgroup_info limits = {.cpus = 1};
    struct leat_source *source = sleeping_source(4000);
    struct leat_loader_options options = {.batch_size = 8, .order = LEAT_ORDER_FULL};
    struct leat_loader_stats stats;
    struct leat_loader *l;
    assert_int_equal(cgroup_read("/", &limits), 0);
    int most = limits.cpus >= 2 ? (int)limits.cpus - 1 : 1;
    sample_cpu_ns = MS / 10;
    assert_int_equal(leat_loader_new(source, &options, &l, NULL), 0);
    assert_int_equal(leat_loader_start(l, 0, NULL), 0);
    for (int i = 0; i < 50; i++) { /* 500 batches */
        take(l, 10, 0);
        leat_loader_stats(l, &stats);
        assert_in_range(stats.threads, 1, most);
    }
    sample_cpu_ns = 0;
    leat_loader_close(l);
    leat_source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_added_until_the_consumer_does_not_wait),
        cmocka_unit_test(threads_that_compute_leave_a_core),
        cmocka_unit_test(changes_that_do_not_help_are_undone),
        cmocka_unit_test(idle_threads_are_removed),
        cmocka_unit_test(changed_steps_are_adapted_to),
        cmocka_unit_test(bursts_are_bridged_by_more_ahead),
        cmocka_unit_test(more_ahead_without_effect_is_undone),
        cmocka_unit_test(one_window_changes_nothing),
        cmocka_unit_test(empty_windows_and_no_autotune_change_nothing),
        cmocka_unit_test(a_loader_gets_the_threads_it_needs),
        cmocka_unit_test(threads_that_queue_for_a_core_stay_few),
        cmocka_unit_test(a_loader_that_computes_leaves_the_consumers_core),
        cmocka_unit_test(an_explicit_thread_count_stays),
        cmocka_unit_test(the_defaults_heed_the_cgroup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
