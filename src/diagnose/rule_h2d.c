/* rule_h2d.c: H2D-BOUND: the training waits for copies to the device. Where the device has a
 * clock, the time that its stream spent in copies counts, and its idle time after copies that
 * the host waited for: a copy delays the stream even if the host does not wait. The lines that
 * copy are named where they are known. */
#include "diagnose/rule.h"

/* Speed of copies of pinned memory over pageable: 55.4 and 18.3 GB/s on PCIe 5 (docs/gpu.md). */
#define PINNED_SPEEDUP 3.0
/* A smaller copy ends before the next one is started: then the number of copies matters. */
#define SMALL_COPY_BYTES (64.0 * 1024)
#define MANY_COPIES      16.0

static double share_of(const struct facts *facts, const struct rank_facts *r,
                       struct findings *found)
{
    struct gpu_share gpu;
    if (!gpu_share_of(facts, r, CLOCK_PHASE(H2D), &gpu))
        return bound_share(r, 1u << PHASE_H2D, found);
    double idle_ms = gpu.idle * step_mean(r);
    return gpu.idle >= BOUND_WARNING && idle_ms >= COST_FLOOR * r->cost_ms ? gpu.idle : 0;
}

/* Bytes per step in CUDA calls of a class. */
static double copied_bytes(const struct facts *facts, const struct rank_facts *r,
                           enum leat_cuda_class class)
{
    double bytes = 0;
    for (size_t i = 0; i < facts->cuda_call_count; i++)
        if (facts->cuda_calls[i].pid == r->pid && facts->cuda_calls[i].class == class)
            bytes += facts->cuda_calls[i].bytes / (double)r->steps;
    return bytes;
}

/* The lines whose copies are waited for, if they delay the step: when there are many copies, or
 * at least half of all copied bytes. */
static void find_copies(const struct facts *facts, const struct rank_facts *r,
                        struct device_lines *ret)
{
    double all = copied_bytes(facts, r, LEAT_CUDA_H2D_PINNED) +
                 copied_bytes(facts, r, LEAT_CUDA_H2D_PAGEABLE);
    device_lines_find(facts, r, DEVICE_COPY_LINES, ret);
    if (ret->n < MANY_COPIES && ret->bytes < 0.5 * all)
        *ret = (struct device_lines){0};
}

/* An overlapped copy costs nothing as long as the rest of the step is longer. */
static double overlapped(double wall_ms, double h2d_ms)
{
    double rest_ms = wall_ms - h2d_ms;
    return rest_ms > h2d_ms ? rest_ms : h2d_ms;
}

static void advise_pinned(struct finding *f, const char *at)
{
    finding_advise(f, ACTION_COPY_ON_STREAM,
                   "The batches are pinned. Copy the next batch on its own CUDA stream while the "
                   "GPU computes: leat.DataLoader(..., device=\"cuda\") does this; without it, "
                   "call .to(device, non_blocking=True)%s%s inside torch.cuda.stream(...). Or copy "
                   "fewer bytes: uint8 images, float16.",
                   at ? " at " : "", at ? at : "");
}

/* Share of the delay that is not copying: the host waited for a copy, and then the device for
 * the host. */
static double waiting_part(const struct facts *facts, const struct rank_facts *r)
{
    double copying = 0, waiting = 0;
    for (size_t i = 0; i < facts->gpu_phase_count; i++) {
        const struct gpu_phase *p = &facts->gpu_phases[i];
        if (p->pid == r->pid && p->phase == LEAT_CLOCK_H2D)
            copying += p->idle_ms;
        else if (p->pid == r->pid && p->phase == LEAT_CLOCK_SYNC)
            waiting += p->idle_ms * waits_of_copies(facts, r);
        else if (p->pid == r->pid && p->phase == LEAT_CLOCK_LAUNCH)
            waiting += p->idle_ms * waits_of_copies(facts, r) * launches_after_waits(facts, r);
    }
    return waiting > 0 ? waiting / (copying + waiting) : 0;
}

/* Returns the predicted step. */
static double advise_lines(struct finding *f, const struct device_lines *copies, double waiting,
                           double wall_ms, double h2d_ms)
{
    const struct cuda_line *first = copies->lines[0];
    double saved_ms;
    if (copies->n >= MANY_COPIES && copies->bytes < SMALL_COPY_BYTES * copies->n) {
        finding_advise(
            f, ACTION_MERGE_COPIES,
            "%s makes %.0f copies of %.0f bytes per step: join them into one tensor (torch.cat, "
            "collate_fn) and copy that with pin_memory=True and non_blocking=True.",
            copies->at, copies->n, copies->bytes / copies->n);
        saved_ms = h2d_ms * (1 - 1 / copies->n);
    } else if (first->kind == CUDA_LINE_PAGEABLE_COPY) {
        finding_advise(f, ACTION_PIN_AND_OVERLAP,
                       "%s copies pageable memory: use DataLoader(..., pin_memory=True), and "
                       ".to(device, non_blocking=True) on that line.",
                       copies->at);
        finding_offer(f, ACTION_USE_LEAT_LOADER,
                      "leat.DataLoader(..., device=\"cuda\") copies the next batch on its own CUDA "
                      "stream while the GPU computes.");
        saved_ms = h2d_ms * (waiting + (1 - waiting) * (1 - 1 / PINNED_SPEEDUP));
    } else if (waiting > 0.5) {
        finding_advise(f, ACTION_COPY_ASYNC,
                       "Python waits at %s until the copy is done, and then the GPU waits for "
                       "Python: use .to(device, non_blocking=True) on that line.",
                       copies->at);
        saved_ms = h2d_ms * waiting;
    } else {
        advise_pinned(f, copies->at);
        return overlapped(wall_ms, h2d_ms);
    }
    return wall_ms - saved_ms;
}

