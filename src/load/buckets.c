/* buckets.c: see buckets.h. */
#include "load/buckets.h"

#include "base/mem.h"
#include "load/epoch_order.h"

#include <stdlib.h>

#define STREAM_SEQUENCE 64 /* of random_at(), beyond those of epoch_order.c */

struct sample {
    int64_t length, index;
    int64_t place; /* in the shuffled order: breaks ties */
};

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t rounded_up(int64_t length, int64_t multiple)
{
    return (length + multiple - 1) / multiple * multiple;
}

/* ---- Cutting. ---------------------------------------------------------------------------------
 */
static int check_options(const struct buckets_options *o, struct leat_err *err)
{
    if (o->batch_size < 0 || o->max_tokens < 0 || o->window < 0 || o->multiple < 1 ||
        o->multiple > BUCKETS_MOST_MULTIPLE)
        return err_set(err, -LEAT_E_USAGE,
                       "batch_size, max_tokens, window and multiple must be positive.");
    if (!o->batch_size && !o->max_tokens)
        return err_set(err, -LEAT_E_USAGE, "Give batch_size, max_tokens or both.");
    return 0;
}

static int check_lengths(const int64_t *lengths, int64_t count, const struct buckets_options *o,
                         struct leat_err *err)
{
    for (int64_t i = 0; i < count; i++) {
        if (lengths[i] < 0 || lengths[i] > BUCKETS_MOST_LENGTH)
            return err_set(err, -LEAT_E_USAGE, "Sample %lld has the length %lld.", (long long)i,
                           (long long)lengths[i]);
        int64_t padded = rounded_up(lengths[i], o->multiple);
        if (o->max_tokens && !o->allow_long && padded > o->max_tokens)
            return err_set(err, -LEAT_E_USAGE,
                           "Sample %lld has %lld tokens, %lld when padded: more than max_tokens, "
                           "which is %lld. Cut it, or use allow_long.",
                           (long long)i, (long long)lengths[i], (long long)padded,
                           (long long)o->max_tokens);
    }
    return 0;
}

