/* engine.c: slots and flights; see engine.h. */
#include "load/engine.h"

#include "base/mem.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

void engine_init_sync(struct leat_loader *l)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, &monotonic);
    pthread_cond_init(&l->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* In the child of a fork. The threads are gone, so the batches that they worked on are begun again.
 */
static void take_over(struct leat_loader *l)
{
    engine_init_sync(l);
    l->free = l->empty = l->flights = NULL;
    l->flights_end = &l->flights;
    l->flying = l->resting = l->aside = l->started = l->ending = 0;
    l->held = l->with_memory = 0;
    atomic_store(&l->budget.used_bytes, 0);
    for (size_t i = 0; i < l->slots_count; i++) {
        struct slot *slot = l->slots[i];
        slot->running = 0;
        arena_after_fork(&slot->arena);
        if (slot->block.memory) {
            l->with_memory++;
            atomic_fetch_add(&l->budget.used_bytes, l->slot_bytes + slot->arena.cost_bytes);
        }
        if (slot->state == SLOT_HELD && atomic_load(&slot->refs) > 0) {
            l->held++;
            continue;
        }
        struct slot **list = slot->block.memory ? &l->free : &l->empty;
        slot->state = slot->block.memory ? SLOT_FREE : SLOT_EMPTY;
        slot->next = *list;
        *list = slot;
        l->resting += slot->state == SLOT_FREE;
    }
    l->next_begin = l->next_deliver;
    l->reported.ahead = 0; /* the child's recorder knows nothing of this loader */
}

void engine_enter(struct leat_loader *l)
{
    pid_t me = getpid(), owner = atomic_load(&l->pid);
    while (owner != me) {
        /* One thread of the child does it, others wait. */
        if (owner != -me && atomic_compare_exchange_strong(&l->pid, &owner, -me)) {
            take_over(l);
            atomic_store(&l->pid, me);
            return;
        }
        sched_yield();
        owner = atomic_load(&l->pid);
    }
}

int engine_has_more(const struct leat_loader *l)
{
    if (l->options.order == LEAT_ORDER_GIVEN)
        return l->next_begin < l->next_submit;
    return l->begun && l->next_begin < share_batches(&l->share);
}

/* A new slot without memory. */
static struct slot *make_slot(struct leat_loader *l)
{
    if (mem_reserve(&l->slots, &l->slots_capacity, l->slots_count + 1, sizeof *l->slots) < 0)
        return NULL;
    struct slot *slot = mem_alloc(sizeof *slot);
    if (!slot)
        return NULL;
    slot->loader = l;
    arena_init(&slot->arena, &l->budget);
    l->slots[l->slots_count++] = slot;
    return slot;
}

/* Memory for the slot, here and on the device. */
static int fill_slot(struct leat_loader *l, struct slot *slot)
{
    if (slot_get_memory(slot, &l->layout) < 0)
        return -ENOMEM;
    if (!l->device)
        return 0;
    l->device_err.text[0] = 0;
    block_not_inherited(&slot->block); /* copy on write would move its pages away from the GPU */
    if (device_slot_get(l->device, &slot->device, slot->block.memory, slot->block.memory_bytes,
                        l->rows.memory ? l->layout.bytes : l->layout.rows_bytes,
                        &l->device_err) < 0) {
        slot_drop_memory(slot);
        return -ENOMEM;
    }
    for (uint32_t f = 0; f < l->layout.fields; f++)
        slot->on_device[f] = (void *)(uintptr_t)(slot->device.memory + l->layout.offset[f]);
    slot->batch.device_data = slot->on_device;
    slot->batch.device = l->device->ordinal;
    return 0;
}

/* Removes a slot from the list of free ones, or gives an empty one memory. NULL: the budget or the
 * machine has no more. */
static struct slot *find_slot(struct leat_loader *l)
{
    struct slot *slot = l->free;
    if (slot) {
        l->free = slot->next;
        l->aside -= l->resting == l->aside;
        l->resting--;
        return slot;
    }
    if (!budget_take(&l->budget, l->slot_bytes))
        return NULL;
    slot = l->empty;
    if (slot)
        l->empty = slot->next;
    else
        slot = make_slot(l);
    if (slot && fill_slot(l, slot) == 0) {
        l->with_memory++;
        return slot;
    }
    if (slot) {
        slot->state = SLOT_EMPTY;
        slot->next = l->empty;
        l->empty = slot;
    }
    budget_give_back(&l->budget, l->slot_bytes);
    return NULL;
}

/* What the arena of a slot may still grow by. */
static uint64_t arena_lacking(const struct leat_loader *l, const struct slot *slot)
{
    uint64_t has = atomic_load_explicit(&slot->arena.cost_bytes, memory_order_relaxed);
    return has < l->arena_max_bytes ? l->arena_max_bytes - has : 0;
}

/* Whether one more batch fits if it is as large as the largest so far. */
static int fits_budget(const struct leat_loader *l)
{
    uint64_t bytes = atomic_load(&l->budget.used_bytes);
    bytes += l->free ? arena_lacking(l, l->free) : l->slot_bytes + l->arena_max_bytes;
    for (const struct slot *slot = l->flights; slot; slot = slot->next)
        bytes += arena_lacking(l, slot);
    return bytes <= l->budget.most_bytes;
}

static void begin_flight(struct leat_loader *l, struct slot *slot)
{
    int64_t number = l->next_begin++;
    slot->batch.epoch = l->epoch;
    slot->batch.number = number;
    if (l->options.order == LEAT_ORDER_GIVEN) {
        slot->batch.samples = l->given_samples[number % l->options.ahead];
    } else {
        slot->batch.samples = share_batch_samples(&l->share, number);
        slot->first_position = share_position(&l->share, number * l->share.batch_size);
    }
    slot->pieces = (slot->batch.samples + l->piece - 1) / l->piece;
    slot->claimed = slot->finished = 0;
    slot->ready = slot->laid_out = slot->copied = 0;
    arena_reset(&slot->arena);
    slot->read_ns = 0;
    slot->bad_count = 0;
    slot->bad_lost = 0;
    slot->state = SLOT_FLIGHT;
    slot->next = NULL;
    *l->flights_end = slot;
    l->flights_end = &slot->next;
    l->flying++;
}

void engine_begin_flights(struct leat_loader *l)
{
    int began = 0, most = l->alone ? 1 : l->options.ahead;
    if (l->device && !device_usable(l->device))
        return; /* a child: its slots are not even mapped */
    while (l->flying < most && engine_has_more(l)) {
        if (l->flying && !fits_budget(l))
            break;
        struct slot *slot = find_slot(l);
        if (!slot)
            break;
        begin_flight(l, slot);
        began = 1;
    }
    if (began)
        pthread_cond_broadcast(&l->work);
}

struct slot *engine_take_flight(struct leat_loader *l)
{
    struct slot *slot = l->flights;
    l->flights = slot->next;
    if (!l->flights)
        l->flights_end = &l->flights;
    l->flying--;
    slot->next = NULL;
    slot->state = SLOT_HELD;
    l->held++;
    return slot;
}

void engine_forget_flights(struct leat_loader *l)
{
    for (struct slot *slot = l->flights; slot; slot = slot->next)
        slot->claimed = slot->pieces;
    while (l->flights) {
        while (l->flights->running)
            pthread_cond_wait(&l->ready, &l->lock);
        engine_return_slot(l, engine_take_flight(l));
    }
}

/* Frees the memory of a slot. */
static void empty_slot(struct leat_loader *l, struct slot *slot)
{
    slot_drop_memory(slot);
    budget_give_back(&l->budget, l->slot_bytes);
    l->with_memory--;
    slot->state = SLOT_EMPTY;
    slot->next = l->empty;
    l->empty = slot;
}

void engine_return_slot(struct leat_loader *l, struct slot *slot)
{
    /* Two more than fly: the batch that the consumer works on, and the one before it, which its
     * variables still hold. */
    int in_use = l->resting - l->aside, enough = l->flying + in_use >= l->options.ahead + 2;
    l->held--;
    if (enough && !l->device) {
        empty_slot(l, slot);
        return;
    }
    slot->state = SLOT_FREE;
    l->resting++;
    l->aside += enough;
    struct slot **place = &l->free;
    for (int i = 0; l->device && (enough ? *place != NULL : i < in_use); i++)
        place = &(*place)->next;
    slot->next = *place;
    *place = slot;
}

void engine_start_over(struct leat_loader *l, struct slot *slot)
{
    l->next_deliver = slot->batch.number;
    engine_return_slot(l, slot);
    engine_forget_flights(l);
    for (struct slot *free = l->free, *next; free; free = next) {
        next = free->next;
        empty_slot(l, free);
    }
    l->free = NULL;
    l->resting = l->aside = 0;
    l->next_begin = l->next_deliver;
}

void engine_unref(struct leat_loader *l)
{
    if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    if (l->device)
        device_rows_close(l->device, &l->rows);
    device_close(l->device);
    mem_free(l->slots);
    mem_free(l->errors);
    mem_free(l->given);
    mem_free(l->given_samples);
    leat_source_unref(l->source);
    mem_free(l);
}
