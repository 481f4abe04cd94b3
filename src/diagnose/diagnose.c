/* diagnose.c: applies the table of rules and makes one list of their findings: severities capped,
 * intervals filled in, the run's verdict first.
 *
 * The order is total, so that the same database always gives the same list:
 *   1. what stopped or slowed the whole run (OOM, throttling, memory that will be full) first,
 * remarks last;
 *   2. the share of time that the finding would give back; on a tie stragglers first;
 *   3. severity;
 *   4. step time before other sections; then the order of the rules. */
#include "diagnose/rule.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Shares closer than this are a tie: half a percent of the time is not measurable in one run. */
#define TIE_SHARE 0.005

static int comes_before(const struct finding *a, const struct finding *b)
{
    if (a->stops_run != b->stops_run)
        return a->stops_run;
    if (a->remark != b->remark)
        return b->remark;
    if (fabs(a->share - b->share) > TIE_SHARE)
        return a->share > b->share;
    if (finding_is_straggler(a) != finding_is_straggler(b))
        return finding_is_straggler(a);
    if (a->severity != b->severity)
        return a->severity > b->severity;
    return a->section < b->section;
}

/* Insertion sort is stable: findings that tie stay in the order of the rules. There are only a
 * few. */
static void order(struct findings *list)
{
    for (size_t i = 1; i < list->count; i++)
        for (size_t j = i; j > 0 && comes_before(&list->items[j], &list->items[j - 1]); j--) {
            struct finding swap = list->items[j];
            list->items[j] = list->items[j - 1];
            list->items[j - 1] = swap;
        }
}

/* A text is NULL only when its allocation failed. */
static int is_whole(const struct finding *f)
{
    int whole = !f->failed && f->summary && f->action && f->action_code != ACTION_NONE &&
                f->evidence_count > 0;
    for (size_t i = 0; whole && i < f->evidence_count; i++)
        whole = f->evidence[i].what && f->evidence[i].rows;
    for (size_t i = 0; whole && i < f->where_count; i++)
        whole = f->where[i].file != NULL;
    return whole;
}

static void finish(const struct facts *facts, struct finding *f)
{
    const struct rank_facts *r = typical_rank(facts);
    if (f->section == SECTION_STEP_TIME && r && r->kept < CAPPED_STEPS &&
        f->severity > SEVERITY_WARNING)
        f->severity = SEVERITY_WARNING;
    if (f->to_ms > f->from_ms)
        return;
    kept_interval(r, &f->from_ms, &f->to_ms);
    if (!(f->to_ms > f->from_ms)) {
        f->from_ms = 0;
        f->to_ms = facts->duration_ms;
    }
}

int diagnose(const struct facts *facts, struct findings *ret_findings, struct leat_err *err)
{
    struct findings list = {0};
    for (size_t i = 0; i < rule_count && !list.failed; i++)
        rules[i].apply(facts, &list);
    for (size_t i = 0; i < list.count; i++) {
        if (!is_whole(&list.items[i]))
            list.failed = 1;
        else
            finish(facts, &list.items[i]);
    }
    if (list.failed) {
        findings_done(&list);
        return err_set(err, -ENOMEM, "Not enough memory to diagnose the run.");
    }
    assert(list.count > 0); /* when no other rule fires, BALANCED or INSUFFICIENT DATA does */
    order(&list);
    *ret_findings = list;
    return 0;
}
