/* rule_straggler.c: one rank is late, and the others wait for it.
 *
 * What can be seen. Ranks that exchange gradients end their steps together, so a late rank does not
 * have longer steps than the others: it has the *shortest* wait. Where the others wait depends on
 * the script:
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
 * So the cost of a rank is what the others spent in one of three sets of phases beyond what it
 * spent there itself: sync; sync and backward; those and forward. The set that shows most is where
 * the waiting is, and the cause is looked for outside of it. A rank that computes its backward
 * slowly and reduces by NCCL stays unseen: the host does not wait in it, so all are equally long.
 *
 * Ranks are aligned by step number. Means over the aligned steps are compared, which also charges
 * an optimizer that is slow in step k with the waiting in step k + 1. The slowest 1 % of steps are
 * left out where they are stalls: one accident is no straggler.
 */
#include "diagnose/rule.h"

#include "base/mem.h"
#include "base/stats.h"

#include <math.h>
#include <stdio.h>

#define CAUSE_SHARE 0.80 /* of the cost that one phase must explain to be the cause */
/* Ranks that wait for each other take equally long on average; beyond this they do not. */
#define LOCK_STEP_RATIO 0.10
/* A larger set of phases must show this much more than a smaller one to be preferred: it always
 * shows about as much, and has fewer phases left to blame. */
#define WIDER_RATIO 1.10

static const unsigned wait_sets[] = {
    1u << PHASE_SYNC,
    1u << PHASE_SYNC | 1u << PHASE_BACKWARD,
    1u << PHASE_SYNC | 1u << PHASE_BACKWARD | 1u << PHASE_FORWARD,
};

struct crew { /* the ranks, over the steps that all of them made */
    const struct facts *facts;
    size_t ranks, steps;
    size_t *at;                 /* [step * ranks + rank]: the entry; owned */
    double (*mean)[PHASES + 1]; /* per rank; the last is the wall with evaluation; owned */
    double *others;             /* scratch of `ranks` values; owned */
    double weight;              /* steps that the aligned entries stand for */
};

static void crew_done(struct crew *c)
{
    mem_free(c->at);
    mem_free(c->mean);
    mem_free(c->others);
}

/* Entries of all ranks with the same step number and, where steps are folded, the same weight. */
static int align(struct crew *c)
{
    const struct rank_facts *ranks = c->facts->ranks;
    c->at = mem_alloc_array(ranks[0].count * c->ranks + 1, sizeof *c->at);
    size_t *next = mem_alloc_array(c->ranks, sizeof *next);
    if (!c->at || !next) {
        mem_free(next);
        return -ENOMEM;
    }
    for (size_t i = 0; i < ranks[0].count; i++) {
        size_t *row = c->at + c->steps * c->ranks;
        size_t found = 0;
        for (size_t r = 0; r < c->ranks; r++) {
            while (next[r] < ranks[r].count && ranks[r].step[next[r]] < ranks[0].step[i])
                next[r]++;
            if (next[r] == ranks[r].count || ranks[r].step[next[r]] != ranks[0].step[i] ||
                ranks[r].weight[next[r]] != ranks[0].weight[i])
                break;
            row[r] = next[r];
            found++;
        }
        c->steps += found == c->ranks;
    }
    mem_free(next);
    return 0;
}

static int average(struct crew *c)
{
    const struct rank_facts *typical = typical_rank(c->facts);
    size_t t = (size_t)c->facts->typical;
    struct slowest slowest;
    if (slowest_find(typical, &slowest) < 0)
        return -ENOMEM;
    int leave_out = slowest_stalls(&slowest);
    for (size_t s = 0; s < c->steps; s++) {
        const size_t *row = c->at + s * c->ranks;
        if (leave_out && slowest.slow[row[t]])
            continue;
        double weight = typical->weight[row[t]];
        c->weight += weight;
        for (size_t r = 0; r < c->ranks; r++) {
            const struct rank_facts *rank = &c->facts->ranks[r];
            for (int p = 0; p < PHASES; p++)
                if (rank->phase_ms[p])
                    c->mean[r][p] += weight * rank->phase_ms[p][row[r]];
            c->mean[r][PHASES] += weight * rank->wall_ms[row[r]];
        }
    }
    mem_free(slowest.slow);
    for (size_t r = 0; r < c->ranks && c->weight > 0; r++) {
        for (int p = 0; p <= PHASES; p++)
            c->mean[r][p] /= c->weight;
        /* A rank that evaluates alone is waited for as well, outside of its steps. */
        c->mean[r][PHASES] += c->facts->ranks[r].eval_ms / (double)c->facts->ranks[r].steps;
    }
    return 0;
}

static double sum_of(const struct crew *c, size_t rank, unsigned phase_bits)
{
    double sum = 0;
    for (int p = 0; p <= PHASES; p++)
        if (phase_bits >> p & 1)
            sum += c->mean[rank][p];
    return sum;
}

/* The median over the other ranks: with two ranks, the other one. */
static double others_median(const struct crew *c, size_t rank, unsigned phase_bits)
{
    size_t n = 0;
    for (size_t r = 0; r < c->ranks; r++)
        if (r != rank)
            c->others[n++] = sum_of(c, r, phase_bits);
    return stats_quantile(c->others, n, 0.5);
}

struct lateness {
    double cost_ms, victim_ms; /* per step */
    unsigned waiting;          /* where the others wait */
    int cause;                 /* the phase, or -1 */
    double own_ms, usual_ms;   /* of the cause */
    int largest;               /* the phase with the largest excess, cause or not */
    double largest_ms;
};

