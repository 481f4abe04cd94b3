/* report_testing.h: facts and findings made by hand, for the tests of the report. */
#ifndef LEAT_REPORT_TESTING_H
#define LEAT_REPORT_TESTING_H

#include "base/mem.h"
#include "diagnose/diagnose.h"
#include "report/report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { HAND_STEPS = 100 };

/* One rank whose arrays live in the struct; every step has the same phases but for `jitter`. */
struct hand_rank {
    int64_t step[HAND_STEPS];
    double end_ms[HAND_STEPS], wall_ms[HAND_STEPS], weight[HAND_STEPS];
    double phase_ms[PHASES][HAND_STEPS];
    uint32_t flags[HAND_STEPS];
};

/* Nothing known at all: what a database without any row but the schema gives. */
static inline struct facts hand_nothing(void)
{
    return (struct facts){.run_name = "",
                          .command = "",
                          .started_at = "",
                          .node = "",
                          .leat = "",
                          .ended = "",
                          .python = "",
                          .torch = "",
                          .duration_ms = NAN,
                          .exit_status = -1,
                          .signal = -1,
                          .oom_kills = -1,
                          .cpus = -1,
                          .memory_limit_bytes = -1,
                          .max_steps = -1,
                          .world_size = 1,
                          .typical = -1,
                          .training = -1};
}

/* `phases` in ms, NaN for one that was not measured. */
static inline void hand_fill(struct hand_rank *h, struct rank_facts *r, int rank,
                             const double phases[PHASES])
{
    *r = (struct rank_facts){.rank = rank,
                             .local_rank = rank,
                             .pid = 1000 + rank,
                             .steps = HAND_STEPS + 3,
                             .warmup_steps = 3,
                             .count = HAND_STEPS,
                             .kept = HAND_STEPS,
                             .step = h->step,
                             .end_ms = h->end_ms,
                             .wall_ms = h->wall_ms,
                             .weight = h->weight,
                             .flags = h->flags,
                             .samples = 32 * HAND_STEPS,
                             .micro_steps = HAND_STEPS,
                             .cost_ms = 0.01};
    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < HAND_STEPS; i++) {
        h->step[i] = (int64_t)i + 3;
        h->weight[i] = 1;
        for (int p = 0; p < PHASES; p++) {
            if (isnan(phases[p]))
                continue;
            h->phase_ms[p][i] = phases[p];
            r->phase_ms[p] = h->phase_ms[p];
            h->wall_ms[i] += phases[p];
        }
        r->kept_ms += h->wall_ms[i];
        h->end_ms[i] = r->kept_ms;
    }
}

static inline struct finding *hand_finding(struct findings *list, enum finding_kind kind,
                                           enum section section, enum severity severity,
                                           const char *summary, const char *action)
{
    struct finding *f = findings_add(list, kind, section, severity);
    assert_non_null(f);
    finding_say(f, "%s", summary);
    finding_advise(f, ACTION_SET_LOADER, "%s", action);
    finding_prove(f, EVIDENCE_INPUT_SHARE, 0.84, "steps WHERE id>>40 = 0");
    return f;
}

/* A run of one rank on a slow input, with its verdict. */
struct hand_run {
    struct hand_rank arrays;
    struct rank_facts rank;
    struct loader_fact loader;
    struct proc_fact proc;
    struct lost_fact lost;
    struct facts facts;
    struct findings findings;
};

static inline void hand_slow_input(struct hand_run *run)
{
    static const double phases[PHASES] = {254.5, NAN, 20, 25, 3.7, NAN, 0.5};
    memset(run, 0, sizeof *run);
    hand_fill(&run->arrays, &run->rank, 0, phases);
    run->facts = hand_nothing();
    run->facts.run_name = "demo";
    run->facts.command = "[\"train.py\", \"--epochs\", \"3\"]";
    run->facts.started_at = "2026-01-02T03:04:05Z";
    run->facts.ended = "completed";
    run->facts.exit_status = 0;
    run->facts.duration_ms = 32100;
    run->facts.cpus = 2;
    run->facts.training = 1;
    run->facts.typical = 0;
    run->facts.ranks = &run->rank;
    run->facts.rank_count = 1;
    run->loader = (struct loader_fact){.pid = 1000,
                                       .use = LOADER_TRAIN,
                                       .dataset = "SlowImages",
                                       .where = "train.py:31",
                                       .dataset_length = 3200,
                                       .batch_size = 32,
                                       .num_workers = 0,
                                       .prefetch_factor = -1,
                                       .pin_memory = 0,
                                       .persistent_workers = 0,
                                       .iterable = 0,
                                       .iterations = 1,
                                       .batches = 103,
                                       .samples = 3296,
                                       .wait_ms = 26000,
                                       .first_wait_ms = 260,
                                       .background_ms = 0};
    run->facts.loaders = &run->loader;
    run->facts.loader_count = 1;
    struct finding *f = hand_finding(
        &run->findings, KIND_INPUT_BOUND, SECTION_STEP_TIME, SEVERITY_CRITICAL,
        "Waiting for batches takes 84 % of the step time: 254.50 ms of 303.70 ms a step.",
        "Give the loader workers, so that batches are made while the model computes: "
        "DataLoader(..., num_workers=4, persistent_workers=True).");
    finding_cause(f, CAUSE_NO_OVERLAP);
    f->share = 0.838;
    f->predicted_gain = 1.9;
}

/* The same with two training loaders: loader 0, fast and seen first, and loader 1, which the
 * training waits for. */
static inline void hand_two_loaders(struct hand_run *run, struct loader_fact loaders[static 2])
{
    hand_slow_input(run);
    loaders[0] = loaders[1] = run->loader;
    loaders[0].wait_ms = 12;
    loaders[0].batch_size = 8;
    snprintf(loaders[0].where, sizeof loaders[0].where, "train.py:12");
    loaders[1].loader = 1;
    loaders[1].num_workers = 2;
    run->facts.loaders = loaders;
    run->facts.loader_count = 2;
}

#endif
