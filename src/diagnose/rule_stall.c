/* rule_stall.c: INTERMITTENT STALL: a few steps take much of the time. The finding reports how
 * often they come and what they coincide with.
 *
 * The slowest 1 % of steps decide whether there is a stall. Stalls may be more than 1 % of the
 * steps, so the stalled steps are all that are longer than halfway between a usual step and the
 * slowest ones.
 *
 * A training that had no CPU did not stall: other programs, or other virtual machines on the same
 * hardware, used it. That is only a remark, since nothing in the script would change it.
 *
 * A host that runs ahead of the device and sometimes waits for it has long steps without any loss:
 * the device worked all that time. */
#include "diagnose/rule.h"

#include "base/mem.h"
#include "base/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COINCIDE_SHARE    0.80 /* of the stalled steps that must share a circumstance to name it */
#define REGULAR_SHARE     0.80 /* of the gaps that must equal the usual one to call it a period */
#define NO_CPU_SHARE      0.50 /* of the lost time: more than all other reasons together */
#define DEVICE_BUSY_SHARE 0.50 /* the same for time in which the device worked */

struct stalls {
    const struct rank_facts *rank;
    double usual_ms;  /* median step */
    double cut_ms;    /* a step of this length or more is stalled */
    size_t *at;       /* entries; owned */
    size_t count;     /* of them */
    double held_ms;   /* all their time */
    double excess_ms; /* beyond as many usual steps: what would be given back */
    double gap_steps; /* usual distance; NaN without a period */
    double gap_ms;
    int phase; /* in which most of the excess is */
    double phase_excess_ms;
};

static int find_stalls(const struct rank_facts *r, const struct slowest *slowest, struct stalls *s)
{
    double *scratch = mem_alloc_array(r->count + 1, sizeof *scratch);
    s->at = mem_alloc_array(r->count + 1, sizeof *s->at);
    if (!scratch || !s->at) {
        mem_free(scratch);
        mem_free(s->at);
        s->at = NULL;
        return -ENOMEM;
    }
    memcpy(scratch, r->wall_ms, r->count * sizeof *scratch);
    s->rank = r;
    s->usual_ms = stats_quantile(scratch, r->count, 0.5);
    mem_free(scratch);
    double slow_ms = slowest->share * r->kept_ms / (double)slowest->steps;
    s->cut_ms = (s->usual_ms + slow_ms) / 2;
    for (size_t i = 0; i < r->count; i++) {
        if (r->wall_ms[i] < s->cut_ms)
            continue;
        s->at[s->count++] = i;
        s->held_ms += r->weight[i] * r->wall_ms[i];
        s->excess_ms += r->weight[i] * (r->wall_ms[i] - s->usual_ms);
    }
    return 0;
}

/* A period needs at least three stalls, and most gaps must be the usual one: within one step, or
 * a twentieth of it. */
static void find_period(struct stalls *s)
{
    double gaps[256];
    size_t n = 0;
    s->gap_steps = s->gap_ms = NAN;
    for (size_t i = 1; i < s->count && n < sizeof gaps / sizeof *gaps; i++)
        gaps[n++] = (double)(s->rank->step[s->at[i]] - s->rank->step[s->at[i - 1]]);
    if (n < 2)
        return;
    double usual = stats_quantile(gaps, n, 0.5);
    size_t same = 0;
    for (size_t i = 0; i < n; i++)
        same += fabs(gaps[i] - usual) <= (usual * 0.05 > 1 ? usual * 0.05 : 1);
    if ((double)same < REGULAR_SHARE * (double)n || usual < 2)
        return;
    s->gap_steps = usual;
    s->gap_ms =
        (s->rank->end_ms[s->at[s->count - 1]] - s->rank->end_ms[s->at[0]]) / (double)(s->count - 1);
}

