/* epoch_order.c: see epoch_order.h. */
#include "load/epoch_order.h"

/* Streams of random_at(): each use of a key has its own. */
enum { STREAM_SEQUENCE = 1, STREAM_WINDOW, STREAM_TAIL, STREAM_TAIL_PLACE };

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The short block at the end of the data comes between two groups, at a random place. */
static int64_t place_tail(const struct epoch_order *s)
{
    int64_t group = s->block * s->mix, full = s->count / s->block * s->block;
    int64_t groups = full / group + (full % group != 0);
    uint64_t random = random_at(s->key, STREAM_TAIL_PLACE, 0);
    return min64((int64_t)(random % (uint64_t)(groups + 1)) * group, full);
}

void epoch_order_init(struct epoch_order *s, enum leat_order order, int64_t count, uint64_t seed,
                      uint64_t epoch, int64_t block, int64_t mix, int64_t window)
{
    *s = (struct epoch_order){.order = order, .count = count, .window = window};
    s->key = random_at(seed, epoch, 0);
    if (order == LEAT_ORDER_FULL)
        permutation_init(&s->sequence, (uint64_t)count, random_at(s->key, STREAM_SEQUENCE, 0));
    if (order != LEAT_ORDER_QUASI)
        return;
    s->block = count ? min64(block, count) : 1;
    s->mix = mix;
    permutation_init(&s->sequence, (uint64_t)(count / s->block),
                     random_at(s->key, STREAM_SEQUENCE, 0));
    s->tail_at = place_tail(s);
}

/* One window (or group of blocks), and the part of a request that falls into it. */
struct part {
    int64_t number, from, length; /* the window: its number, first position and size */
    int64_t skip;                 /* positions of the window before the request */
    size_t some;                  /* positions of the window in the request */
};

static struct part part_of(int64_t position, size_t count, int64_t size, int64_t end)
{
    struct part p = {.number = position / size};
    p.from = p.number * size;
    p.length = min64(size, end - p.from);
    p.skip = position - p.from;
    p.some = (size_t)min64((int64_t)count, p.length - p.skip);
    return p;
}

static void fill_window(const struct epoch_order *s, int64_t first, size_t count, int64_t *indices)
{
    while (count) {
        struct part p = part_of(first, count, s->window, s->count);
        struct permutation order;
        permutation_init(&order, (uint64_t)p.length,
                         random_at(s->key, STREAM_WINDOW, (uint64_t)p.number));
        permutation_fill(&order, (uint64_t)p.skip, p.some, p.from, indices);
        first += (int64_t)p.some;
        indices += p.some;
        count -= p.some;
    }
}

/* Positions of the full blocks: groups of `mix` blocks, shuffled within. */
static void fill_groups(const struct epoch_order *s, int64_t first, size_t count, int64_t *indices)
{
    int64_t blocks[ORDER_MAX_MIX];
    int64_t full = s->count / s->block * s->block;
    while (count) {
        struct part p = part_of(first, count, s->block * s->mix, full);
        permutation_fill(&s->sequence, (uint64_t)(p.number * s->mix), (size_t)(p.length / s->block),
                         0, blocks);
        struct permutation order;
        permutation_init(&order, (uint64_t)p.length,
                         random_at(s->key, STREAM_WINDOW, (uint64_t)p.number));
        permutation_fill(&order, (uint64_t)p.skip, p.some, 0, indices);
        for (size_t i = 0; i < p.some; i++)
            indices[i] = blocks[indices[i] / s->block] * s->block + indices[i] % s->block;
        first += (int64_t)p.some;
        indices += p.some;
        count -= p.some;
    }
}

static void fill_quasi(const struct epoch_order *s, int64_t first, size_t count, int64_t *indices)
{
    int64_t tail = s->count % s->block, end = first + (int64_t)count;
    int64_t tail_end = s->tail_at + tail;
    if (first < s->tail_at) {
        size_t some = (size_t)(min64(end, s->tail_at) - first);
        fill_groups(s, first, some, indices);
        first += (int64_t)some;
        indices += some;
    }
    if (first < end && first < tail_end) {
        size_t some = (size_t)(min64(end, tail_end) - first);
        struct permutation order;
        permutation_init(&order, (uint64_t)tail, random_at(s->key, STREAM_TAIL, 0));
        permutation_fill(&order, (uint64_t)(first - s->tail_at), some, s->count - tail, indices);
        first += (int64_t)some;
        indices += some;
    }
    if (first < end)
        fill_groups(s, first - tail, (size_t)(end - first), indices);
}

void epoch_order_fill(const struct epoch_order *s, int64_t first, size_t count,
                      int64_t *ret_indices)
{
    switch (s->order) {
    case LEAT_ORDER_FULL:
        permutation_fill(&s->sequence, (uint64_t)first, count, 0, ret_indices);
        return;
    case LEAT_ORDER_QUASI: fill_quasi(s, first, count, ret_indices); return;
    case LEAT_ORDER_WINDOW: fill_window(s, first, count, ret_indices); return;
    case LEAT_ORDER_SEQUENTIAL:
    case LEAT_ORDER_GIVEN: break;
    }
    for (size_t i = 0; i < count; i++)
        ret_indices[i] = first + (int64_t)i;
}

void share_init(struct share *s, int64_t count, int64_t first, int64_t batch_size, int64_t rank,
                int64_t world_size, int drop_last)
{
    /* A step larger than the data is all tail; the product may overflow. */
    int64_t left = count - first, step;
    if (__builtin_mul_overflow(batch_size, world_size, &step))
        step = INT64_MAX;
    int64_t tail = left % step, base = tail / world_size, more = tail % world_size;
    *s = (struct share){.first = first, .batch_size = batch_size, .world_size = world_size};
    s->rank = rank;
    s->steps = left / step;
    s->end = drop_last ? count - tail : count;
    s->samples = s->steps * batch_size;
    s->tail_at = first + (left - tail) + rank * base + min64(rank, more);
    if (!drop_last)
        s->samples += base + (rank < more);
}

int64_t share_batches(const struct share *s)
{
    return s->samples / s->batch_size + (s->samples % s->batch_size != 0);
}

int64_t share_batch_samples(const struct share *s, int64_t number)
{
    return number < s->steps ? s->batch_size : s->samples - s->steps * s->batch_size;
}

int64_t share_position(const struct share *s, int64_t place)
{
    int64_t step = place / s->batch_size;
    if (step >= s->steps)
        return s->tail_at + (place - s->steps * s->batch_size);
    return s->first + (step * s->world_size + s->rank) * s->batch_size + place % s->batch_size;
}

int64_t share_delivered(const struct share *s, int64_t batches)
{
    if (batches > s->steps)
        return s->end;
    return batches ? s->first + batches * s->batch_size * s->world_size : s->first;
}
