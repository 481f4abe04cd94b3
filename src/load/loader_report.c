/* loader_report.c: the statistics and errors of a loader, for its caller and for `leat run`. */
#include "load/loader_report.h"

#include "base/clock.h"
#include "load/engine.h"

#include <string.h>

/* const for the caller, but the lock changes. */
static struct leat_loader *enter(const struct leat_loader *loader)
{
    struct leat_loader *l = (struct leat_loader *)loader;
    engine_enter(l);
    pthread_mutex_lock(&l->lock);
    return l;
}

void leat_loader_stats(const struct leat_loader *loader, struct leat_loader_stats *ret_stats)
{
    struct leat_loader *l = enter(loader);
    struct leat_loader_stats s = l->stats;
    s.elapsed_ns = l->first_start_ns ? clock_now_ns() - l->first_start_ns : 0;
    s.threads = l->active;
    s.ahead = l->options.ahead;
    s.pace_changes = l->pace.changes;
    s.pace = pace_text(l->pace.why);
    s.slots = (int32_t)l->with_memory;
    s.slots_held = (int32_t)l->held;
    s.slot_bytes = l->slot_bytes + l->arena_max_bytes;
    s.memory_bytes = atomic_load(&l->budget.used_bytes);
    s.memory_most_bytes = l->options.memory_bytes;
    s.resident = l->rows.memory != 0;
    pthread_mutex_unlock(&l->lock);
    *ret_stats = s;
}

int leat_loader_nearly_full(const struct leat_loader *loader)
{
    struct leat_loader *l = enter(loader);
    uint64_t slot_bytes = l->slot_bytes + l->arena_max_bytes, held = (uint64_t)l->held;
    pthread_mutex_unlock(&l->lock);
    uint64_t most = slot_bytes ? l->options.memory_bytes / slot_bytes : 2;
    uint64_t limit = most - most / 4; /* the other quarter is for batches made ahead */
    return held >= (limit < 2 ? 2 : limit);
}

size_t leat_loader_errors(const struct leat_loader *loader, size_t first,
                          struct leat_loader_error *errors, size_t capacity)
{
    struct leat_loader *l = enter(loader);
    size_t count = first < l->errors_count ? l->errors_count - first : 0;
    if (count > capacity)
        count = capacity;
    if (count)
        memcpy(errors, l->errors + first, count * sizeof *errors);
    pthread_mutex_unlock(&l->lock);
    return count;
}

/* ---- leat run ---------------------------------------------------------------------------------
 */
static const struct leat_recorder_calls *recorder = &leat_recorder_calls;

void loader_report_to(const struct leat_recorder_calls *calls)
{
    recorder = calls;
}

static uint32_t recorder_id(const struct leat_loader *l)
{
    return (uint32_t)l->options.recorder_loader - 1;
}

void report_batch(const struct leat_loader *l, const struct slot *slot, int ready)
{
    if (l->options.recorder_loader <= 0)
        return;
    recorder->part(recorder_id(l), LEAT_PART_FETCH, slot->read_ns, l->layout.bytes);
    recorder->ready(recorder_id(l), (uint64_t)ready);
}

static void report_engine(const struct leat_loader *l)
{
    static const char *const orders[] = {"sequential", "full", "quasi", "window", "given"};
    struct leat_engine_info info = {.threads = l->active,
                                    .cores = l->cores < 1 ? 1 : (int32_t)l->cores,
                                    .ahead = l->options.ahead,
                                    .memory_bytes = l->options.memory_bytes,
                                    .source = l->source->text,
                                    .order = orders[l->options.order]};
    recorder->engine(recorder_id(l), &info);
}

/* The growth since the last report, so that several engines of one loader add up. */
void report_stages(struct leat_loader *l)
{
    if (l->options.recorder_loader <= 0 || !recorder->recording())
        return;
    if (l->reported.threads != l->active || l->reported.ahead != l->options.ahead)
        report_engine(l);
#define X(name) .name = l->stats.name - l->reported.name,
    struct leat_stages more = {LEAT_STAGES(X)};
#undef X
    recorder->stages(recorder_id(l), &more);
    l->reported = l->stats;
    l->reported.threads = l->active;
    l->reported.ahead = l->options.ahead;
}
