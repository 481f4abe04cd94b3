/* options.c: every default of a loader with its reason; options that cannot work are refused. */
#include "load/engine.h"

#include "base/cgroup.h"

#include <unistd.h>

/* A piece of work: long beside the two lockings that it costs (0.1 us), short beside a batch, so
 * that the threads finish a batch together. */
#define PIECE_NS       50000.0
#define PIECE_LEAST_NS 5000.0

/* Default of `ahead`. Batches that are expensive to make vary in time, and some ahead bridge that.
 * Batches that are only copied do not, and many ahead push each other out of the caches: 64
 * sequences of 2048 tokens, 1 MiB, took 2.5 us per sequence with 16 batches ahead, 1.4 us with two
 * (one thread, 1.25 MiB of L2). */
#define AHEAD_BYTES      (64u << 20)
#define AHEAD_BYTES_FAST (2u << 20)
#define FAST_BATCH_NS    1e6
#define AHEAD_LEAST      2
#define AHEAD_MOST       16
#define AHEAD_LIMIT      1024
#define AHEAD_BURSTS     64

/* Default of QUASI: blocks of about a megabyte, at which disks and networks reach full speed,
 * sixteen of them mixed. */
#define BLOCK_BYTES    (1u << 20)
#define MIX_BLOCKS     16

#define WINDOW_SAMPLES 4096

/* Samples that are asked for their length to estimate the size of one; the estimate when the source
 * does not know. */
#define ASKED_SAMPLES 64
#define GUESSED_BYTES (16u << 10)

/* Cores and memory that affinity and cgroups allow. */
static void ask_machine(struct leat_loader *l)
{
    struct cgroup_info limits = {.cpus = 1, .memory_limit_bytes = -1};
    cgroup_read("/", &limits); /* when it fails: one core */
    l->cores = limits.cpus;
    l->machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (limits.memory_limit_bytes >= 0 && (uint64_t)limits.memory_limit_bytes < l->machine_bytes)
        l->machine_bytes = (uint64_t)limits.memory_limit_bytes;
}

static int settle_threads(struct leat_loader *l, struct leat_err *err)
{
    struct leat_loader_options *o = &l->options;
    if (o->threads < LEAT_THREADS_NONE || o->threads > ENGINE_MOST_THREADS)
        return err_set(err, -LEAT_E_USAGE, "threads must be %d to %d, not %d.", LEAT_THREADS_NONE,
                       ENGINE_MOST_THREADS, o->threads);
    if (o->threads == LEAT_THREADS_NONE && o->no_help)
        return err_set(err, -LEAT_E_USAGE, "no_help needs at least one thread.");
    if (o->autotune < -1 || o->autotune > 1)
        return err_set(err, -LEAT_E_USAGE, "autotune must be -1, 0 or 1, not %d.", o->autotune);
    if (o->autotune == 0) /* an explicit count disables autotune */
        o->autotune = o->threads == 0 ? 1 : -1;
    if (o->threads == 0)
        o->threads = l->cores >= 2 ? (int)l->cores - 1 : 1;
    if (o->threads > ENGINE_MOST_THREADS)
        o->threads = ENGINE_MOST_THREADS;
    l->active = o->threads == LEAT_THREADS_NONE ? 0 : o->threads;
    return 0;
}

/* Estimated bytes of a sample in one variable field. */
static uint64_t variable_bytes(const struct leat_loader *l, uint32_t f)
{
    struct leat_source *source = l->source;
    int64_t count = source->count < ASKED_SAMPLES ? source->count : ASKED_SAMPLES;
    double items = 0;
    for (int64_t i = 0; i < count && source->ops->lengths; i++) {
        int64_t length = 0, index = (int64_t)((double)source->count / (double)count * (double)i);
        if (source->ops->lengths(source, f, index, 1, &length, NULL) < 0)
            return GUESSED_BYTES;
        items += (double)length;
    }
    if (!count || !source->ops->lengths)
        return GUESSED_BYTES;
    double bytes = items / (double)count * (double)source->field[f].row_bytes;
    return bytes < 1e12 ? (uint64_t)bytes : (uint64_t)1e12;
}

/* Estimated bytes of a sample in the batch. */
static uint64_t sample_bytes(const struct leat_loader *l)
{
    uint64_t bytes = 1;
    for (uint32_t f = 0; f < l->layout.fields; f++)
        bytes += l->layouts.field[f].variable ? variable_bytes(l, f) : l->layout.row_bytes[f];
    return bytes;
}

