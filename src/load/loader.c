/* loader.c: the public calls that make, run and close a loader; see engine.h for the design. */
#include "load/engine.h"

#include "base/clock.h"
#include "base/mem.h"

#include <unistd.h>

/* ---- making and ending ------------------------------------------------------------------------
 */
static int make_given(struct leat_loader *l)
{
    size_t ahead = (size_t)l->options.ahead, indices;
    if (__builtin_mul_overflow(ahead, (size_t)l->options.batch_size, &indices))
        return -ENOMEM;
    l->given = mem_alloc_array(indices, sizeof *l->given);
    l->given_samples = mem_alloc_array(ahead, sizeof *l->given_samples);
    return l->given && l->given_samples ? 0 : -ENOMEM;
}

int leat_loader_new(struct leat_source *source, const struct leat_loader_options *options,
                    struct leat_loader **ret_loader, struct leat_err *err)
{
    struct leat_loader *l = mem_alloc(sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "No memory for a loader.");
    l->source = leat_source_ref(source);
    l->options = *options;
    l->flights_end = &l->flights;
    atomic_init(&l->refs, 1);
    atomic_init(&l->pid, getpid());
    engine_init_sync(l);
    int failed = options_settle(l, err);
    if (!failed && options->order == LEAT_ORDER_GIVEN) {
        l->begun = 1;
        epoch_order_init(&l->epoch_order, LEAT_ORDER_GIVEN, source->count, options->seed, 0, 1, 1,
                         1);
        if (make_given(l) < 0)
            failed =
                err_set(err, -ENOMEM, "No memory for the indices of %d batches.", l->options.ahead);
    }
    if (failed) {
        engine_unref(l);
        return failed;
    }
    *ret_loader = l;
    return 0;
}

void leat_loader_close(struct leat_loader *l)
{
    if (!l)
        return;
    engine_enter(l);
    engine_end_threads(l);
    pthread_mutex_lock(&l->lock);
    engine_forget_flights(l);
    report_stages(l);
    l->closed = 1;
    for (size_t i = 0; i < l->slots_count; i++)
        if (l->slots[i]->state != SLOT_HELD)
            slot_free(l->slots[i]); /* those that are held free themselves in leat_batch_unref() */
    l->slots_count = 0;
    pthread_mutex_unlock(&l->lock);
    engine_unref(l);
}

/* ---- beginning --------------------------------------------------------------------------------
 */

/* The next batch is the first one after `at`. The loader takes over the order of that state, also
 * for later epochs. Lock held, no flights. */
static void stand_at(struct leat_loader *l, const struct leat_loader_state *at)
{
    struct leat_loader_options *o = &l->options;
    o->order = (enum leat_order)at->order;
    o->seed = at->seed;
    o->block = at->block;
    o->mix = at->mix;
    o->window = at->window;
    l->epoch = at->epoch;
    epoch_order_init(&l->epoch_order, (enum leat_order)at->order, l->source->count, at->seed,
                     at->epoch, at->block, at->mix, at->window);
    /* What a single rank took from the end is gone for all that continue. */
    int folds = at->world_size == 1 && !at->drop_last;
    l->end = folds ? at->end - at->spare : at->end;
    l->spare = folds ? 0 : at->spare;
    l->skips = o->on_error == LEAT_ERROR_SKIP || (at->skips && at->position > 0);
    int64_t first = at->position < l->end ? at->position : l->end;
    share_init(&l->share, l->end, first, o->batch_size, o->rank, o->world_size, o->drop_last);
    l->next_begin = l->next_deliver = l->next_submit = 0;
}

/* Whether `at` begins the epoch that follows the last one, in the same order. */
static int follows_on(const struct leat_loader *l, const struct leat_loader_state *at)
{
    const struct leat_loader_options *o = &l->options;
    uint64_t last = l->next_begun ? l->before.epoch : l->epoch;
    return l->begun && at->epoch == last + 1 && at->position == 0 && at->spare == 0 &&
           at->end == at->samples && at->order == o->order && at->seed == o->seed &&
           at->block == o->block && at->mix == o->mix && at->window == o->window;
}

static void begin_at(struct leat_loader *l, const struct leat_loader_state *at)
{
    pthread_mutex_lock(&l->lock);
    l->follows = follows_on(l, at);
    if (!l->next_begun || !l->follows) {
        engine_forget_flights(l);
        stand_at(l, at);
    }
    l->begun = 1;
    l->over = l->alone = l->next_begun = 0;
    atomic_store(&l->stopped, 0);
    if (!l->first_start_ns)
        l->first_start_ns = clock_now_ns();
    engine_begin_flights(l);
    engine_start_threads(l);
    engine_pace_start(l);
    pthread_mutex_unlock(&l->lock);
}

