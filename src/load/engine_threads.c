/* engine_threads.c: the pieces of a batch, and the threads that make them; see engine.h. */
#include "load/engine.h"

#include "base/clock.h"
#include "base/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Enough for decoders; the default of 8 MiB counts against limits on address space. */
#define STACK_BYTES (1u << 20)

int engine_claim_piece(struct leat_loader *l, struct slot *only, struct slot **ret_slot,
                       int64_t *ret_piece)
{
    struct slot *slot = only ? only : l->flights;
    while (slot && slot->claimed == slot->pieces)
        slot = only ? NULL : slot->next;
    if (!slot)
        return 0;
    *ret_slot = slot;
    *ret_piece = slot->claimed++;
    slot->running++;
    return 1;
}

/* Collects the bad samples of a piece; they are handled at delivery. */
struct piece_report {
    struct source_report base;
    struct leat_loader *loader;
    struct slot *slot;
    int64_t first_row;
};

static void note_bad(struct source_report *base, size_t place, int code, const char *text)
{
    struct piece_report *report = (struct piece_report *)base;
    struct slot *slot = report->slot;
    int64_t row = report->first_row + (int64_t)place;
    pthread_mutex_lock(&report->loader->lock);
    for (size_t i = slot->bad_count; i-- > 0;)
        if (slot->bad[i].place == row) { /* in another field, or when it was read again */
            pthread_mutex_unlock(&report->loader->lock);
            return;
        }
    if (mem_reserve(&slot->bad, &slot->bad_capacity, slot->bad_count + 1, sizeof *slot->bad) < 0) {
        slot->bad_lost = 1;
    } else {
        struct bad_sample *bad = &slot->bad[slot->bad_count++];
        bad->place = row;
        bad->code = code;
        snprintf(bad->text, sizeof bad->text, "%s", text);
    }
    pthread_mutex_unlock(&report->loader->lock);
}

static void find_indices(struct leat_loader *l, struct slot *slot, int64_t first, size_t count)
{
    if (l->options.order == LEAT_ORDER_GIVEN) {
        const int64_t *given =
            l->given + slot->batch.number % l->options.ahead * l->options.batch_size;
        memcpy(slot->indices + first, given + first, count * sizeof *given);
    } else {
        epoch_order_fill(&l->epoch_order, slot->first_position + first, count,
                         slot->indices + first);
    }
}

static void read_piece(struct leat_loader *l, struct slot *slot, int64_t first, size_t count)
{
    uint8_t *places[LEAT_MAX_FIELDS];
    struct piece_report report = {{note_bad}, l, slot, first};
    struct source_request request =
        slot_request(slot, &l->layout, slot->indices + first, count, first, places);
    struct leat_err err = {""};
    int failed = l->source->ops->read(l->source, &request, &report.base, &err);
    for (size_t i = 0; failed < 0 && i < count; i++)
        note_bad(&report.base, i, failed, err.text);
}

uint64_t engine_lay_out(struct leat_loader *l, struct slot *slot)
{
    if (!l->layouts.variable)
        return 0;
    pthread_mutex_unlock(&l->lock);
    uint64_t t0 = clock_now_ns();
    int failed = layout_make(&l->layouts, slot);
    uint64_t t1 = clock_now_ns();
    pthread_mutex_lock(&l->lock);
    slot->laid_out = !failed;
    slot->read_ns += t1 - t0;
    l->stats.layout_ns += t1 - t0;
    return t1 - t0;
}

/* Copies the rows: in one piece when there are no gaps. */
static int copy_rows(struct leat_loader *l, struct slot *slot, struct leat_err *err)
{
    const struct slot_layout *layout = &l->layout;
    struct device_slot *there = &slot->device;
    uint64_t samples = (uint64_t)slot->batch.samples;
    if (slot->batch.samples == l->options.batch_size)
        return device_slot_copy(l->device, there, 0, slot->block.start, layout->rows_bytes, err);
    int failed = 0;
    for (uint32_t f = 0; f < layout->fields && !failed; f++)
        failed = device_slot_copy(l->device, there, layout->offset[f], slot->rows[f],
                                  samples * layout->row_bytes[f], err);
    return failed;
}