/* The phase that grew most beyond its own usual length (its mean over the other steps). */
static void find_phase(struct stalls *s)
{
    const struct rank_facts *r = s->rank;
    s->phase = PHASE_OTHER;
    for (int p = 0; p < PHASES; p++) {
        if (!r->phase_ms[p])
            continue;
        double in = 0, out = 0, in_n = 0, out_n = 0;
        size_t next = 0;
        for (size_t i = 0; i < r->count; i++) {
            int stalled = next < s->count && s->at[next] == i;
            next += (size_t)stalled;
            *(stalled ? &in : &out) += r->weight[i] * r->phase_ms[p][i];
            *(stalled ? &in_n : &out_n) += r->weight[i];
        }
        double excess = in / in_n - (out_n > 0 ? out / out_n : 0);
        if (excess > s->phase_excess_ms) {
            s->phase = p;
            s->phase_excess_ms = excess;
        }
    }
}

static double flagged_share(const struct stalls *s, uint32_t flag)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += (s->rank->flags[s->at[i]] & flag) != 0;
    return (double)n / (double)s->count;
}

static int step_holds(const struct rank_facts *r, size_t i, double from_ms, double to_ms)
{
    return from_ms < r->end_ms[i] && to_ms > r->end_ms[i] - r->wall_ms[i];
}

/* Share of stalled steps during which a worker process of the run started. */
static double respawn_share(const struct facts *facts, const struct stalls *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        for (size_t j = 0; j < facts->proc_count; j++) {
            const struct proc_fact *p = &facts->procs[j];
            if (p->role == ROLE_WORKER && p->rank == s->rank->rank &&
                step_holds(s->rank, s->at[i], p->started_ms, p->started_ms)) {
                n++;
                break;
            }
        }
    return (double)n / (double)s->count;
}

/* Share of the major faults (pages read from storage) that fall on stalled steps: those between
 * two samples whose interval touches such a step. 0 with less than one fault per stalled step. */
static double fault_share(const struct facts *facts, const struct stalls *s)
{
    double in = 0, all = 0;
    for (size_t i = 1; i < facts->proc_sample_count; i++) {
        const struct proc_sample *a = &facts->proc_samples[i - 1], *b = a + 1;
        if (a->pid != b->pid || a->major_faults < 0 || b->major_faults <= a->major_faults ||
            b->t_ms < s->rank->end_ms[0])
            continue;
        double faults = (double)(b->major_faults - a->major_faults);
        all += faults;
        for (size_t j = 0; j < s->count; j++)
            if (step_holds(s->rank, s->at[j], a->t_ms, b->t_ms)) {
                in += faults;
                break;
            }
    }
    return all >= (double)s->count && all > 0 ? in / all : 0;
}

/* Share of the time lost in stalled steps in which the process was ready to run and had no CPU:
 * it waited in the queue, or the hypervisor had taken the CPU away. Samples are coarser than
 * steps, so an interval counts at most the time lost in the stalled steps that it touches. */
static double no_cpu_share(const struct facts *facts, const struct stalls *s)
{
    double without_ms = 0;
    for (size_t j = 0; j < s->count; j++) {
        double step_ms = 0, loss_ms = s->rank->wall_ms[s->at[j]] - s->usual_ms;
        for (size_t i = 1; i < facts->proc_sample_count; i++) {
            const struct proc_sample *a = &facts->proc_samples[i - 1], *b = a + 1;
            if (a->pid == s->rank->pid && b->pid == a->pid &&
                step_holds(s->rank, s->at[j], a->t_ms, b->t_ms) &&
                b->run_delay_ms > a->run_delay_ms)
                step_ms += b->run_delay_ms - a->run_delay_ms;
        }
        for (size_t i = 1; i < facts->sys_sample_count; i++) {
            const struct sys_sample *a = &facts->sys_samples[i - 1], *b = a + 1;
            if (b->steal_ratio > 0 && step_holds(s->rank, s->at[j], a->t_ms, b->t_ms))
                step_ms += b->steal_ratio * (b->t_ms - a->t_ms) * (double)facts->cpus;
        }
        without_ms += s->rank->weight[s->at[j]] * (step_ms < loss_ms ? step_ms : loss_ms);
    }
    return s->excess_ms > 0 ? without_ms / s->excess_ms : 0;
}