static struct leat_loader_state fresh_state(const struct leat_loader *l, uint64_t epoch)
{
    const struct leat_loader_options *o = &l->options;
    return (struct leat_loader_state){.version = LEAT_STATE_VERSION,
                                      .order = o->order,
                                      .seed = o->seed,
                                      .epoch = epoch,
                                      .samples = l->source->count,
                                      .block = o->block,
                                      .mix = o->mix,
                                      .window = o->window,
                                      .rank = o->rank,
                                      .world_size = o->world_size,
                                      .batch_size = o->batch_size,
                                      .end = l->source->count,
                                      .drop_last = o->drop_last != 0};
}

int leat_loader_start(struct leat_loader *l, uint64_t epoch, struct leat_err *err)
{
    engine_enter(l);
    struct leat_loader_state state = fresh_state(l, epoch);
    begin_at(l, &state);
    return 0;
}

static struct leat_loader_state state_now(const struct leat_loader *l)
{
    struct leat_loader_state state = fresh_state(l, l->epoch);
    state.position = l->begun ? share_delivered(&l->share, l->next_deliver) : 0;
    state.spare = l->spare;
    state.end = l->begun ? l->end : l->source->count;
    state.skips = l->skips;
    return state;
}

int leat_loader_state(const struct leat_loader *l, struct leat_loader_state *ret_state,
                      struct leat_err *err)
{
    if (l->options.order == LEAT_ORDER_GIVEN)
        return err_set(err, -LEAT_E_USAGE,
                       "The caller gives the order, so the caller keeps its state.");
    *ret_state = l->next_begun ? l->before : state_now(l);
    if (l->over)
        ret_state->position = l->source->count;
    return 0;
}

/* Begins the next epoch when the consumer has the last batch of this one and epochs have followed
 * each other so far. Not if the rows are memory of the caller, who may write to it between two
 * epochs. Lock held. */
static void begin_next_epoch(struct leat_loader *l)
{
    if (!l->follows || l->next_begun || l->flying || engine_has_more(l) || l->source->lent ||
        l->options.order == LEAT_ORDER_GIVEN)
        return;
    struct leat_loader_state after = fresh_state(l, l->epoch + 1);
    l->before = state_now(l);
    l->next_begun = 1;
    stand_at(l, &after);
    engine_begin_flights(l);
}

/* Whether this loader may continue the epoch of that state. Shares of another shape end elsewhere,
 * and only the rank itself knows what it took from the end of its own. */
static int check_skipped(const struct leat_loader *l, const struct leat_loader_state *s,
                         struct leat_err *err)
{
    const struct leat_loader_options *o = &l->options;
    int same = s->rank == o->rank && s->world_size == o->world_size &&
               s->batch_size == o->batch_size && s->drop_last == (o->drop_last != 0);
    int lone = s->world_size == 1 && (!s->drop_last || !s->spare);
    if (same || lone || !s->skips || s->position == 0 || s->position >= s->end)
        return 0;
    return err_set(
        err, -LEAT_E_USAGE,
        "The state is of rank %d of %d in the middle of an epoch that skips bad samples, "
        "with batches of %lld: another rank, world or batch size may get samples twice. "
        "Finish the epoch with the same ones, each rank with its own state, or start the "
        "next epoch.",
        s->rank, s->world_size, (long long)s->batch_size);
}

int leat_loader_resume(struct leat_loader *l, const struct leat_loader_state *state,
                       struct leat_err *err)
{
    if (state->version != LEAT_STATE_VERSION)
        return err_set(err, -LEAT_E_VERSION,
                       "The state has version %u; this leat knows version %d.", state->version,
                       LEAT_STATE_VERSION);
    if (state->samples != l->source->count)
        return err_set(err, -LEAT_E_USAGE,
                       "The state is of a source of %lld samples; this one has %lld.",
                       (long long)state->samples, (long long)l->source->count);
    if (l->options.order == LEAT_ORDER_GIVEN || state->order >= LEAT_ORDER_GIVEN)
        return err_set(err, -LEAT_E_USAGE,
                       "The caller gives the order, so the caller keeps its state.");
    if (state->position < 0 || state->position > state->samples || state->spare < 0 ||
        state->end < 0 || state->end > state->samples || state->spare > state->end ||
        state->batch_size < 1 || state->world_size < 1 || state->block < 1 || state->window < 1 ||
        state->mix < 1 || state->mix > ORDER_MAX_MIX || state->block > INT64_MAX / ORDER_MAX_MIX)
        return err_set(err, -LEAT_E_CORRUPT,
                       "The state is damaged: its numbers contradict each other.");
    int failed = check_skipped(l, state, err);
    if (failed < 0)
        return failed;
    engine_enter(l);
    begin_at(l, state);
    return 0;
}

