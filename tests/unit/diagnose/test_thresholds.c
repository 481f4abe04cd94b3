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
    snprintf(text, sizeof text, "%s %s", found.items[0].label,
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
    m.ranks[0].cost_ms = 10.5; /* ten times it is more than the 100 ms */
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
    m.ranks[0].cost_ms = 100;
    assert_string_equal(verdict(), "COMPUTE-BOUND info");
    m.ranks[0].cost_ms = 100.5; /* of a step of 1000 ms */
    assert_string_equal(verdict(), "INSUFFICIENT DATA info");
}

/* 1 % of 1000 steps hold exactly 5 % of the time: ten of 495 ms among 990 of 95 ms. */
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

/* A share that the slowest 1 % make is a stall; one that stays without them is a bound. */
static void test_vanishing_share(void **state)
{
    make_one(1000, 0, 0, 100, 0, 0);
    for (int i = 0; i < 10; i++)
        m.phase[0][PHASE_INPUT][i * 97 + 5] = 2000;
    sum_up(0);
    assert_string_equal(verdict(), "INTERMITTENT STALL warning");
    for (int i = 0; i < 20; i++) /* 2 %: half of them stay */
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

/* On a tie the straggler comes before what the typical rank suffers from. */
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
