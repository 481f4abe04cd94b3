/* loader_report.c: what a loader says of itself: figures, errors, plan. */
#include "load/loader_report.h"

#include "base/clock.h"
#include "load/engine.h"

#include <stdio.h>
#include <string.h>

/* The calls below change nothing that a caller can see, but the lock is a lock. */
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
    s.slot_bytes = l->slot_bytes + l->room_most_bytes;
    s.memory_bytes = atomic_load(&l->budget.used_bytes);
    s.memory_most_bytes = l->options.memory_bytes;
    pthread_mutex_unlock(&l->lock);
    *ret_stats = s;
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
    recorder->part(recorder_id(l), LEAT_PART_READY, (uint64_t)ready, 0);
}

static void tell_engine(const struct leat_loader *l)
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

/* What was added since the last time, so that several engines of one loader make one sum. */
void report_stages(struct leat_loader *l)
{
    if (l->options.recorder_loader <= 0 || !recorder->recording())
        return;
    if (l->told.threads != l->active || l->told.ahead != l->options.ahead)
        tell_engine(l);
#define X(name) .name = l->stats.name - l->told.name,
    struct leat_stages more = {LEAT_STAGES(X)};
#undef X
    recorder->stages(recorder_id(l), &more);
    l->told = l->stats;
    l->told.threads = l->active;
    l->told.ahead = l->options.ahead;
}

/* ---- plan -------------------------------------------------------------------------------------
 */
static void order_text(const struct leat_loader_options *o, char *text, size_t bytes)
{
    switch (o->order) {
    case LEAT_ORDER_SEQUENTIAL: snprintf(text, bytes, "sequential"); return;
    case LEAT_ORDER_FULL: snprintf(text, bytes, "full permutation, computed, not stored"); return;
    case LEAT_ORDER_QUASI:
        snprintf(text, bytes, "quasi: blocks of %lld samples shuffled, %lld of them mixed",
                 (long long)o->block, (long long)o->mix);
        return;
    case LEAT_ORDER_WINDOW:
        snprintf(text, bytes, "shuffled within windows of %lld samples", (long long)o->window);
        return;
    case LEAT_ORDER_GIVEN: snprintf(text, bytes, "given by the caller, batch by batch"); return;
    }
}

static const char *layout_text(const struct batch_layout *layouts)
{
    static const char *const kinds[] = {"; samples of different length as lists",
                                        "; samples of different length padded",
                                        "; samples of different length joined"};
    const char *said = NULL;
    for (uint32_t f = 0; f < layouts->fields; f++) {
        const char *kind = kinds[layouts->field[f].kind];
        if (layouts->field[f].variable && said && said != kind)
            return "; samples of different length in several ways";
        if (layouts->field[f].variable)
            said = kind;
    }
    return said ? said : "";
}

int leat_loader_plan(const struct leat_loader *loader, char *text, size_t bytes)
{
    static const char *const on_error[] = {"raise", "skip", "replace"};
    const struct leat_loader_options *o = &loader->options;
    char order[128], device[96] = "cpu";
    order_text(o, order, sizeof order);
    if (loader->device)
        snprintf(device, sizeof device, "cuda:%d, %s, at most %.1f MiB", loader->device->ordinal,
                 loader->rows.memory ? "gathered there" : "copied from page-locked slots",
                 (double)loader->device->most_bytes / (1 << 20));
    return snprintf(text, bytes,
                    "source: %s\n"
                    "order: %s; seed %llu; rank %d of %d\n"
                    "decode: %s\n"
                    "operators: none\n"
                    "batch: %lld samples%s, %.1f MiB, rows without gaps%s\n"
                    "threads: %d (%s), %s; pieces of %lld samples\n"
                    "slots: %d ahead, at most %lld (%.1f MiB)\n"
                    "on_error: %s\n"
                    "device: %s\n",
                    loader->source->text, order, (unsigned long long)o->seed, o->rank,
                    o->world_size, leat_source_decode(loader->source), (long long)o->batch_size,
                    o->drop_last ? ", whole only" : "", (double)loader->layout.bytes / (1 << 20),
                    layout_text(&loader->layouts), loader->active, pace_text(loader->pace.why),
                    o->no_help ? "the consumer only waits" : "and the consumer while it waits",
                    (long long)loader->piece, o->ahead, (long long)loader->most_slots,
                    (double)o->memory_bytes / (1 << 20), on_error[o->on_error], device);
}