/* Share of the time lost in stalled steps in which the host waited for its device in few steps.
 * With several ranks it is not known whether the device waited for other ranks, too. */
static double device_busy_share(const struct facts *facts, const struct stalls *s)
{
    double waited_ms = 0;
    for (size_t i = 0; i < facts->cuda_line_count && facts->rank_count == 1; i++) {
        const struct cuda_line *l = &facts->cuda_lines[i];
        if (l->pid == s->rank->pid)
            waited_ms += l->steps * 2 < (double)s->rank->steps ? l->wait_ms : l->rare_wait_ms;
    }
    return waited_ms / s->excess_ms;
}

struct circumstance {
    const char *text, *advice;
    enum action action;
    enum evidence_code evidence;
    const char *rows; /* up to the rank */
    uint32_t flag;    /* of the steps; 0: found in another way */
};

static const struct circumstance circumstances[] = {
    {.text = "the start of an epoch",
     .action = ACTION_KEEP_WORKERS,
     .evidence = EVIDENCE_STALLS_AT_EPOCH_START,
     .advice = "Keep the workers between epochs: DataLoader(..., persistent_workers=True).",
     .rows = "steps WHERE flags & 1 AND id>>40 =",
     .flag = STEP_EPOCH_START},
    {.text = "a checkpoint",
     .action = ACTION_SAVE_LESS_OFTEN,
     .evidence = EVIDENCE_STALLS_AT_CHECKPOINT,
     .advice = "Save checkpoints less often, or from a background thread.",
     .rows = "steps WHERE flags & 4 AND id>>40 =",
     .flag = STEP_CHECKPOINT},
    {.text = "the first step after an evaluation",
     .action = ACTION_EVALUATE_LESS_OFTEN,
     .evidence = EVIDENCE_STALLS_AFTER_EVALUATION,
     .advice = "Keep the workers and caches of the training loader during evaluation, or evaluate "
               "less often.",                                                                           .rows = "steps WHERE flags & 8 AND id>>40 =",
     .flag = STEP_AFTER_EVAL},
    {.text = "the start of worker processes",
     .action = ACTION_KEEP_WORKERS,
     .evidence = EVIDENCE_STALLS_AT_WORKER_START,
     .advice = "Keep the workers: DataLoader(..., persistent_workers=True).",
     .rows = "processes WHERE role = 'worker' AND rank ="                                        },
    {.text = "major page faults (data is read from storage)",
     .action = ACTION_CACHE_DATA,
     .evidence = EVIDENCE_STALLS_AT_PAGE_FAULTS,
     .advice = "Keep the data in memory, read it ahead with a larger prefetch_factor, or make the "
               "dataset smaller.", .rows = "proc_samples WHERE (SELECT rank FROM processes p WHERE p.pid = proc_samples.pid) ="                                          },
};

/* The first circumstance that nearly all stalled steps share; NULL when there is none. */
static const struct circumstance *find_circumstance(const struct facts *facts,
                                                    const struct stalls *s, double *ret_share)
{
    const size_t n = sizeof circumstances / sizeof *circumstances;
    for (size_t i = 0; i < n; i++) {
        double share = circumstances[i].flag ? flagged_share(s, circumstances[i].flag)
                       : i + 1 == n          ? fault_share(facts, s)
                                             : respawn_share(facts, s);
        if (share >= COINCIDE_SHARE) {
            *ret_share = share;
            return &circumstances[i];
        }
    }
    return NULL;
}

