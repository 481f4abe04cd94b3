/* rule_wait.c: WAIT-HEAVY: time in which neither the input nor the model worked: blocked on the
 * device or a collective (sync), or outside of all phases (other). Names the largest known part.
 *
 * A wait that a late rank explains is not reported twice: what the straggler rule charged to a rank
 * is subtracted from the sync time of the others.
 *
 * Where the device has a clock and is idle after a line that waits for it in every step, that line
 * is the cause, however short the wait was: no queued work hides what Python does next. Without the
 * wait the step takes as long as the host or the device works, whichever is longer; the line is
 * named when that removes at least half of the idle time. */
#include "diagnose/rule.h"

#include <stdio.h>

/* Spans that leat names itself and that are no part of `other` in a step that trains. */
static int is_accounted(const struct span_fact *s)
{
    return s->kind == SPAN_EVAL || s->kind == SPAN_COMPILE || s->kind == SPAN_EPOCH_START;
}

struct part {
    char name[64];
    double ms; /* per step of the whole run */
    int is_span, is_checkpoint;
};

/* The largest span inside `other`, or inside `sync` (a span without a part in `other`, such as a
 * collective). Totals are of the whole run, so they are compared per step of the whole run. */
static struct part largest_span(const struct facts *facts, const struct rank_facts *r, int in_sync)
{
    struct part best = {0};
    for (size_t i = 0; i < facts->span_count; i++) {
        const struct span_fact *s = &facts->spans[i];
        if (s->rank != r->rank || is_accounted(s) || r->steps <= 0)
            continue;
        if (in_sync && (s->other_ms > 0 || s->kind == SPAN_CHECKPOINT))
            continue;
        double ms = (in_sync ? s->total_ms : s->other_ms) / (double)r->steps;
        if (ms > best.ms) {
            snprintf(best.name, sizeof best.name, "%s", s->name);
            best.ms = ms;
            best.is_span = 1;
            best.is_checkpoint = s->kind == SPAN_CHECKPOINT;
        }
    }
    return best;
}

/* The part of `other` that no span names, per step. The user's spans may be nested, so their sum
 * may be larger than `other`. */
static double unnamed_other(const struct facts *facts, const struct rank_facts *r, double other_ms)
{
    double named = 0;
    for (size_t i = 0; r->steps > 0 && i < facts->span_count; i++) {
        const struct span_fact *s = &facts->spans[i];
        if (s->rank == r->rank && !is_accounted(s))
            named += s->other_ms / (double)r->steps;
    }
    return named < other_ms ? other_ms - named : 0;
}

static void prove_span(struct finding *f, const struct rank_facts *r, const struct part *span)
{
    /* The user chose the name: SQL needs its quotes doubled. */
    char name[2 * sizeof span->name];
    size_t n = 0;
    for (const char *c = span->name; *c; c++) {
        if (*c == '\'')
            name[n++] = '\'';
        name[n++] = *c;
    }
    name[n] = 0;
    if (span->is_span)
        finding_prove_named(f, EVIDENCE_SPAN_TIME, span->name, span->ms,
                            "span_totals WHERE rank = %d AND name = '%s'", r->rank, name);
}

/* The part of the typical rank's sync share that stragglers explain. */
static double explained_share(const struct findings *found, double sync_share)
{
    double worst = 0;
    for (size_t i = 0; i < found->count; i++) {
        const struct finding *f = &found->items[i];
        if (finding_is_straggler(f) && f->share > worst)
            worst = f->share;
    }
    return worst < sync_share ? worst : sync_share;
}

static void name_other(struct finding *f, const struct facts *facts, const struct rank_facts *r,
                       double unnamed_ms)
{
    struct part span = largest_span(facts, r, 0);
    if (span.is_span && span.ms >= unnamed_ms && span.is_checkpoint) {
        finding_advise(
            f, ACTION_SAVE_LESS_OFTEN,
            "Saving checkpoints (torch.save) is the largest part. Save less often, or save a copy "
            "of the state in a background thread (torch.distributed.checkpoint.async_save).");
    } else if (span.is_span && span.ms >= unnamed_ms) {
        finding_advise(f, ACTION_REDUCE_PHASE,
                       "The phase \"%s\" is the largest part: do it less often, or outside the "
                       "training loop.",
                       span.name);
        finding_argument(f, "phase=%s", span.name);
    } else {
        finding_advise(f, ACTION_MARK_PHASES,
                       "The time is outside of fetch, forward, backward and optimizer step: "
                       "between backward and optimizer, or after the optimizer (logging, metrics, "
                       "printing, .cpu()). Put leat.phase(\"name\") around suspects to find it.");
        note_missing_loader(f, facts);
    }
    prove_span(f, r, &span);
}

