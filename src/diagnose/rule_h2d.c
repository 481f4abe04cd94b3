/* rule_h2d.c: H2D-BOUND: the training waits for copies to the device. Where the device has a clock,
 * only what its stream spent in copies counts. */
#include "diagnose/rule.h"

void rule_h2d(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    double share = r ? bound_share(r, 1u << PHASE_H2D, found) : 0;
    double exposed = r ? exposed_share(facts, r, share, "h2d") : 0;
    if (!(exposed > 0))
        return;
    double wall_ms = r->kept_ms / (double)r->kept;
    double h2d_ms = exposed < share ? exposed * wall_ms : phase_mean(r, PHASE_H2D);
    share = exposed;
    const struct loader_fact *loader = feeding_loader(facts, r->rank);
    struct finding *f = findings_add(found, "H2D-BOUND", SECTION_STEP_TIME, share_severity(share));
    if (!f)
        return;
    f->share = share;
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    finding_say(f,
                "Copies to the device hold up the step for %.0f %% of its time: %.2f ms of %.2f "
                "ms a step.",
                100 * share, h2d_ms, wall_ms);
    finding_prove(f, "h2d share", share, "ratio", "steps WHERE id>>40 = %d", r->rank);
    finding_prove(f, "h2d per step", h2d_ms, "ms", "steps WHERE id>>40 = %d", r->rank);
    prove_exposed(f, facts, r, "h2d");
    if (loader && loader->pin_memory == 1) {
        finding_advise(f, "Batches are pinned already: copy them with .to(device, "
                          "non_blocking=True), and send smaller types (uint8 images, float16).");
    } else {
        finding_advise(f, "Pin the batches and copy them without waiting: DataLoader(..., "
                          "pin_memory=True) and .to(device, non_blocking=True).");
    }
    if (loader && loader->pin_memory >= 0)
        finding_prove(f, "pin_memory", (double)loader->pin_memory, "flag",
                      "loaders WHERE pid = %lld AND loader = %d", (long long)loader->pid,
                      loader->loader);
    if (loader)
        finding_place(f, loader->where, share, "the step");
    /* A copy that overlaps costs nothing as long as the rest of the step is longer. */
    double rest_ms = wall_ms - h2d_ms;
    f->predicted_gain = gain_of(wall_ms, rest_ms > h2d_ms ? rest_ms : h2d_ms);
}