static int usual_ahead(const struct leat_loader *l)
{
    double batch_ns = l->source->sample_ns * (double)l->options.batch_size;
    uint64_t bytes = batch_ns < FAST_BATCH_NS ? AHEAD_BYTES_FAST : AHEAD_BYTES, slot_bytes;
    if (!l->layouts.variable ||
        __builtin_mul_overflow(sample_bytes(l), (uint64_t)l->options.batch_size, &slot_bytes))
        slot_bytes = l->slot_bytes;
    if (slot_bytes < l->slot_bytes)
        slot_bytes = l->slot_bytes;
    uint64_t fit = bytes / slot_bytes;
    if (slot_bytes > AHEAD_BYTES) /* huge batches: prefetch one */
        return 1;
    return fit < AHEAD_LEAST ? AHEAD_LEAST : fit > AHEAD_MOST ? AHEAD_MOST : (int)fit;
}

/* Copies the source to the device if that was asked for and leaves memory for some batches. */
static int settle_rows(struct leat_loader *l, uint64_t *most_bytes, struct leat_err *err)
{
    uint64_t rows_bytes = l->options.resident ? device_rows_bytes(l->source) : 0;
    if (!rows_bytes || rows_bytes > *most_bytes || (*most_bytes - rows_bytes) / 4 < l->layout.bytes)
        return 0;
    int failed = device_rows_open(l->device, &l->rows, l->source, err);
    if (failed)
        return failed;
    *most_bytes -= rows_bytes;
    l->layout.indices_only = 1;
    return 0;
}

/* Opens the device; its memory limits the slots as the budget does. */
static int settle_device(struct leat_loader *l, struct leat_err *err)
{
    struct leat_loader_options *o = &l->options;
    if (!o->device)
        return 0;
    if (l->layouts.variable)
        return err_set(err, -LEAT_E_USAGE,
                       "Samples of different length are not delivered on a device.");
    int failed = device_open(o->device - 1, o->device_bytes, o->current_stream, &l->device, err);
    if (failed)
        return failed;
    l->layout.own_pages = 1;
    uint64_t slot_bytes = l->layout.rows_bytes ? l->layout.rows_bytes : 1;
    uint64_t most_bytes = l->device->most_bytes;
    if ((failed = settle_rows(l, &most_bytes, err)) < 0)
        return failed;
    if (l->rows.memory) /* and their indices */
        slot_bytes = l->layout.bytes;
    uint64_t fit = most_bytes / slot_bytes;
    if (fit < 2)
        return err_set(err, -LEAT_E_FULL,
                       "A batch takes %.1f MiB and cuda:%d may give %.1f MiB, which must hold two: "
                       "make the batch smaller or device_memory larger.",
                       (double)slot_bytes / (1 << 20), o->device - 1,
                       (double)l->device->most_bytes / (1 << 20));
    if (fit > DEVICE_MOST_SLOTS)
        fit = DEVICE_MOST_SLOTS;
    if ((int64_t)fit < l->most_slots) {
        l->most_slots = (int64_t)fit;
        l->budget.most_bytes = o->memory_bytes = fit * l->slot_bytes;
    }
    return 0;
}

static int settle_memory(struct leat_loader *l, struct leat_err *err)
{
    struct leat_loader_options *o = &l->options;
    if (slot_layout_init(&l->layout, l->source, o->batch_size) < 0)
        return err_set(err, -LEAT_E_USAGE, "A batch of %lld samples is larger than any memory.",
                       (long long)o->batch_size);
    l->slot_bytes = slot_cost_bytes(&l->layout);
    if (!o->memory_bytes)
        o->memory_bytes = l->machine_bytes / 4;
    l->budget.most_bytes = o->memory_bytes;
    l->most_slots = (int64_t)(o->memory_bytes / l->slot_bytes);
    if (l->most_slots < 2)
        return err_set(err, -LEAT_E_FULL,
                       "A batch takes %.1f MiB and the memory budget is %.1f MiB, which must hold "
                       "two: make the batch smaller or the budget larger.",
                       (double)l->slot_bytes / (1 << 20), (double)o->memory_bytes / (1 << 20));
    int failed = settle_device(l, err);
    if (failed)
        return failed;
    if (!o->ahead)
        o->ahead = usual_ahead(l);
    if (o->threads == LEAT_THREADS_NONE)
        o->ahead = 1;
    if (o->ahead < 1 || o->ahead > AHEAD_LIMIT)
        return err_set(err, -LEAT_E_USAGE, "ahead must be 0 to %d, not %d.", AHEAD_LIMIT, o->ahead);
    if (o->ahead > l->most_slots - 1)
        o->ahead = (int)(l->most_slots - 1);
    return 0;
}

