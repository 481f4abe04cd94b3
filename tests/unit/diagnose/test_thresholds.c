/* test_thresholds.c: the thresholds of verdicts.md at their exact edges, on facts made by hand: the
 * value that just reaches a threshold fires, the one just below does not. Times are whole
 * milliseconds, so that shares are exact. */
#include "unit/diagnose/golden_testing.h"

#include "base/mem.h"
#include "diagnose/rule.h"

#include <leat/recorder.h>

#include <math.h>

#define MOST_STEPS 2000

struct made {
    struct facts facts;
    struct rank_facts ranks[8];
    double phase[8][PHASES][MOST_STEPS], wall[8][MOST_STEPS], end[8][MOST_STEPS],
        weight[8][MOST_STEPS];
    int64_t step[8][MOST_STEPS];
    uint32_t flags[8][MOST_STEPS];
};
static struct made m;

static void sum_up(int rank)
{
    struct rank_facts *r = &m.ranks[rank];
    r->kept_ms = 0;
    for (size_t i = 0; i < r->count; i++) {
        m.wall[rank][i] = 0;
        for (int p = 0; p < PHASES; p++)
            m.wall[rank][i] += m.phase[rank][p][i];
        r->kept_ms += m.wall[rank][i];
        m.end[rank][i] = r->kept_ms;
    }
}

/* `ranks` ranks of `steps` steps, each with these phases. */
static void make(int ranks, size_t steps, const double phases[PHASES])
{
    memset(&m, 0, sizeof m);
    m.facts = (struct facts){.run_name = "",
                             .command = "",
                             .started_at = "",
                             .node = "",
                             .leat = "",
                             .ended = "completed",
                             .python = "3",
                             .torch = "2",
                             .exit_status = 0,
                             .signal = -1,
                             .cpus = 4,
                             .ranks = m.ranks,
                             .rank_count = (size_t)ranks,
                             .world_size = ranks,
                             .training = 1,
                             .duration_ms = 1000,
                             .memory_limit_bytes = -1};
    for (int r = 0; r < ranks; r++) {
        m.ranks[r] = (struct rank_facts){.rank = r,
                                         .pid = 100 + r,
                                         .steps = (int64_t)steps,
                                         .count = steps,
                                         .kept = (int64_t)steps,
                                         .step = m.step[r],
                                         .end_ms = m.end[r],
                                         .wall_ms = m.wall[r],
                                         .weight = m.weight[r],
                                         .flags = m.flags[r],
                                         .samples = -1,
                                         .micro_steps = (int64_t)steps,
                                         .signals = LEAT_SIGNAL_FETCH};
        for (size_t i = 0; i < steps; i++) {
            m.step[r][i] = (int64_t)i;
            m.weight[r][i] = 1;
            for (int p = 0; p < PHASES; p++)
                m.phase[r][p][i] = phases[p];
        }
        for (int p = 0; p < PHASES; p++)
            m.ranks[r].phase_ms[p] = m.phase[r][p];
        sum_up(r);
    }
}

static void make_one(size_t steps, double input, double h2d, double forward, double sync,
                     double other)
{
    const double phases[PHASES] = {[PHASE_INPUT] = input,
                                   [PHASE_H2D] = h2d,
                                   [PHASE_FORWARD] = forward,
                                   [PHASE_SYNC] = sync,
                                   [PHASE_OTHER] = other};
    make(1, steps, phases);
}

/* The verdict of the facts: "LABEL severity". */
static const char *verdict(void)
{
    static char text[128];
    struct findings found = {0};
    struct leat_err err = {""};
    if (diagnose(&m.facts, &found, &err) < 0)
        fail_msg("%s", err.text);
    snprintf(text, sizeof text, "%s %s", finding_kind_label(found.items[0].kind),
             severity_text(found.items[0].severity));
    findings_done(&found);
    return text;
}