/* Copies the indices, and gathers the rows on the device. */
static int gather_rows_there(struct leat_loader *l, struct slot *slot, struct leat_err *err)
{
    const struct slot_layout *layout = &l->layout;
    struct device_slot *there = &slot->device;
    int64_t samples = slot->batch.samples;
    int failed = device_slot_copy(l->device, there, layout->indices_offset, slot->indices,
                                  (uint64_t)samples * sizeof(int64_t), err);
    for (uint32_t f = 0; f < layout->fields && !failed; f++)
        failed = device_rows_gather(l->device, &l->rows, there, f, layout->row_bytes[f],
                                    layout->offset[f], layout->indices_offset, samples, err);
    return failed;
}

int engine_copy_to_device(struct leat_loader *l, struct slot *slot, struct leat_err *err)
{
    int failed = device_slot_claim(l->device, &slot->device, err);
    if (!failed)
        failed = (l->rows.memory ? gather_rows_there : copy_rows)(l, slot, err);
    if (!failed)
        failed = device_slot_copied(l->device, &slot->device, err);
    return failed;
}

/* All pieces are made. The thread that made the last one pads or joins the variable fields, while
 * the others go on with the next batches. A batch with bad samples is left to next(), and so is one
 * that is too large to be laid out twice. The same holds for the copy to a device. */
static uint64_t finish_flight(struct leat_loader *l, struct slot *slot)
{
    int later = slot->bad_count || slot->bad_lost || l->alone;
    uint64_t ns = later ? 0 : engine_lay_out(l, slot);
    if (l->device && !later) {
        pthread_mutex_unlock(&l->lock);
        int failed = engine_copy_to_device(l, slot, NULL);
        pthread_mutex_lock(&l->lock);
        slot->copied = !failed;
    }
    slot->ready = 1;
    return ns;
}

uint64_t engine_make_piece(struct leat_loader *l, struct slot *slot, int64_t piece)
{
    int64_t first = piece * l->piece, left = slot->batch.samples - first;
    size_t count = (size_t)(left < l->piece ? left : l->piece);
    pthread_mutex_unlock(&l->lock);
    if (l->device) /* the copy of what lay here may still run */
        device_slot_read(l->device, &slot->device);
    uint64_t t0 = clock_now_ns();
    find_indices(l, slot, first, count);
    uint64_t t1 = clock_now_ns();
    if (!l->rows.memory)
        read_piece(l, slot, first, count);
    uint64_t t2 = clock_now_ns();
    pthread_mutex_lock(&l->lock);
    l->stats.order_ns += t1 - t0;
    l->stats.read_ns += t2 - t1;
    slot->read_ns += t2 - t0;
    slot->finished++;
    if (slot->finished == slot->pieces)
        t2 += finish_flight(l, slot);
    slot->running--;
    if (slot->ready || (slot->claimed == slot->pieces && !slot->running))
        pthread_cond_broadcast(&l->ready);
    return t2 - t0;
}

static void *work(void *argument)
{
    struct engine_thread *thread = argument;
    struct leat_loader *l = thread->loader;
    struct slot *slot;
    int64_t piece;
    pthread_mutex_lock(&l->lock);
    thread->tid = gettid();
    while (!l->ending) {
        if (thread->number < l->active && engine_claim_piece(l, NULL, &slot, &piece)) {
            engine_make_piece(l, slot, piece);
            continue;
        }
        uint64_t t0 = clock_now_ns();
        pthread_cond_wait(&l->work, &l->lock);
        if (thread->number < l->active)
            l->stats.idle_ns += clock_now_ns() - t0;
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Signals of the process are not for this thread: block all but SIGBUS, which mapped_file.c
 * handles. */
static int start_thread(struct engine_thread *thread)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread->id, &attributes, work, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (!failed) {
        char name[16];
        snprintf(name, sizeof name, "leat-load-%d", thread->number);
        pthread_setname_np(thread->id, name);
    }
    return -failed;
}

void engine_start_threads(struct leat_loader *l)
{
    while (l->started < l->active) {
        struct engine_thread *thread = &l->threads[l->started];
        *thread = (struct engine_thread){.loader = l, .number = l->started};
        if (start_thread(thread) < 0)
            return; /* with fewer threads, or none: next() does the rest */
        l->started++;
    }
}

void engine_end_threads(struct leat_loader *l)
{
    pthread_mutex_lock(&l->lock);
    int started = l->started;
    l->ending = 1;
    for (struct slot *slot = l->flights; slot; slot = slot->next)
        slot->claimed = slot->pieces;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < started; i++)
        pthread_join(l->threads[i].id, NULL);
    pthread_mutex_lock(&l->lock);
    l->started = 0;
    l->ending = 0;
    pthread_mutex_unlock(&l->lock);
}