static struct lateness measure(const struct crew *c, size_t rank)
{
    struct lateness l = {
        .victim_ms = others_median(c, rank, 1u << PHASES), .cause = -1, .largest = -1};
    for (size_t i = 0; i < sizeof wait_sets / sizeof *wait_sets; i++) {
        double cost = others_median(c, rank, wait_sets[i]) - sum_of(c, rank, wait_sets[i]);
        if (cost > (l.waiting ? WIDER_RATIO * l.cost_ms : 0)) {
            l.cost_ms = cost;
            l.waiting = wait_sets[i];
        }
    }
    for (int p = 0; p < PHASES; p++) {
        if (l.waiting >> p & 1)
            continue;
        double excess = c->mean[rank][p] - others_median(c, rank, 1u << p);
        if (excess > l.largest_ms) {
            l.largest = p;
            l.largest_ms = excess;
        }
    }
    if (l.largest >= 0 && l.largest_ms >= CAUSE_SHARE * l.cost_ms) {
        l.cause = l.largest;
        l.own_ms = c->mean[rank][l.cause];
        l.usual_ms = others_median(c, rank, 1u << l.cause);
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

/* In how many steps it was late: those in which it waited less than the others did on average by at
 * least half of the mean cost. */
static int64_t late_steps(const struct crew *c, size_t rank, const struct lateness *l)
{
    double late = 0;
    for (size_t s = 0; s < c->steps; s++) {
        const size_t *row = c->at + s * c->ranks;
        double own = 0, others = 0;
        for (size_t r = 0; r < c->ranks; r++)
            *(r == rank ? &own : &others) += wait_in(&c->facts->ranks[r], row[r], l->waiting);
        if (others / (double)(c->ranks - 1) - own >= 0.5 * l->cost_ms)
            late += c->facts->ranks[rank].weight[row[rank]];
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

/* Ranks that are not here run on other nodes; then the node is part of a rank's name. */
static void name_node(const struct crew *c, char *ret_text, size_t bytes)
{
    ret_text[0] = 0;
    if ((size_t)c->facts->world_size > c->ranks && c->facts->node[0])
        snprintf(ret_text, bytes, ". It runs on node %s", c->facts->node);
}

static void describe(const struct crew *c, size_t rank, const struct lateness *l, struct finding *f)
{
    const struct rank_facts *r = &c->facts->ranks[rank];
    char node[320]; /* a host name has 253 characters at the most */
    double share = l->cost_ms / l->victim_ms;
    long long late = (long long)late_steps(c, rank, l);
    double eval_ms = r->eval_ms / (double)r->steps;
    name_node(c, node, sizeof node);
    if (l->cause >= 0)
        finding_say(f,
                    "r%d %s was slower than median global rank (%.1f/%.1fms). The other ranks wait "
                    "%.1f ms per step for it, %.0f %% of their step, in %lld of %.0f steps%s.",
                    r->rank, leat_phase_names[l->cause], l->own_ms, l->usual_ms, l->cost_ms,
                    100 * share, late, c->weight, node);
    else
        finding_say(f,
                    "r%d was later than median global rank: the other ranks wait %.1f ms per step "
                    "for it, %.0f %% of their step, in %lld of %.0f steps. No single phase "
                    "explains it (largest: %s, %.1f ms more)%s.",
                    r->rank, l->cost_ms, 100 * share, late, c->weight,
                    l->largest >= 0 ? leat_phase_names[l->largest] : "none", l->largest_ms, node);
    if (l->cause == PHASE_INPUT)
        explain_input(c->facts, r, l->own_ms, f);
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

/* Without this rank's lateness the next latest one sets the pace. */
static double gain_without(const struct crew *c, size_t rank, const struct lateness *l)
{
    double least = INFINITY;
    for (size_t r = 0; r < c->ranks; r++)
        if (r != rank && sum_of(c, r, l->waiting) < least)
            least = sum_of(c, r, l->waiting);
    return gain_of(l->victim_ms, l->victim_ms - (least - sum_of(c, rank, l->waiting)));
}

static void judge(const struct crew *c, size_t rank, struct findings *found)
{
    struct lateness l = measure(c, rank);
    const struct rank_facts *r = &c->facts->ranks[rank];
    double share = l.victim_ms > 0 ? l.cost_ms / l.victim_ms : 0;
    if (share < BOUND_WARNING || l.cost_ms < COST_FLOOR * r->cost_ms ||
        fabs(c->mean[rank][PHASES] - l.victim_ms) > LOCK_STEP_RATIO * l.victim_ms)
        return;
    struct finding *f =
        findings_add(found, kind_of(l.cause), SECTION_STEP_TIME, share_severity(share));
    if (!f)
        return;
    f->share = share;
    f->rank = r->rank;
    f->pid = r->pid;
    f->node = c->facts->node[0] ? mem_strdup(c->facts->node) : NULL;
    if (c->facts->node[0] && !f->node)
        found->failed = 1;
    describe(c, rank, &l, f);
    f->predicted_gain = gain_without(c, rank, &l);
    f->at_most = 1;
}

void rule_straggler(const struct facts *facts, struct findings *found)
{
    struct crew c = {.facts = facts, .ranks = facts_world_ranks(facts)};
    if (c.ranks < 2 || !judged_rank(facts))
        return;
    c.mean = mem_alloc_array(c.ranks, sizeof *c.mean);
    c.others = mem_alloc_array(c.ranks, sizeof *c.others);
    int result = c.mean && c.others ? align(&c) : -ENOMEM;
    if (result == 0 && c.steps >= LEAST_STEPS)
        result = average(&c);
    for (size_t r = 0; result == 0 && c.weight >= LEAST_STEPS && r < c.ranks; r++)
        judge(&c, r, found);
    if (result < 0)
        found->failed = 1;
    crew_done(&c);
}