static void describe(const struct facts *facts, const struct stalls *s, struct finding *f,
                     int without_cpu)
{
    const struct rank_facts *r = s->rank;
    double share = 0;
    const struct circumstance *c = without_cpu ? NULL : find_circumstance(facts, s, &share);
    char period[96] = "";
    if (!isnan(s->gap_steps))
        snprintf(period, sizeof period, ", every %.0f steps (%.1f s)", s->gap_steps,
                 s->gap_ms / 1000);
    finding_say(f,
                "%zu of %lld steps take %.0f %% of the time: %.0f ms each instead of %.2f ms%s, "
                "most of it in %s%s%s.",
                s->count, (long long)r->kept, 100 * s->held_ms / r->kept_ms,
                s->held_ms / (double)s->count, s->usual_ms, period, leat_phase_names[s->phase],
                without_cpu ? ". The training was ready to run but got no CPU"
                : c         ? ". They coincide with "
                            : "",
                c ? c->text : "");
    if (without_cpu)
        finding_advise(f, ACTION_NOTHING,
                       "Other programs or virtual machines used the CPU in those steps. Nothing in "
                       "the script needs to change.");
    else if (c)
        finding_advise(f, c->action, "%s", c->advice);
    else {
        finding_advise(f, ACTION_INSPECT_STEP,
                       "Check what the script does in step %lld, which spends %.0f ms in %s. It is "
                       "not the start of an epoch, a checkpoint or an evaluation.",
                       (long long)r->step[s->at[0]], r->wall_ms[s->at[0]],
                       leat_phase_names[s->phase]);
        finding_argument(f, "step=%lld", (long long)r->step[s->at[0]]);
    }
    finding_prove(f, EVIDENCE_STALLED_SHARE, s->held_ms / r->kept_ms,
                  "steps WHERE id>>40 = %d AND wall_ns >= %.0f", r->rank, 1e6 * s->cut_ms);
    finding_prove(f, EVIDENCE_STALLED_STEPS, (double)s->count,
                  "steps WHERE id>>40 = %d AND wall_ns >= %.0f", r->rank, 1e6 * s->cut_ms);
    finding_prove(f, EVIDENCE_USUAL_STEP, s->usual_ms, "steps WHERE id>>40 = %d", r->rank);
    if (!isnan(s->gap_steps))
        finding_prove(f, EVIDENCE_STALL_PERIOD, s->gap_steps, "steps WHERE id>>40 = %d", r->rank);
    if (c)
        finding_prove(f, c->evidence, share, "%s %d", c->rows, r->rank);
}

static void add_finding(const struct facts *facts, struct stalls *s, struct findings *found)
{
    const struct rank_facts *r = s->rank;
    double no_cpu = no_cpu_share(facts, s);
    int without_cpu = no_cpu >= NO_CPU_SHARE;
    struct finding *f = findings_add(found, KIND_INTERMITTENT_STALL, SECTION_STEP_TIME,
                                     without_cpu ? SEVERITY_INFO : SEVERITY_WARNING);
    if (!f)
        return;
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    find_period(s);
    find_phase(s);
    f->remark = without_cpu;
    if (!without_cpu) {
        f->share = s->excess_ms / r->kept_ms;
        f->predicted_gain = gain_of(r->kept_ms, r->kept_ms - s->excess_ms);
        f->at_most = 1;
    }
    describe(facts, s, f, without_cpu);
    if (without_cpu)
        finding_prove(f, EVIDENCE_TIME_WITHOUT_CPU, no_cpu, "proc_samples WHERE pid = %lld",
                      (long long)r->pid);
}

void rule_stall(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    struct slowest slowest = {0};
    struct stalls s = {0};
    if (!r)
        return;
    if (slowest_find(r, &slowest) < 0) {
        found->failed = 1;
        return;
    }
    if (slowest_stalls(&slowest)) {
        if (find_stalls(r, &slowest, &s) < 0)
            found->failed = 1;
        if (s.count > 0 && s.excess_ms / (double)s.count >= COST_FLOOR * r->cost_ms &&
            device_busy_share(facts, &s) < DEVICE_BUSY_SHARE)
            add_finding(facts, &s, found);
    }
    mem_free(s.at);
    mem_free(slowest.slow);
}
