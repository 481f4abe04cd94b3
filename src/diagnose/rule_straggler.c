/* rule_straggler.c: one rank is late, and the others wait for it.
 *
 * What can be seen. Ranks that exchange gradients end their steps together, so the steps of a late
 * rank are not longer than those of the others: it has the *shortest* wait. Where the others wait
 * depends on the script:
 *
 *     late in        rank 1 (late)   [   input   ][fw][bw]          others wait inside
 *     input          rank 0          [in][fw][   backward ]         backward (NCCL: on the device)
 *
 *     late in        rank 1 (late)   [in][fw][   bw    ][s]         sync: a collective of the
 *     backward       rank 0          [in][fw][bw][  sync  ]         script's own, or DDP's
 *
 *     late before    rank 0 (late)   [   input   ][fw][bw]          forward (DDP broadcasts the
 *     a broadcast    rank 1          [in][   forward ][bw]          buffers of rank 0 there)
 *
 * So the cost of a rank is the time that the others spent in one of three sets of phases beyond its
 * own: sync; sync and backward; sync, backward and forward. The set that shows most is where the
 * others wait, and the cause is a phase outside of it. A rank that computes its backward slowly and
 * reduces with NCCL is not seen: the host does not wait in it, so all are equally long.
 *
 * Ranks are aligned by step number. Means over the aligned steps are compared, so the wait in step
 * k + 1 is charged to an optimizer that is slow in step k. The slowest 1 % of steps are left out
 * where they are stalls: one accident is no straggler. */
#include "diagnose/rule.h"

#include "base/mem.h"
#include "base/stats.h"

#include <math.h>
#include <stdio.h>

#define CAUSE_SHARE 0.80 /* share of the cost that one phase must explain to be the cause */
/* Ranks that wait for each other take equally long on average; a larger difference means they do
 * not. */
#define LOCK_STEP_RATIO 0.10
/* A larger set of phases must show this much more waiting than a smaller one to be preferred: it
 * always shows at least about as much, and leaves fewer phases as the cause. */
#define WIDER_RATIO 1.10

static const unsigned wait_sets[] = {
    1u << PHASE_SYNC,
    1u << PHASE_SYNC | 1u << PHASE_BACKWARD,
    1u << PHASE_SYNC | 1u << PHASE_BACKWARD | 1u << PHASE_FORWARD,
};

struct aligned_ranks { /* the ranks, over the steps that all of them made */
    const struct facts *facts;
    size_t ranks, steps;
    size_t *at;                 /* [step * ranks + rank]: the entry; owned */
    double (*mean)[PHASES + 1]; /* per rank; the last is the step with evaluation; owned */
    double *others;             /* scratch of `ranks` values; owned */
    double weight;              /* steps that the aligned entries stand for */
};

static void aligned_ranks_done(struct aligned_ranks *a)
{
    mem_free(a->at);
    mem_free(a->mean);
    mem_free(a->others);
}

/* Entries of all ranks with the same step number and, where steps are folded, the same weight. */
static int align(struct aligned_ranks *a)
{
    const struct rank_facts *ranks = a->facts->ranks;
    a->at = mem_alloc_array(ranks[0].count * a->ranks + 1, sizeof *a->at);
    size_t *next = mem_alloc_array(a->ranks, sizeof *next);
    if (!a->at || !next) {
        mem_free(next);
        return -ENOMEM;
    }
    for (size_t i = 0; i < ranks[0].count; i++) {
        size_t *row = a->at + a->steps * a->ranks;
        size_t found = 0;
        for (size_t r = 0; r < a->ranks; r++) {
            while (next[r] < ranks[r].count && ranks[r].step[next[r]] < ranks[0].step[i])
                next[r]++;
            if (next[r] == ranks[r].count || ranks[r].step[next[r]] != ranks[0].step[i] ||
                ranks[r].weight[next[r]] != ranks[0].weight[i])
                break;
            row[r] = next[r];
            found++;
        }
        a->steps += found == a->ranks;
    }
    mem_free(next);
    return 0;
}

static int average(struct aligned_ranks *a)
{
    const struct rank_facts *typical = typical_rank(a->facts);
    size_t t = (size_t)a->facts->typical;
    struct slowest slowest;
    if (slowest_find(typical, &slowest) < 0)
        return -ENOMEM;
    int leave_out = slowest_stalls(&slowest);
    for (size_t s = 0; s < a->steps; s++) {
        const size_t *row = a->at + s * a->ranks;
        if (leave_out && slowest.slow[row[t]])
            continue;
        double weight = typical->weight[row[t]];
        a->weight += weight;
        for (size_t r = 0; r < a->ranks; r++) {
            const struct rank_facts *rank = &a->facts->ranks[r];
            for (int p = 0; p < PHASES; p++)
                if (rank->phase_ms[p])
                    a->mean[r][p] += weight * rank->phase_ms[p][row[r]];
            a->mean[r][PHASES] += weight * rank->wall_ms[row[r]];
        }
    }
    mem_free(slowest.slow);
    for (size_t r = 0; r < a->ranks && a->weight > 0; r++) {
        for (int p = 0; p <= PHASES; p++)
            a->mean[r][p] /= a->weight;
        /* The others also wait for a rank that evaluates alone, which is outside of its steps. */
        a->mean[r][PHASES] += a->facts->ranks[r].eval_ms / (double)a->facts->ranks[r].steps;
    }
    return 0;
}