static int longer_first(const void *one, const void *other)
{
    const struct sample *a = one, *b = other;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Largest number of samples in a batch whose longest has this length. */
static int64_t most_samples(const struct buckets_options *o, int64_t longest)
{
    int64_t most = o->batch_size ? o->batch_size : INT64_MAX;
    if (o->max_tokens)
        most = min64(most, o->max_tokens / max64(rounded_up(longest, o->multiple), 1));
    return max64(most, 1);
}

struct cutting {
    struct buckets *b;
    const struct buckets_options *options;
    const int64_t *lengths;
    struct epoch_order order;
    struct sample *window; /* owned */
    size_t capacity;       /* of b->starts */
};

static int add_start(struct cutting *c, int64_t start)
{
    size_t need = (size_t)c->b->batches + 1;
    if (mem_reserve(&c->b->starts, &c->capacity, need, sizeof *c->b->starts) < 0)
        return -ENOMEM;
    c->b->starts[c->b->batches] = start;
    return 0;
}

/* Sorts and cuts positions first … first + count - 1 of the order. */
static int cut_window(struct cutting *c, int64_t first, int64_t count)
{
    int64_t *indices = c->b->indices + first;
    epoch_order_fill(&c->order, first, (size_t)count, indices);
    for (int64_t i = 0; i < count; i++)
        c->window[i] = (struct sample){c->lengths[indices[i]], indices[i], i};
    qsort(c->window, (size_t)count, sizeof *c->window, longer_first);
    for (int64_t i = 0; i < count; i++)
        indices[i] = c->window[i].index;
    for (int64_t at = 0; at < count;) {
        if (add_start(c, first + at) < 0)
            return -ENOMEM;
        int64_t samples = min64(most_samples(c->options, c->window[at].length), count - at);
        c->b->batches++;
        c->b->largest = max64(c->b->largest, samples);
        at += samples;
    }
    return 0;
}

static int cut_all(struct cutting *c, int64_t window)
{
    for (int64_t first = 0; first < c->b->samples; first += window)
        if (cut_window(c, first, min64(window, c->b->samples - first)) < 0)
            return -ENOMEM;
    return add_start(c, c->b->samples);
}

/* Without max_tokens the samples that fill no batch are the last of the order; chosen by length,
 * they would always be the shortest. */
static int cut_rest(struct cutting *c, int64_t count)
{
    int64_t first = c->b->samples;
    if (c->options->drop_last || first == count)
        return 0;
    c->b->samples = count;
    if (cut_window(c, first, count - first) < 0)
        return -ENOMEM;
    return add_start(c, count);
}

static int64_t window_of(const struct buckets_options *o, int64_t count)
{
    int64_t window = o->window;
    if (!window)
        window = max64(BUCKETS_WINDOW, min64(o->batch_size, count) * BUCKETS_WINDOW_BATCH);
    window = min64(window, max64(count, 1));
    if (!o->max_tokens) /* no incomplete batch in the middle of the epoch */
        window = rounded_up(window, min64(o->batch_size, max64(count, 1)));
    return window;
}

int buckets_init(struct buckets *b, const int64_t *lengths, int64_t count,
                 const struct buckets_options *options, uint64_t epoch, struct leat_err *err)
{
    struct buckets_options o = *options;
    o.multiple = o.multiple ? o.multiple : 1;
    *b = (struct buckets){.shuffle = o.shuffle};
    int failed = check_options(&o, err);
    if (!failed)
        failed = check_lengths(lengths, count, &o, err);
    if (failed < 0)
        return failed;
    struct cutting c = {.b = b, .options = &o, .lengths = lengths};
    int64_t window = window_of(&o, count);
    epoch_order_init(&c.order, o.shuffle ? LEAT_ORDER_FULL : LEAT_ORDER_SEQUENTIAL, count, o.seed,
                     epoch, 1, 1, 1);
    b->samples = o.max_tokens ? count : count - count % o.batch_size;
    b->indices = mem_alloc_array((size_t)count, sizeof *b->indices);
    c.window = mem_alloc_array((size_t)min64(window, count), sizeof *c.window);
    failed = b->indices && c.window ? cut_all(&c, window) : -ENOMEM;
    if (!failed)
        failed = cut_rest(&c, count);
    mem_free(c.window);
    if (failed < 0) {
        buckets_done(b);
        return err_set(err, failed, "No memory to plan batches of %lld samples.", (long long)count);
    }
    permutation_init(&b->sequence, (uint64_t)b->batches,
                     random_at(random_at(o.seed, epoch, 0), STREAM_SEQUENCE, 0));
    return 0;
}

void buckets_done(struct buckets *b)
{
    mem_free(b->indices);
    mem_free(b->starts);
    *b = (struct buckets){0};
}

/* ---- Sharing. ---------------------------------------------------------------------------------
 */
static int64_t batch_samples(const struct buckets *b, int64_t number, int64_t *ret_start)
{
    if (b->shuffle)
        number = (int64_t)permutation_at(&b->sequence, (uint64_t)number);
    *ret_start = b->starts[number];
    return b->starts[number + 1] - b->starts[number];
}

/* Parts into which the tail (the batches from `first` on) is split: one per rank, but none without
 * a sample. */
static int64_t tail_parts(const struct buckets *b, int64_t first, int64_t world_size)
{
    int64_t samples = 0, start;
    for (int64_t i = first; i < b->batches; i++)
        samples += batch_samples(b, i, &start);
    return min64(samples, world_size);
}

int64_t buckets_steps(const struct buckets *b, const struct buckets_rank *rank, int drop_last)
{
    int64_t left = b->batches - rank->done, tail = left % rank->world_size;
    if (drop_last || !tail)
        return left / rank->world_size;
    return left / rank->world_size +
           (rank->rank < tail_parts(b, b->batches - tail, rank->world_size));
}

/* Splits the batch with the largest parts once more. */
static void split_largest(int64_t *parts, const int64_t *samples, int64_t tail)
{
    int64_t largest = 0;
    for (int64_t i = 1; i < tail; i++)
        if (samples[i] * parts[largest] > samples[largest] * parts[i])
            largest = i;
    parts[largest]++;
}

/* Part `number` of the tail. The largest parts are split first, so a single sample is never split.
 */
static int64_t tail_part(const struct buckets *b, int64_t tail, int64_t number, int64_t world_size,
                         const int64_t **ret_indices)
{
    int64_t first = b->batches - tail, all = tail_parts(b, first, world_size), start = 0, i = 0;
    int64_t *parts = mem_alloc_array(2 * (size_t)tail, sizeof *parts);
    if (!parts)
        return -ENOMEM;
    int64_t *samples = parts + tail;
    for (int64_t k = 0; k < tail; k++) {
        parts[k] = 1;
        samples[k] = batch_samples(b, first + k, &start);
    }
    for (int64_t total = tail; total < all; total++)
        split_largest(parts, samples, tail);
    while (number >= parts[i])
        number -= parts[i++];
    int64_t base = samples[i] / parts[i], more = samples[i] % parts[i];
    batch_samples(b, first + i, &start);
    *ret_indices = b->indices + start + number * base + min64(number, more);
    mem_free(parts);
    return base + (number < more);
}

int64_t buckets_part(const struct buckets *b, const struct buckets_rank *rank, int64_t step,
                     const int64_t **ret_indices)
{
    int64_t left = b->batches - rank->done, start;
    if (step >= left / rank->world_size)
        return tail_part(b, left % rank->world_size, rank->rank, rank->world_size, ret_indices);
    int64_t count = batch_samples(b, rank->done + step * rank->world_size + rank->rank, &start);
    *ret_indices = b->indices + start;
    return count;
}

int64_t buckets_done_after(const struct buckets *b, const struct buckets_rank *rank, int64_t steps)
{
    int64_t whole = (b->batches - rank->done) / rank->world_size;
    return steps > whole ? b->batches : rank->done + steps * rank->world_size;
}