static int settle_order(struct leat_loader *l, struct leat_err *err)
{
    struct leat_loader_options *o = &l->options;
    if (!o->block)
        o->block = (int64_t)(BLOCK_BYTES / sample_bytes(l)) + 1;
    if (!o->mix)
        o->mix = MIX_BLOCKS;
    if (!o->window)
        o->window = l->source->window > 0 ? l->source->window : WINDOW_SAMPLES;
    /* A group of mixed blocks is one permutation: block * mix must fit. */
    if (o->block < 1 || o->window < 1 || o->mix < 1 || o->mix > ORDER_MAX_MIX ||
        o->block > INT64_MAX / ORDER_MAX_MIX)
        return err_set(err, -LEAT_E_USAGE,
                       "block and window must be positive, mix 1 to %d; they are %lld, %lld and "
                       "%lld.",
                       ORDER_MAX_MIX, (long long)o->block, (long long)o->window, (long long)o->mix);
    if ((unsigned)o->order > LEAT_ORDER_GIVEN)
        return err_set(err, -LEAT_E_USAGE, "There is no order %d.", (int)o->order);
    return 0;
}

static int settle_ranks(struct leat_loader *l, struct leat_err *err)
{
    struct leat_loader_options *o = &l->options;
    if (!o->world_size)
        o->world_size = 1;
    if (o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size)
        return err_set(err, -LEAT_E_USAGE, "Rank %d of a world of %d does not exist.", o->rank,
                       o->world_size);
    return 0;
}

/* Samples of a piece: PIECE_NS of work, or less so that each thread has several pieces of a batch.
 */
static void settle_piece(struct leat_loader *l)
{
    double sample_ns = l->source->sample_ns > 1 ? l->source->sample_ns : 1;
    double most = PIECE_NS / sample_ns, least = PIECE_LEAST_NS / sample_ns;
    double fair = (double)l->options.batch_size / (4.0 * (l->active + 1));
    double piece = fair < least ? least : fair > most ? most : fair;
    l->piece = piece < 1 ? 1 : piece > PIECE_MOST_SAMPLES ? PIECE_MOST_SAMPLES : (int64_t)piece;
    if (l->piece > 16)
        l->piece -= l->piece % 16; /* so that two threads rarely share a cache line */
}

/* More batches ahead than AHEAD_BURSTS do not help. */
static void settle_pace(struct leat_loader *l)
{
    const struct leat_loader_options *o = &l->options;
    int on = o->autotune > 0 && o->threads != LEAT_THREADS_NONE;
    int64_t most = l->most_slots - 1 < AHEAD_BURSTS ? l->most_slots - 1 : AHEAD_BURSTS;
    if (o->order == LEAT_ORDER_GIVEN || most < o->ahead)
        most = o->ahead;
    pace_init(&l->pace, on, l->cores, l->active, o->ahead, (int)most);
}

int options_settle(struct leat_loader *l, struct leat_err *err)
{
    struct leat_loader_options *o = &l->options;
    ask_machine(l);
    if (o->batch_size < 1)
        return err_set(err, -LEAT_E_USAGE, "batch_size must be positive, not %lld.",
                       (long long)o->batch_size);
    if ((unsigned)o->on_error > LEAT_ERROR_REPLACE || (unsigned)o->when_full > LEAT_FULL_WAIT)
        return err_set(err, -LEAT_E_USAGE, "on_error or when_full has an invalid value.");
    int failed = settle_threads(l, err);
    if (!failed)
        failed = layout_init(&l->layouts, l->source, &o->layout, o->layouts, err);
    o->layouts = NULL; /* points to the caller's */
    if (!failed)
        failed = settle_memory(l, err);
    if (!failed)
        failed = settle_order(l, err);
    if (!failed)
        failed = settle_ranks(l, err);
    if (!failed) {
        settle_piece(l);
        settle_pace(l);
    }
    return failed;
}