static double sum_of(const struct aligned_ranks *a, size_t rank, unsigned phase_bits)
{
    double sum = 0;
    for (int p = 0; p <= PHASES; p++)
        if (phase_bits >> p & 1)
            sum += a->mean[rank][p];
    return sum;
}

/* The median over the other ranks: with two ranks, the other one. */
static double others_median(const struct aligned_ranks *a, size_t rank, unsigned phase_bits)
{
    size_t n = 0;
    for (size_t r = 0; r < a->ranks; r++)
        if (r != rank)
            a->others[n++] = sum_of(a, r, phase_bits);
    return stats_quantile(a->others, n, 0.5);
}

struct lateness {
    double cost_ms, victim_ms; /* per step */
    unsigned waiting;          /* where the others wait */
    int cause;                 /* the phase, or -1 */
    double own_ms, usual_ms;   /* of the cause */
    int largest;               /* the phase with the largest excess, cause or not */
    double largest_ms;
};

static struct lateness measure(const struct aligned_ranks *a, size_t rank)
{
    struct lateness l = {
        .victim_ms = others_median(a, rank, 1u << PHASES), .cause = -1, .largest = -1};
    for (size_t i = 0; i < sizeof wait_sets / sizeof *wait_sets; i++) {
        double cost = others_median(a, rank, wait_sets[i]) - sum_of(a, rank, wait_sets[i]);
        if (cost > (l.waiting ? WIDER_RATIO * l.cost_ms : 0)) {
            l.cost_ms = cost;
            l.waiting = wait_sets[i];
        }
    }
    for (int p = 0; p < PHASES; p++) {
        if (l.waiting >> p & 1)
            continue;
        double excess = a->mean[rank][p] - others_median(a, rank, 1u << p);
        if (excess > l.largest_ms) {
            l.largest = p;
            l.largest_ms = excess;
        }
    }
    if (l.largest >= 0 && l.largest_ms >= CAUSE_SHARE * l.cost_ms) {
        l.cause = l.largest;
        l.own_ms = a->mean[rank][l.cause];
        l.usual_ms = others_median(a, rank, 1u << l.cause);
    }
    return l;
}

static double wait_in(const struct rank_facts *r, size_t entry, unsigned phase_bits)
{
    double ms = 0;
    for (int p = 0; p < PHASES; p++)
        if ((phase_bits >> p & 1) && r->phase_ms[p])
            ms += r->phase_ms[p][entry];
    return ms;
}

/* In how many steps it was late: it waited less than the others on average, by at least half of
 * the mean cost. */
static int64_t late_steps(const struct aligned_ranks *a, size_t rank, const struct lateness *l)
{
    double late = 0;
    for (size_t s = 0; s < a->steps; s++) {
        const size_t *row = a->at + s * a->ranks;
        double own = 0, others = 0;
        for (size_t r = 0; r < a->ranks; r++)
            *(r == rank ? &own : &others) += wait_in(&a->facts->ranks[r], row[r], l->waiting);
        if (others / (double)(a->ranks - 1) - own >= 0.5 * l->cost_ms)
            late += a->facts->ranks[rank].weight[row[rank]];
    }
    return (int64_t)late;
}

static enum finding_kind kind_of(int cause)
{
    switch (cause) {
    case PHASE_INPUT: return KIND_INPUT_STRAGGLER;
    case PHASE_H2D: return KIND_H2D_STRAGGLER;
    case PHASE_FORWARD:
    case PHASE_BACKWARD:
    case PHASE_OPTIMIZER: return KIND_COMPUTE_STRAGGLER;
    default: return KIND_STRAGGLER;
    }
}

/* Ranks that are not here run on other nodes; then the text names the node. */
static void node_text(const struct aligned_ranks *a, char *ret_text, size_t bytes)
{
    ret_text[0] = 0;
    if ((size_t)a->facts->world_size > a->ranks && a->facts->node[0])
        snprintf(ret_text, bytes, ". It runs on node %s", a->facts->node);
}

