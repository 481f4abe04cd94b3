/* rule_insufficient.c: INSUFFICIENT DATA: what is missing, and how to get it. One finding, for
 * the first thing that is missing on the way from the process to the step. */
#include "diagnose/rule.h"

#include <leat/recorder.h>

#include <string.h>

static struct finding *add_finding(struct findings *found)
{
    return findings_add(found, KIND_INSUFFICIENT_DATA, SECTION_STEP_TIME, SEVERITY_INFO);
}

/* Without steps, the first process that sent records matters. */
static const struct proc_fact *first_reporting(const struct facts *facts)
{
    for (size_t i = 0; i < facts->proc_count; i++)
        if (facts->procs[i].recorded)
            return &facts->procs[i];
    return NULL;
}

static const struct lost_fact *lost_ranks(const struct facts *facts)
{
    for (size_t i = 0; i < facts->lost_count; i++)
        if (strcmp(facts->lost[i].what, "ranks") == 0 && facts->lost[i].why[0])
            return &facts->lost[i];
    return NULL;
}

static void no_steps(const struct facts *facts, struct findings *found)
{
    const struct proc_fact *reporting = first_reporting(facts);
    const struct lost_fact *lost = lost_ranks(facts);
    struct finding *f = add_finding(found);
    if (lost && (!reporting || !facts->torch[0])) {
        finding_say(f, "No training step was seen: %s", lost->why);
        finding_advise(f, ACTION_KEEP_PYTHONPATH,
                       "Keep the PYTHONPATH that `leat run` sets: append to it instead of "
                       "replacing it, and do not start Python with -I, -E or -S.");
        finding_prove(f, EVIDENCE_SILENT_PROCESSES, (double)lost->n, "lost WHERE what = 'ranks'");
    } else if (!reporting) {
        finding_say(f, "No process of this run imported torch, so there are no training steps.");
        finding_advise(f, ACTION_RUN_TRAINING,
                       "Run a script that trains with PyTorch. If this one does, its Python could "
                       "not load leat: run `leat check`.");
        finding_prove(f, EVIDENCE_REPORTING_PROCESSES, 0, "processes WHERE recorded = 1");
    } else if (!facts->torch[0]) {
        finding_say(f, "The script does not use torch, so there are no training steps.");
        finding_advise(f, ACTION_RUN_TRAINING,
                       "Run a script that trains with PyTorch, or call leat.step() at the end of "
                       "each step of your loop.");
        finding_prove(f, EVIDENCE_TORCH_PROCESSES, 0, "processes WHERE torch IS NOT NULL");
    } else {
        finding_say(f,
                    "torch was imported, but no step was seen: no optimizer stepped and no "
                    "DataLoader returned a batch%s%s.",
                    reporting->missing[0] ? "; hooks not installed: " : "", reporting->missing);
        finding_advise(f, ACTION_MARK_STEPS,
                       "Let the script run until its training loop, or call leat.step() at the end "
                       "of each step.");
        finding_prove(f, EVIDENCE_STEPS, 0, "steps");
    }
}

static void too_few(const struct rank_facts *r, struct findings *found)
{
    struct finding *f = add_finding(found);
    finding_say(f,
                "Only %lld of %lld steps can be judged (%lld were warm-up, %lld compiled the "
                "model); a verdict needs %d.",
                (long long)r->kept, (long long)r->steps, (long long)r->warmup_steps,
                (long long)r->compile_steps, LEAST_STEPS);
    finding_advise(f, ACTION_RUN_LONGER, "Run more steps: a full verdict needs at least 20.");
    finding_prove(f, EVIDENCE_KEPT_STEPS, (double)r->kept, "steps WHERE id>>40 = %d", r->rank);
}

static void too_short(const struct rank_facts *r, struct findings *found)
{
    struct finding *f = add_finding(found);
    double wall_ms = step_mean(r);
    finding_say(f,
                "A step takes %.3f ms. That is less than ten times leat's own cost of %.3f ms per "
                "step, so its phases cannot be judged.",
                wall_ms, r->cost_ms);
    finding_advise(
        f, ACTION_LENGTHEN_STEPS,
        "Make steps longer: use larger batches, or call leat.step() once every few iterations.");
    finding_prove(f, EVIDENCE_STEP_TIME, wall_ms, "steps WHERE id>>40 = %d", r->rank);
    finding_prove(f, EVIDENCE_LEAT_COST, r->cost_ms, "processes WHERE rank = %d AND role = 'main'",
                  r->rank);
}

static void missing_signal(const struct facts *facts, const struct rank_facts *r,
                           struct findings *found)
{
    const char *why = "";
    for (size_t i = 0; i < facts->proc_count; i++)
        if (facts->procs[i].pid == r->pid)
            why = facts->procs[i].missing;
    struct finding *f = add_finding(found);
    finding_say(f,
                "leat could not see when batches arrived, so it cannot separate waiting for input "
                "from computing%s%s.",
                why[0] ? ": " : "", why);
    finding_advise(
        f, ACTION_MARK_INPUT,
        "Iterate over leat.wrap_loader(loader), or fetch batches inside leat.phase(\"input\").");
    finding_prove(f, EVIDENCE_PROCESSES_WITHOUT_FETCH, 1, "processes WHERE pid = %lld",
                  (long long)r->pid);
}

void rule_insufficient(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = typical_rank(facts);
    if (!r)
        no_steps(facts, found);
    else if (r->kept < LEAST_STEPS || !(r->kept_ms > 0))
        too_few(r, found);
    else if (!judged_rank(facts))
        too_short(r, found);
    else if (!(r->signals & LEAT_SIGNAL_FETCH) && !step_time_warned(found))
        missing_signal(facts, r, found);
}