int leat_loader_submit(struct leat_loader *l, const int64_t *indices, int64_t samples,
                       struct leat_err *err)
{
    engine_enter(l);
    if (l->options.order != LEAT_ORDER_GIVEN)
        return err_set(err, -LEAT_E_USAGE, "This loader has an order of its own.");
    if (samples < 1 || samples > l->options.batch_size)
        return err_set(err, -LEAT_E_USAGE, "A batch has 1 to %lld samples, not %lld.",
                       (long long)l->options.batch_size, (long long)samples);
    if (l->next_submit - l->next_deliver >= l->options.ahead)
        return 0;
    int64_t place = l->next_submit % l->options.ahead;
    int64_t *given = l->given + place * l->options.batch_size;
    for (int64_t i = 0; i < samples; i++) {
        if (indices[i] < 0 || indices[i] >= l->source->count)
            return err_set(err, -ERANGE, "Index %lld is outside the source of %lld samples.",
                           (long long)indices[i], (long long)l->source->count);
        given[i] = indices[i];
    }
    pthread_mutex_lock(&l->lock);
    l->given_samples[place] = samples;
    l->next_submit++;
    if (!l->first_start_ns)
        l->first_start_ns = clock_now_ns();
    engine_begin_flights(l);
    engine_start_threads(l);
    pthread_mutex_unlock(&l->lock);
    return 1;
}

/* ---- delivering -------------------------------------------------------------------------------
 */
struct deadline {
    int forever;
    struct timespec until;
};