static void describe(const struct aligned_ranks *a, size_t rank, const struct lateness *l,
                     struct finding *f)
{
    const struct rank_facts *r = &a->facts->ranks[rank];
    char node[320]; /* a host name has at most 253 characters */
    double share = l->cost_ms / l->victim_ms;
    long long late = (long long)late_steps(a, rank, l);
    double eval_ms = r->eval_ms / (double)r->steps;
    node_text(a, node, sizeof node);
    if (l->cause >= 0)
        finding_say(f,
                    "r%d %s was slower than median global rank (%.1f/%.1fms). The other ranks wait "
                    "%.1f ms per step for it, %.0f %% of their step, in %lld of %.0f steps%s.",
                    r->rank, leat_phase_names[l->cause], l->own_ms, l->usual_ms, l->cost_ms,
                    100 * share, late, a->weight, node);
    else
        finding_say(f,
                    "r%d was later than median global rank: the other ranks wait %.1f ms per step "
                    "for it, %.0f %% of their step, in %lld of %.0f steps. No single phase "
                    "explains it (largest: %s, %.1f ms more)%s.",
                    r->rank, l->cost_ms, 100 * share, late, a->weight,
                    l->largest >= 0 ? leat_phase_names[l->largest] : "none", l->largest_ms, node);
    if (l->cause == PHASE_INPUT)
        explain_input(a->facts, r, l->own_ms, f);
    else if (l->cause == PHASE_H2D)
        finding_advise(f, ACTION_PIN_AND_OVERLAP,
                       "Check the copies to the device of rank %d: use pin_memory=True and "
                       "non_blocking=True, and check that its GPU has a full-speed link.",
                       r->rank);
    else if (l->cause == PHASE_OTHER)
        finding_advise(
            f, ACTION_REDUCE_PHASE,
            "Rank %d does more than the others between backward and the next batch (logging, "
            "checkpoints, metrics): do this less often, or in a background thread.",
            r->rank);
    else if (l->cause >= 0)
        finding_advise(f, ACTION_INSPECT_RANK,
                       "Check %s on rank %d: work that only this rank does, a slower or throttled "
                       "device, or a busy core.",
                       leat_phase_names[l->cause], r->rank);
    else if (eval_ms > CAUSE_SHARE * l->cost_ms)
        finding_advise(f, ACTION_EVALUATE_ON_ALL_RANKS,
                       "Only rank %d evaluates, and the others wait for it in their next step: "
                       "evaluate a part of the data on each rank.",
                       r->rank);
    else
        finding_advise(f, ACTION_INSPECT_RANK,
                       "Compare rank %d with the others: its share of the data, its device, and "
                       "work that only this rank does.",
                       r->rank);
    if (l->cause >= 0 && l->cause != PHASE_INPUT)
        finding_argument(f, "phase=%s", leat_phase_names[l->cause]);
    finding_prove(f, EVIDENCE_COST_TO_OTHERS, l->cost_ms, "steps WHERE id>>40 <> %d", r->rank);
    finding_prove(f, EVIDENCE_SHARE_OF_OTHERS, share, "steps WHERE id>>40 <> %d", r->rank);
    finding_prove(f, EVIDENCE_LATE_STEPS, (double)late, "steps WHERE id>>40 = %d", r->rank);
    if (l->cause >= 0)
        finding_prove_named(f, EVIDENCE_PHASE_TIME, leat_phase_names[l->cause], l->own_ms,
                            "steps WHERE id>>40 = %d", r->rank);
    if (l->cause >= 0)
        finding_prove(f, EVIDENCE_MEDIAN_RANK_TIME, l->usual_ms, "steps WHERE id>>40 <> %d",
                      r->rank);
}

/* Without this rank's lateness the next latest rank is waited for. */
static double gain_without(const struct aligned_ranks *a, size_t rank, const struct lateness *l)
{
    double least = INFINITY;
    for (size_t r = 0; r < a->ranks; r++)
        if (r != rank && sum_of(a, r, l->waiting) < least)
            least = sum_of(a, r, l->waiting);
    return gain_of(l->victim_ms, l->victim_ms - (least - sum_of(a, rank, l->waiting)));
}

static void judge(const struct aligned_ranks *a, size_t rank, struct findings *found)
{
    struct lateness l = measure(a, rank);
    const struct rank_facts *r = &a->facts->ranks[rank];
    double share = l.victim_ms > 0 ? l.cost_ms / l.victim_ms : 0;
    if (share < BOUND_WARNING || l.cost_ms < COST_FLOOR * r->cost_ms ||
        fabs(a->mean[rank][PHASES] - l.victim_ms) > LOCK_STEP_RATIO * l.victim_ms)
        return;
    struct finding *f =
        findings_add(found, kind_of(l.cause), SECTION_STEP_TIME, share_severity(share));
    if (!f)
        return;
    f->share = share;
    f->rank = r->rank;
    f->pid = r->pid;
    f->node = a->facts->node[0] ? mem_strdup(a->facts->node) : NULL;
    if (a->facts->node[0] && !f->node)
        found->failed = 1;
    describe(a, rank, &l, f);
    f->predicted_gain = gain_without(a, rank, &l);
    f->at_most = 1;
}

void rule_straggler(const struct facts *facts, struct findings *found)
{
    struct aligned_ranks a = {.facts = facts, .ranks = facts_world_ranks(facts)};
    if (a.ranks < 2 || !judged_rank(facts))
        return;
    a.mean = mem_alloc_array(a.ranks, sizeof *a.mean);
    a.others = mem_alloc_array(a.ranks, sizeof *a.others);
    int result = a.mean && a.others ? align(&a) : -ENOMEM;
    if (result == 0 && a.steps >= LEAST_STEPS)
        result = average(&a);
    for (size_t r = 0; result == 0 && a.weight >= LEAST_STEPS && r < a.ranks; r++)
        judge(&a, r, found);
    if (result < 0)
        found->failed = 1;
    aligned_ranks_done(&a);
}