static void test_bound_edges(void **state)
{
    make_one(100, 100, 0, 900, 0, 0);
    assert_string_equal(verdict(), "INPUT-BOUND warning");
    make_one(100, 99, 0, 901, 0, 0);
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
    make_one(100, 200, 0, 800, 0, 0);
    assert_string_equal(verdict(), "INPUT-BOUND critical");
    make_one(100, 199, 0, 801, 0, 0);
    assert_string_equal(verdict(), "INPUT-BOUND warning");
    make_one(100, 0, 100, 900, 0, 0);
    assert_string_equal(verdict(), "H2D-BOUND warning");
    make_one(100, 0, 99, 901, 0, 0);
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
    make_one(100, 0, 0, 900, 40, 60);
    assert_string_equal(verdict(), "WAIT-HEAVY warning");
    make_one(100, 0, 0, 901, 40, 59);
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
    make_one(100, 0, 0, 800, 100, 100);
    assert_string_equal(verdict(), "WAIT-HEAVY critical");
    make_one(100, 50, 0, 900, 50, 0);
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
    make_one(100, 51, 0, 899, 50, 0);
    assert_string_equal(verdict(), "BALANCED info");
}

static void test_number_of_steps(void **state)
{
    make_one(20, 500, 0, 500, 0, 0);
    assert_string_equal(verdict(), "INPUT-BOUND critical");
    make_one(19, 500, 0, 500, 0, 0);
    assert_string_equal(verdict(), "INPUT-BOUND warning");
    make_one(2, 500, 0, 500, 0, 0);
    assert_string_equal(verdict(), "INPUT-BOUND warning");
    make_one(1, 500, 0, 500, 0, 0);
    assert_string_equal(verdict(), "INSUFFICIENT DATA info");
}

static void test_floor(void **state)
{
    make_one(100, 100, 0, 900, 0, 0);
    m.ranks[0].cost_ms = 10;
    assert_string_equal(verdict(), "INPUT-BOUND warning");
    m.ranks[0].cost_ms = 10.5; /* ten times that is more than the 100 ms of input */
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
    m.ranks[0].cost_ms = 100;
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
    m.ranks[0].cost_ms = 100.5; /* of a step of 1000 ms */
    assert_string_equal(verdict(), "INSUFFICIENT DATA info");
}

/* 1 % of 1000 steps take exactly 5 % of the time: ten of 495 ms among 990 of 95 ms. */
static void test_stall_edge(void **state)
{
    make_one(1000, 0, 0, 95, 0, 0);
    for (int i = 0; i < 10; i++)
        m.phase[0][PHASE_FORWARD][i * 97 + 5] = 495; /* 4950 of 99 000 ms */
    sum_up(0);
    assert_true(m.ranks[0].kept_ms == 99000);
    assert_string_equal(verdict(), "INTERMITTENT STALL warning");
    m.phase[0][PHASE_FORWARD][5] = 494;
    sum_up(0);
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
}

/* A share that only the slowest 1 % cause is a stall; one that remains without them is a bound. */
static void test_vanishing_share(void **state)
{
    make_one(1000, 0, 0, 100, 0, 0);
    for (int i = 0; i < 10; i++)
        m.phase[0][PHASE_INPUT][i * 97 + 5] = 2000;
    sum_up(0);
    assert_string_equal(verdict(), "INTERMITTENT STALL warning");
    for (int i = 0; i < 20; i++) /* 2 %: half of them remain */
        m.phase[0][PHASE_INPUT][i * 47 + 5] = 2000;
    sum_up(0);
    assert_string_equal(verdict(), "INPUT-BOUND critical");
}