static struct deadline deadline_of(int timeout_ms)
{
    struct deadline p = {.forever = timeout_ms < 0};
    uint64_t until = clock_now_ns() + (timeout_ms > 0 ? (uint64_t)timeout_ms * NS_PER_MS : 0);
    p.until = (struct timespec){(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    return p;
}

/* 0, or -ETIMEDOUT. */
static int wait_ready(struct leat_loader *l, const struct deadline *p)
{
    if (p->forever)
        return -pthread_cond_wait(&l->ready, &l->lock);
    return -pthread_cond_timedwait(&l->ready, &l->lock, &p->until);
}

/* There is no flight although batches remain: no slot could be had. */
static int no_slot(struct leat_loader *l, struct leat_err *err)
{
    if (l->device_err.text[0] && !l->held)
        return err_set(err, -ENOMEM, "%s", l->device_err.text);
    if (!l->held)
        return err_set(err, -ENOMEM, "No memory for a batch of %.1f MiB.",
                       (double)l->slot_bytes / (1 << 20));
    if (l->options.when_full == LEAT_FULL_WAIT)
        return 0;
    l->stats.full++;
    return err_set(err, -LEAT_E_FULL,
                   "All %lld batches that fit into the memory budget of %.1f MiB are still held: "
                   "release some, keep copies instead, or raise the budget.",
                   (long long)l->held, (double)l->options.memory_bytes / (1 << 20));
}

/* Lock held. 1: the first flight is finished. 0: no batch is left. */
static int await_flight(struct leat_loader *l, const struct deadline *p, struct leat_err *err)
{
    for (;;) {
        if (atomic_load(&l->stopped))
            return err_set(err, -ECANCELED, "The loader was stopped.");
        if (l->next_begun) /* the flights are of the next epoch */
            return 0;
        engine_begin_flights(l);
        struct slot *slot = l->flights;
        int failed = 0;
        if (!slot && !engine_has_more(l))
            return 0;
        if (!slot && (failed = no_slot(l, err)) < 0)
            return failed;
        if (slot && slot->ready)
            return 1;
        int64_t piece;
        if (slot && (!l->options.no_help || !l->started) &&
            engine_claim_piece(l, slot, &slot, &piece)) {
            l->stats.help_ns += engine_make_piece(l, slot, piece);
            continue;
        }
        if ((failed = wait_ready(l, p)) < 0)
            return err_set(err, failed, "No batch came in time.");
    }
}

static int count_ready(const struct leat_loader *l)
{
    int ready = 0;
    for (const struct slot *s = l->flights; s && s->ready; s = s->next)
        ready++;
    return ready;
}

/* Lock held. Takes the first flight when it is finished, and counts the waiting. */
static int take_next(struct leat_loader *l, const struct deadline *p, struct slot **ret_slot,
                     struct leat_err *err)
{
    int ready = count_ready(l);
    uint64_t t0 = ready ? 0 : clock_now_ns();
    int got = await_flight(l, p, err);
    if (!ready && got) {
        l->stats.waits++;
        l->stats.wait_ns += clock_now_ns() - t0;
    }
    if (got <= 0)
        return got;
    l->stats.ready_sum += (uint64_t)ready;
    *ret_slot = engine_take_flight(l);
    l->next_deliver++;
    if (!l->alone) /* threads continue while the consumer works */
        engine_begin_flights(l);
    report_batch(l, *ret_slot, ready);
    return 1;
}

static void count_delivered(struct leat_loader *l, const struct slot *slot)
{
    uint64_t sample_bytes = 0, arena_bytes = slot->arena.cost_bytes;
    for (uint32_t f = 0; f < l->layout.fields; f++)
        sample_bytes += l->layouts.field[f].variable ? 0 : l->layout.row_bytes[f];
    l->stats.batches++;
    l->stats.samples += (uint64_t)slot->batch.samples;
    l->stats.bytes +=
        (uint64_t)slot->batch.samples * sample_bytes + layout_bytes(&l->layouts, slot);
    if (arena_bytes > l->arena_max_bytes)
        l->arena_max_bytes = arena_bytes;
}

/* The copy that no thread enqueued: the batch has bad samples, or its slot was released during the
 * capture of a CUDA graph. Lock not held. */
static int copy_late(struct leat_loader *l, struct slot *slot, struct leat_err *err)
{
    if (device_slot_settle(l->device, &slot->device, slot->device.handed_on) == -EAGAIN)
        return err_set(
            err, -EAGAIN,
            "The memory of the next batch was released while a CUDA graph was captured: take "
            "batches outside the capture.");
    int failed = engine_copy_to_device(l, slot, err);
    slot->copied = !failed;
    return failed;
}

/* The rest of the work on a batch that was taken. Lock held at call and return, released between.
 */
static int finish_batch(struct leat_loader *l, struct slot *slot, struct leat_err *err)
{
    int failed = 0;
    int64_t samples = slot->batch.samples;
    if (slot->arena.refused)
        return -ENOMEM;
    if (slot->bad_count || slot->bad_lost || l->spare) {
        slot->copied = 0;
        pthread_mutex_unlock(&l->lock);
        failed = bad_samples_handle(l, slot, err);
        pthread_mutex_lock(&l->lock);
    }
    if (!failed && (!slot->laid_out || slot->batch.samples != samples))
        engine_lay_out(l, slot);
    if (!failed && l->device && !slot->copied && slot->batch.samples) {
        pthread_mutex_unlock(&l->lock);
        failed = copy_late(l, slot, err);
        pthread_mutex_lock(&l->lock);
    }
    return slot->arena.refused ? -ENOMEM : failed;
}

/* A batch does not fit into the budget. It is made again alone; if that was tried, the batches that
 * the consumer holds are too many, or this one is too large. Lock held. 0: try the next one. */
static int does_not_fit(struct leat_loader *l, struct slot *slot, const struct deadline *p,
                        struct leat_err *err)
{
    double budget_mib = (double)l->options.memory_bytes / (1 << 20);
    engine_start_over(l, slot);
    int tried = l->alone && l->held == l->alone_held; /* and nothing was released since */
    l->alone = 1;
    l->alone_held = l->held;
    if (!tried)
        return 0;
    if (!l->held) {
        l->alone = 0;
        l->next_begin = ++l->next_deliver;
        return err_set(err, -ENOMEM,
                       "Batch %lld does not fit into the memory budget of %.1f MiB: its samples "
                       "are too long.",
                       (long long)l->next_deliver - 1, budget_mib);
    }
    if (l->options.when_full == LEAT_FULL_WAIT) {
        int failed = wait_ready(l, p);
        l->alone_held = l->held;
        return failed < 0 ? err_set(err, failed, "No batch came in time.") : 0;
    }
    l->stats.full++;
    return err_set(err, -LEAT_E_FULL,
                   "The next batch does not fit into the memory budget of %.1f MiB beside the %lld "
                   "that are still held: release some, keep copies instead, or raise the budget.",
                   budget_mib, (long long)l->held);
}

int leat_loader_next(struct leat_loader *l, int timeout_ms, struct leat_batch **ret_batch,
                     struct leat_err *err)
{
    engine_enter(l);
    if (!l->begun)
        return err_set(err, -LEAT_E_USAGE, "No epoch was started.");
    if (l->device && !device_usable(l->device))
        return err_set(err, -LEAT_E_USAGE,
                       "This loader delivers to cuda:%d and was made before a fork: CUDA cannot be "
                       "used in the child. Make the loader in a spawned process.",
                       l->device->ordinal);
    struct deadline deadline = deadline_of(timeout_ms);
    struct slot *slot;
    int got, failed;
    pthread_mutex_lock(&l->lock);
    engine_start_threads(l); /* after a fork there are none */
    while ((got = take_next(l, &deadline, &slot, err)) > 0) {
        int64_t spare = l->spare;
        uint64_t errors = l->stats.errors;
        size_t listed = l->errors_count;
        failed = finish_batch(l, slot, err);
        if (slot->arena.refused) {
            l->spare = spare; /* bad samples are handled again */
            l->stats.errors = errors;
            l->errors_count = listed;
            if ((got = does_not_fit(l, slot, &deadline, err)) < 0)
                break;
            continue;
        }
        l->alone = 0;
        if (!failed && slot->batch.samples) {
            count_delivered(l, slot);
            atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
            atomic_store_explicit(&slot->refs, 1, memory_order_relaxed);
            *ret_batch = &slot->batch;
            break;
        }
        engine_return_slot(l, slot);
        if (failed) {
            got = failed;
            break;
        }
        /* All its samples were left out, or taken for an earlier batch: try the next one. */
    }
    l->over = !got;
    if (got > 0)
        engine_pace(l);
    else if (!got)
        engine_pace_pause(l);
    if (got >= 0)
        begin_next_epoch(l);
    report_stages(l);
    pthread_mutex_unlock(&l->lock);
    return got;
}

int leat_batch_wait(struct leat_batch *batch, void *stream, struct leat_err *err)
{
    struct slot *slot = (struct slot *)batch;
    if (!batch->device_data)
        return 0;
    return device_slot_hand_over(slot->loader->device, &slot->device, stream, err);
}

struct leat_batch *leat_batch_ref(struct leat_batch *batch)
{
    atomic_fetch_add_explicit(&((struct slot *)batch)->refs, 1, memory_order_relaxed);
    return batch;
}

void leat_batch_unref(struct leat_batch *batch)
{
    struct slot *slot = (struct slot *)batch;
    if (!slot || atomic_fetch_sub_explicit(&slot->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct leat_loader *l = slot->loader;
    if (!l) { /* of leat_source_read() */
        leat_source_unref(slot->source);
        slot_free(slot);
        return;
    }
    engine_enter(l);
    if (l->device)
        device_slot_release(l->device, &slot->device);
    pthread_mutex_lock(&l->lock);
    if (l->closed) {
        slot_free(slot);
    } else if (slot->state == SLOT_HELD) { /* else engine_enter() of a child has just freed it */
        engine_return_slot(l, slot);
        pthread_cond_broadcast(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    engine_unref(l);
}

void leat_loader_stop(struct leat_loader *l)
{
    engine_enter(l);
    atomic_store(&l->stopped, 1);
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->ready);
    pthread_mutex_unlock(&l->lock);
}

int64_t leat_loader_batches(const struct leat_loader *l)
{
    if (l->options.order == LEAT_ORDER_GIVEN)
        return -1;
    struct share whole;
    share_init(&whole, l->source->count, 0, l->options.batch_size, l->options.rank,
               l->options.world_size, l->options.drop_last);
    return share_batches(&whole);
}

int leat_loader_set_threads(struct leat_loader *l, int threads, struct leat_err *err)
{
    if (threads < 1 || threads > ENGINE_MOST_THREADS)
        return err_set(err, -LEAT_E_USAGE, "threads must be 1 to %d, not %d.", ENGINE_MOST_THREADS,
                       threads);
    engine_enter(l);
    pthread_mutex_lock(&l->lock);
    l->active = l->pace.threads = threads;
    l->pace.on = 0;
    l->pace.why = PACE_FIXED;
    if (l->started) /* else they start with the epoch */
        engine_start_threads(l);
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return 0;
}