static void say_share(struct finding *f, const struct device_lines *copies, double wall_ms,
                      double h2d_ms)
{
    if (copies->count == 0) {
        finding_say(f,
                    "Copies to the device delay the step by %.0f %% of its time: %.2f ms of %.2f "
                    "ms per step.",
                    100 * f->share, h2d_ms, wall_ms);
        return;
    }
    const char *how = copies->lines[0]->kind == CUDA_LINE_PAGEABLE_COPY
                          ? "copies pageable memory"
                          : "waits for each copy (non_blocking=True is missing)";
    finding_say(f,
                "Copies to the device delay the step by %.0f %% of its time: %.2f ms of %.2f ms "
                "per step. %s %s, %.3g MB per step.",
                100 * f->share, h2d_ms, wall_ms, copies->at, how, copies->bytes / 1e6);
}

static void prove_lines(struct finding *f, const struct device_lines *copies,
                        const struct rank_facts *r, double h2d_ms)
{
    if (copies->count == 0)
        return;
    finding_prove(f, EVIDENCE_COPIES, copies->n, "cuda_lines WHERE pid = %lld", (long long)r->pid);
    finding_prove(f, EVIDENCE_COPY_RATE, copies->bytes / (h2d_ms * 1e6),
                  "cuda_lines WHERE pid = %lld", (long long)r->pid);
}

/* For when no line waits for its copies, or none is known. Returns the predicted step. */
static double advise_loader(struct finding *f, const struct facts *facts,
                            const struct loader_fact *loader, const struct rank_facts *r,
                            double wall_ms, double h2d_ms)
{
    if (copied_bytes(facts, r, LEAT_CUDA_H2D_PINNED) >
        copied_bytes(facts, r, LEAT_CUDA_H2D_PAGEABLE))
        advise_pinned(f, NULL);
    else if (loader && loader->pin_memory == 1)
        finding_advise(f, ACTION_COPY_ASYNC,
                       "The batches are pinned already: copy them with .to(device, "
                       "non_blocking=True), and copy smaller types (uint8 images, float16).");
    else
        finding_advise(f, ACTION_PIN_AND_OVERLAP,
                       "Pin the batches and copy them without waiting: DataLoader(..., "
                       "pin_memory=True) and .to(device, non_blocking=True).");
    if (loader)
        finding_place(f, loader->where, f->share, "the step");
    return overlapped(wall_ms, h2d_ms);
}

void rule_h2d(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    double share = r ? share_of(facts, r, found) : 0;
    if (!(share > 0))
        return;
    double wall_ms = step_mean(r), h2d_ms = share * wall_ms;
    const struct loader_fact *loader = feeding_loader(facts, r->rank);
    struct device_lines copies;
    find_copies(facts, r, &copies);
    struct finding *f =
        findings_add(found, KIND_H2D_BOUND, SECTION_STEP_TIME, share_severity(share));
    if (!f)
        return;
    f->share = share;
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    say_share(f, &copies, wall_ms, h2d_ms);
    finding_prove(f, EVIDENCE_H2D_SHARE, share, "steps WHERE id>>40 = %d", r->rank);
    finding_prove(f, EVIDENCE_H2D_TIME, h2d_ms, "steps WHERE id>>40 = %d", r->rank);
    prove_exposed(f, facts, r, CLOCK_PHASE(H2D));
    prove_lines(f, &copies, r, h2d_ms);
    if (loader && loader->pin_memory >= 0)
        finding_prove(f, EVIDENCE_PIN_MEMORY, (double)loader->pin_memory,
                      "loaders WHERE pid = %lld AND loader = %d", (long long)loader->pid,
                      loader->loader);
    device_lines_place(f, &copies, r, "the copies");
    double new_ms = copies.count > 0
                        ? advise_lines(f, &copies, waiting_part(facts, r), wall_ms, h2d_ms)
                        : advise_loader(f, facts, loader, r, wall_ms, h2d_ms);
    f->predicted_gain = gain_of(wall_ms, new_ms);
}