static void test_straggler_edges(void **state)
{
    const double phases[PHASES] = {[PHASE_FORWARD] = 400, [PHASE_BACKWARD] = 600};
    const struct {
        double late_ms;
        const char *verdict;
    } rows[] = {
        {100, "COMPUTE STRAGGLER warning" },
        {99,  "COMPUTE-BOUND info"        },
        {200, "COMPUTE STRAGGLER critical"},
        {199, "COMPUTE STRAGGLER warning" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make(4, 100, phases);
        for (size_t s = 0; s < 100; s++) { /* rank 3 is late, so it waits less than the others */
            m.phase[3][PHASE_FORWARD][s] += rows[i].late_ms;
            m.phase[3][PHASE_BACKWARD][s] -= rows[i].late_ms;
        }
        sum_up(3);
        assert_string_equal(verdict(), rows[i].verdict);
    }
}

/* One phase must explain 80 % of the cost to be its cause. */
static void test_cause_of_straggler(void **state)
{
    const double phases[PHASES] = {
        [PHASE_INPUT] = 10, [PHASE_FORWARD] = 390, [PHASE_BACKWARD] = 600};
    const struct {
        double input_ms, other_ms;
        const char *verdict;
    } rows[] = {
        {160, 40, "INPUT STRAGGLER critical"},
        {159, 41, "STRAGGLER critical"      }
    };
    for (size_t i = 0; i < 2; i++) {
        make(2, 100, phases);
        for (size_t s = 0; s < 100; s++) {
            m.phase[0][PHASE_INPUT][s] += rows[i].input_ms;
            m.phase[0][PHASE_OTHER][s] += rows[i].other_ms;
            m.phase[0][PHASE_BACKWARD][s] -= 200;
        }
        sum_up(0);
        m.facts.typical = 1;
        assert_string_equal(verdict(), rows[i].verdict);
    }
}

/* On a tie the straggler comes before the typical rank's own finding. */
static void test_straggler_first_on_tie(void **state)
{
    const double phases[PHASES] = {
        [PHASE_INPUT] = 200, [PHASE_FORWARD] = 300, [PHASE_BACKWARD] = 500};
    make(2, 100, phases);
    for (size_t s = 0; s < 100; s++) {
        m.phase[0][PHASE_FORWARD][s] += 200;
        m.phase[0][PHASE_BACKWARD][s] -= 200;
    }
    sum_up(0);
    m.facts.typical = 1;
    assert_string_equal(verdict(), "COMPUTE STRAGGLER critical");
    for (size_t s = 0; s < 100; s++) { /* now the input gives back more */
        m.phase[0][PHASE_INPUT][s] += 60;
        m.phase[1][PHASE_INPUT][s] += 60;
    }
    sum_up(0);
    sum_up(1);
    assert_string_equal(verdict(), "INPUT-BOUND critical");
}

static void test_memory_edges(void **state)
{
    const struct {
        double allocated;
        const char *verdict;
    } rows[] = {
        {92, "HIGH PRESSURE warning" },
        {91, "COMPUTE-BOUND info"    },
        {97, "HIGH PRESSURE critical"},
        {96, "HIGH PRESSURE warning" }
    };
    for (size_t i = 0; i < 4; i++) {
        struct gpu_sample gpu = {
            .memory_total = 100, .memory_used = 50, .utilization = NAN, .temperature_c = NAN};
        struct memory_sample memory = {.allocated = rows[i].allocated, .step = 1, .t_ms = 10};
        make_one(100, 0, 0, 10, 0, 0);
        m.facts.gpu_samples = &gpu;
        m.facts.gpu_sample_count = 1;
        m.facts.memory_samples = &memory;
        m.facts.memory_sample_count = 1;
        assert_string_equal(verdict(), rows[i].verdict);
    }
}

/* The severity of the finding with this label; "none" when there is no such finding. */
static const char *severity_of(const char *label)
{
    struct findings found = {0};
    struct leat_err err = {""};
    const char *severity = "none";
    if (diagnose(&m.facts, &found, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < found.count; i++)
        if (strcmp(finding_kind_label(found.items[i].kind), label) == 0)
            severity = severity_text(found.items[i].severity);
    findings_done(&found);
    return severity;
}

/* Rank 1 needs 100 bytes; 20 % more in rank 0 count where that is 30 % of what there is. */
static void test_imbalance_edges(void **state)
{
    const double phases[PHASES] = {[PHASE_FORWARD] = 10};
    const struct {
        double worst, capacity;
        const char *severity;
    } rows[] = {
        {120, 200, "warning"},
        {119, 200, "none"   },
        {120, 400, "warning"},
        {120, 401, "none"   }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gpu_sample gpu = {
            .memory_total = rows[i].capacity, .utilization = NAN, .temperature_c = NAN};
        struct memory_sample memory[] = {
            {.allocated = rows[i].worst, .t_ms = 10},
            { .allocated = 100, .t_ms = 10,                .rank = 1, .device = 1}
        };
        make(2, 100, phases);
        m.facts.gpu_samples = &gpu;
        m.facts.gpu_sample_count = 1;
        m.facts.memory_samples = memory;
        m.facts.memory_sample_count = 2;
        assert_string_equal(severity_of("IMBALANCE"), rows[i].severity);
        /* The same of the ranks' own memory on the host. */
        struct sys_sample machine = {.memory_total = rows[i].capacity,
                                     .memory_available = rows[i].capacity,
                                     .swap_in_bytes = NAN};
        struct proc_sample procs[] = {
            {.pid = 100, .rss_bytes = rows[i].worst + 7, .shared_bytes = 7, .t_ms = 10},
            {.pid = 101, .rss_bytes = 100,               .shared_bytes = 0, .t_ms = 10}
        };
        make(2, 100, phases);
        m.facts.sys_samples = &machine;
        m.facts.sys_sample_count = 1;
        m.facts.proc_samples = procs;
        m.facts.proc_sample_count = 2;
        assert_string_equal(severity_of("IMBALANCE"), rows[i].severity);
    }
}

/* Memory that grows evenly by `grown` over 1024 steps, to which 33 samples belong; `first` is the
 * median of the first five, against which growth is measured. `left` further steps fit. */
#define MIB      1048576.0
#define GROWTHS  33
#define PER_STEP 1024.0 /* so that a slope in MiB is exact */
static void make_growth(double grown, double first, double left, int on_device)
{
    static struct memory_sample memory[GROWTHS];
    static struct proc_sample procs[GROWTHS];
    static struct sys_sample machine;
    static struct gpu_sample gpu;
    double slope = grown / PER_STEP;
    make_one((size_t)PER_STEP + 1, 0, 0, 10, 0, 0);
    for (int i = 0; i < GROWTHS; i++) {
        double bytes = first + slope * 32 * (i - 2), t_ms = m.end[0][i * 32];
        memory[i] = (struct memory_sample){.allocated = bytes, .t_ms = t_ms, .step = i * 32};
        procs[i] = (struct proc_sample){
            .pid = 100, .rss_bytes = bytes, .major_faults = -1, .t_ms = t_ms, .cpu_ms = NAN};
    }
    machine = (struct sys_sample){.memory_available = left * slope,
                                  .memory_total = NAN,
                                  .cpu_ratio = NAN,
                                  .swap_in_bytes = NAN,
                                  .shm_total = NAN};
    gpu = (struct gpu_sample){.memory_total = first + grown + left * slope,
                              .memory_used = NAN,
                              .utilization = NAN,
                              .temperature_c = NAN};
    m.facts.sys_samples = &machine;
    m.facts.sys_sample_count = 1;
    m.facts.gpu_samples = &gpu;
    m.facts.gpu_sample_count = 1;
    m.facts.memory_samples = memory;
    m.facts.memory_sample_count = on_device ? GROWTHS : 0;
    m.facts.proc_samples = procs;
    m.facts.proc_sample_count = on_device ? 0 : GROWTHS;
}

static void test_creep_edges(void **state)
{
    const struct {
        double grown_mib, first_mib, left_steps;
        const char *creep, *rising;
    } rows[] = {
        {64,  1000, 1e6,   "warning",  "none"}, /* 64 MiB */
        {63,  1000, 1e6,   "none",     "info"},
        {100, 2000, 1e6,   "warning",  "none"}, /* 5 % */
        {100, 2001, 1e6,   "none",     "info"},
        {100, 1000, 10000, "critical", "none"}, /* memory will be full soon */
        {100, 1000, 10001, "warning",  "none"},
        {100, 2001, 10000, "none",
         "info"                              }, /* a rise is no creep, even if memory will be full soon */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int on_device = 0; on_device < 2; on_device++) {
            make_growth(rows[i].grown_mib * MIB, rows[i].first_mib * MIB, rows[i].left_steps,
                        on_device);
            assert_string_equal(severity_of("MEMORY CREEP"), rows[i].creep);
            assert_string_equal(severity_of("MEMORY RISING"), rows[i].rising);
        }
}

/* Bytes that are swapped in within one second. */
static void test_swapping_edges(void **state)
{
    const struct {
        double bytes;
        const char *severity;
    } rows[] = {
        {MIB,          "warning" },
        {MIB - 1,      "none"    },
        {10 * MIB,     "critical"},
        {10 * MIB - 1, "warning" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sys_sample machine[3];
        make_one(100, 0, 0, 10, 0, 0);
        for (int j = 0; j < 3; j++)
            machine[j] = (struct sys_sample){.t_ms = 500 * j,
                                             .swap_in_bytes = 5000 + rows[i].bytes * j / 2,
                                             .swap_out_bytes = 77 * MIB * j,
                                             .cpu_ratio = NAN,
                                             .memory_total = NAN,
                                             .memory_available = NAN,
                                             .shm_total = NAN};
        m.facts.sys_samples = machine;
        m.facts.sys_sample_count = 3;
        assert_string_equal(severity_of("SWAPPING"), rows[i].severity);
    }
}

static void test_throttled_edges(void **state)
{
    const struct {
        int throttled; /* of 100 samples */
        const char *severity;
    } rows[] = {
        {5,  "warning" },
        {4,  "none"    },
        {20, "critical"},
        {19, "warning" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static struct gpu_sample gpu[100];
        make_one(100, 0, 0, 10, 0, 0);
        for (int j = 0; j < 100; j++) {
            gpu[j] = (struct gpu_sample){.t_ms = 10 * j,
                                         .gpu = "GPU-1",
                                         .throttle = "power_cap",
                                         .utilization = NAN,
                                         .temperature_c = NAN,
                                         .memory_used = NAN,
                                         .memory_total = NAN};
            if (j < rows[i].throttled)
                snprintf(gpu[j].throttle, sizeof gpu[j].throttle, "power_cap,thermal");
        }
        m.facts.gpu_samples = gpu;
        m.facts.gpu_sample_count = 100;
        assert_string_equal(severity_of("THROTTLED"), rows[i].severity);
        /* From 20 % on it is the run's verdict, below it another finding. */
        assert_int_equal(strcmp(verdict(), "THROTTLED critical") == 0, rows[i].throttled >= 20);
    }
}

static void test_utilization_edges(void **state)
{
    const struct {
        double busy;
        const char *low, *moderate;
    } rows[] = {
        {0.29, "warning", "none"},
        {0.30, "none",    "info"},
        {0.69, "none",    "info"},
        {0.70, "none",    "none"}
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gpu_sample gpu[5]; /* the fewest that are judged */
        make_one(100, 0, 0, 10, 0, 0);
        for (int j = 0; j < 5; j++)
            gpu[j] = (struct gpu_sample){.t_ms = 100 + 10 * j,
                                         .gpu = "GPU-1",
                                         .utilization = rows[i].busy,
                                         .temperature_c = NAN,
                                         .memory_used = NAN,
                                         .memory_total = NAN};
        m.facts.gpu_samples = gpu;
        m.facts.gpu_sample_count = 5;
        assert_string_equal(severity_of("LOW_GPU_UTILIZATION"), rows[i].low);
        assert_string_equal(severity_of("MODERATE_GPU_UTILIZATION"), rows[i].moderate);
        m.facts.gpu_sample_count = 4;
        assert_string_equal(severity_of("LOW_GPU_UTILIZATION"), "none");
        assert_string_equal(severity_of("MODERATE_GPU_UTILIZATION"), "none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound_edges),
        cmocka_unit_test(test_number_of_steps),
        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_stall_edge),
        cmocka_unit_test(test_vanishing_share),
        cmocka_unit_test(test_straggler_edges),
        cmocka_unit_test(test_cause_of_straggler),
        cmocka_unit_test(test_straggler_first_on_tie),
        cmocka_unit_test(test_memory_edges),
        cmocka_unit_test(test_imbalance_edges),
        cmocka_unit_test(test_creep_edges),
        cmocka_unit_test(test_swapping_edges),
        cmocka_unit_test(test_throttled_edges),
        cmocka_unit_test(test_utilization_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