static void name_sync(struct finding *f, const struct facts *facts, const struct rank_facts *r,
                      double sync_ms)
{
    struct part span = largest_span(facts, r, 1);
    if (span.ms >= 0.5 * sync_ms) {
        finding_advise(f, ACTION_REDUCE_PHASE,
                       "Most of it is spent in %s: call it less often, or let it overlap with "
                       "backward (DistributedDataParallel does this).",
                       span.name);
        finding_argument(f, "phase=%s", span.name);
    } else
        finding_advise(f, ACTION_AVOID_SYNC,
                       "The step waits for the device or for other ranks: avoid .item(), .cpu() "
                       "and synchronize() in every step.");
    prove_span(f, r, &span);
}

/* Phases of the device's clock in which it waits for something other than batches and copies. */
#define DEVICE_WAITS                                                                               \
    (CLOCK_PHASE(SYNC) | CLOCK_PHASE(COLLECTIVE) | CLOCK_PHASE(ALLOCATOR) | CLOCK_PHASE(OTHER))

/* 1, with the finding filled in, when lines that wait for the device explain it. */
static int explain_by_lines(struct finding *f, const struct facts *facts,
                            const struct rank_facts *r, double wall_ms)
{
    struct gpu_share gpu;
    struct device_lines waits, copies;
    device_lines_find(facts, r, DEVICE_WAIT_LINES, &waits);
    device_lines_find(facts, r, DEVICE_COPY_LINES, &copies);
    if (waits.count == 0 || !gpu_share_of(facts, r, DEVICE_WAITS, &gpu))
        return 0;
    double new_ms = step_without_waits(facts, r), idle_ms = f->share * wall_ms;
    if (wall_ms - new_ms < 0.5 * idle_ms)
        return 0;
    char often[32] = "once";
    if (waits.n >= 1.5)
        snprintf(often, sizeof often, "%.3g times", waits.n);
    finding_say(f,
                "%s waits for the GPU %s per step. After each wait the GPU is idle until Python "
                "launches new work: %.0f %% of the step time, %.2f ms of %.2f ms.",
                waits.at, often, 100 * f->share, idle_ms, wall_ms);
    finding_advise(f, ACTION_AVOID_SYNC,
                   "At %s avoid .item(), .cpu(), print(), synchronize() and barrier(): keep the "
                   "value on the GPU (.detach()) and read it about every 50 steps%s%s%s.",
                   waits.at, copies.count ? "; copies that wait have the same effect, at " : "",
                   copies.at, copies.count ? " (pin_memory=True, non_blocking=True)" : "");
    finding_argument(f, "at=%s", waits.at);
    finding_prove(f, EVIDENCE_WAITS, waits.n, "cuda_lines WHERE pid = %lld", (long long)r->pid);
    device_lines_place(f, &waits, r, "the waits for the GPU");
    f->predicted_gain = gain_of(wall_ms, new_ms);
    return 1;
}

void rule_wait(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    double share = r ? bound_share(r, 1u << PHASE_SYNC | 1u << PHASE_OTHER, found) : 0;
    if (share > 0)
        share -= explained_share(found, phase_share(r, PHASE_SYNC));
    double host_share = share;
    if (share > 0) /* waiting for a device that works costs nothing */
        share = exposed_share(facts, r, share, DEVICE_WAITS);
    if (share < BOUND_WARNING)
        return;
    double sync_ms = phase_mean(r, PHASE_SYNC), other_ms = phase_mean(r, PHASE_OTHER);
    double wall_ms = step_mean(r);
    struct finding *f =
        findings_add(found, KIND_WAIT_HEAVY, SECTION_STEP_TIME, share_severity(share));
    if (!f)
        return;
    f->share = share;
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    int in_sync = sync_ms > other_ms;
    struct part span = largest_span(facts, r, in_sync);
    double unnamed_ms = unnamed_other(facts, r, other_ms);
    int is_named = span.is_span && span.ms >= (in_sync ? 0.5 * sync_ms : unnamed_ms);
    finding_prove(f, EVIDENCE_WAIT_SHARE, share, "steps WHERE id>>40 = %d", r->rank);
    finding_prove(f, EVIDENCE_SYNC_TIME, sync_ms, "steps WHERE id>>40 = %d", r->rank);
    finding_prove(f, EVIDENCE_OTHER_TIME, other_ms, "steps WHERE id>>40 = %d", r->rank);
    prove_exposed(f, facts, r, DEVICE_WAITS);
    if (explain_by_lines(f, facts, r, wall_ms))
        return;
    finding_say(f,
                "Waiting outside of input and compute takes %.0f %% of the step time: %.2f ms of "
                "%.2f ms per step. The largest part is %s (%.2f ms).",
                100 * share, share < host_share ? share * wall_ms : sync_ms + other_ms, wall_ms,
                is_named  ? span.name
                : in_sync ? "waiting for the device or for other ranks"
                          : "outside of all known phases",
                is_named  ? span.ms
                : in_sync ? sync_ms
                          : unnamed_ms);
    if (in_sync)
        name_sync(f, facts, r, sync_ms);
    else
        name_other(f, facts, r, unnamed_ms);
    f->predicted_gain = gain_of(wall_ms, wall_ms * (1 - share));
    f->at_most = 1;
}
