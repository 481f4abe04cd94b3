/* rule_input.c: INPUT-BOUND: the training waits for batches. The share is of kept time on the
 * typical rank; a single rank that waits for its input is an INPUT STRAGGLER (rule_straggler.c).
 * Where the device has a clock, only waits count in which the device was idle. */
#include "diagnose/rule.h"

void rule_input(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    double share = r ? bound_share(r, 1u << PHASE_INPUT, found) : 0;
    double exposed = r ? exposed_share(facts, r, share, CLOCK_PHASE(INPUT)) : 0;
    if (!(exposed > 0))
        return;
    double wall_ms = step_mean(r);
    double input_ms = exposed < share ? exposed * wall_ms : phase_mean(r, PHASE_INPUT);
    share = exposed;
    struct finding *f =
        findings_add(found, KIND_INPUT_BOUND, SECTION_STEP_TIME, share_severity(share));
    if (!f)
        return;
    f->share = share;
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    finding_say(f,
                "Waiting for batches takes %.0f %% of the step time: %.2f ms of %.2f ms per step.",
                100 * share, input_ms, wall_ms);
    finding_prove(f, EVIDENCE_INPUT_SHARE, share, "steps WHERE id>>40 = %d", r->rank);
    finding_prove(f, EVIDENCE_INPUT_TIME, input_ms, "steps WHERE id>>40 = %d", r->rank);
    finding_prove(f, EVIDENCE_STEP_TIME, wall_ms, "steps WHERE id>>40 = %d", r->rank);
    prove_exposed(f, facts, r, CLOCK_PHASE(INPUT));
    explain_input(facts, r, input_ms, f);
}
