/* rule_balanced.c: BALANCED: no phase takes too much time, and nothing that was needed is
 * missing. The last of the step-time rules: it fires when no other one did. */
#include "diagnose/rule.h"

void rule_balanced(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    if (!r)
        return;
    for (size_t i = 0; i < found->count; i++)
        if (found->items[i].section == SECTION_STEP_TIME && !found->items[i].remark)
            return;
    struct finding *f = findings_add(found, KIND_BALANCED, SECTION_STEP_TIME, SEVERITY_INFO);
    if (!f)
        return;
    double compute = phase_share(r, PHASE_FORWARD) + phase_share(r, PHASE_BACKWARD) +
                     phase_share(r, PHASE_OPTIMIZER);
    double wait = phase_share(r, PHASE_SYNC) + phase_share(r, PHASE_OTHER);
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    finding_say(f,
                "No phase takes too much of the step time: input %.0f %%, compute %.0f %%, waiting "
                "%.0f %%.",
                100 * phase_share(r, PHASE_INPUT), 100 * compute, 100 * wait);
    finding_advise(f, ACTION_NOTHING, "Nothing needs to change.");
    note_missing_loader(f, facts);
    finding_prove(f, EVIDENCE_INPUT_SHARE, phase_share(r, PHASE_INPUT), "steps WHERE id>>40 = %d",
                  r->rank);
    finding_prove(f, EVIDENCE_COMPUTE_SHARE, compute, "steps WHERE id>>40 = %d", r->rank);
    finding_prove(f, EVIDENCE_WAIT_SHARE, wait, "steps WHERE id>>40 = %d", r->rank);
}
