/* bad_samples.c: what becomes of bad samples: an error, left out, or replaced.
 *
 * next() does this batch by batch in the order of delivery, so replacements and the list of errors
 * depend on the data alone, not on threads.
 */
#include "load/engine.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* REPLACE fails after so many bad samples in a row. */
#define MOST_DRAWS 100

static int by_place(const void *a, const void *b)
{
    int64_t x = ((const struct bad_sample *)a)->place, y = ((const struct bad_sample *)b)->place;
    return (x > y) - (x < y);
}

static void list_error(struct leat_loader *l, const struct slot *slot, int64_t index, int code,
                       const char *text)
{
    pthread_mutex_lock(&l->lock);
    l->stats.errors++;
    if (l->errors_count < LEAT_ERRORS_KEPT &&
        mem_reserve(&l->errors, &l->errors_capacity, l->errors_count + 1, sizeof *l->errors) == 0) {
        struct leat_loader_error *e = &l->errors[l->errors_count++];
        *e = (struct leat_loader_error){.epoch = slot->batch.epoch, .index = index, .code = code};
        snprintf(e->text, sizeof e->text, "%s", text);
    }
    pthread_mutex_unlock(&l->lock);
}

/* Reads one sample into one row. A bad one is listed. */
struct single_report {
    struct source_report base;
    int code;
    char text[sizeof((struct bad_sample *)0)->text];
};

static void note_single(struct source_report *base, size_t place, int code, const char *text)
{
    struct single_report *report = (struct single_report *)base;
    report->code = code;
    snprintf(report->text, sizeof report->text, "%s", text);
}

static int read_single(struct leat_loader *l, struct slot *slot, int64_t row, int64_t index)
{
    uint8_t *places[LEAT_MAX_FIELDS];
    struct single_report report = {.base = {note_single}};
    struct source_request request = slot_request(slot, &l->layout, &index, 1, row, places);
    struct leat_err err = {""};
    int failed = l->source->ops->read(l->source, &request, &report.base, &err);
    if (failed < 0)
        note_single(&report.base, 0, failed, err.text);
    if (report.code < 0)
        list_error(l, slot, index, report.code, report.text);
    else
        slot->indices[row] = index;
    return report.code;
}

/* Reads another sample, drawn by (seed, epoch, sample, attempt). */
static int replace(struct leat_loader *l, struct slot *slot, int64_t row, struct leat_err *err)
{
    int64_t index = slot->indices[row];
    uint64_t key =
        random_at(l->epoch_order.key, 0x7265706c, (uint64_t)index); /* a stream of its own */
    for (uint64_t n = 0; n < MOST_DRAWS; n++) {
        uint64_t draw = random_at(key, n, 0) % (uint64_t)l->source->count;
        if (read_single(l, slot, row, (int64_t)draw) == 0)
            return 0;
    }
    return err_set(err, -LEAT_E_CORRUPT,
                   "Sample %lld is bad, and so are %d others that were to replace it.",
                   (long long)index, MOST_DRAWS);
}

static void move_row(struct leat_loader *l, struct slot *slot, int64_t from, int64_t to)
{
    for (uint32_t f = 0; f < l->layout.fields; f++)
        memcpy(slot_row(slot, &l->layout, f, to), slot_row(slot, &l->layout, f, from),
               l->layout.row_bytes[f]);
    slot->indices[to] = slot->indices[from];
}

/* Reads the last sample of the rank's share into this row; if that is the row itself, the batch
 * ends before it. */
static void skip(struct leat_loader *l, struct slot *slot, int64_t row)
{
    int64_t here = slot->batch.number * l->share.batch_size + row;
    for (;;) {
        int64_t last = l->share.samples - ++l->spare, index;
        if (last <= here)
            return;
        epoch_order_fill(&l->epoch_order, share_position(&l->share, last), 1, &index);
        if (read_single(l, slot, row, index) == 0)
            return;
    }
}

/* Rows of this batch that were not taken for an earlier one. */
static int64_t rows_left(const struct leat_loader *l, const struct slot *slot)
{
    int64_t left = l->share.samples - l->spare - slot->batch.number * l->share.batch_size;
    if (left > slot->batch.samples)
        left = slot->batch.samples;
    if (left < 0 || (l->options.drop_last && left < l->share.batch_size))
        left = 0;
    return left;
}

/* SKIP with GIVEN indices: the batch gets shorter. From the back, so that a row that moves is a
 * good one. */
static void leave_out(struct leat_loader *l, struct slot *slot)
{
    for (size_t i = slot->bad_count; i-- > 0;) {
        int64_t last = --slot->batch.samples;
        for (int64_t row = slot->bad[i].place; row < last; row++)
            move_row(l, slot, row + 1, row);
    }
}

static int raise_first(const struct slot *slot, struct leat_err *err)
{
    const struct bad_sample *bad = &slot->bad[0];
    return err_set(err, bad->code, "Sample %lld: %s", (long long)slot->indices[bad->place],
                   bad->text);
}

int bad_samples_handle(struct leat_loader *l, struct slot *slot, struct leat_err *err)
{
    int in_order = l->options.order != LEAT_ORDER_GIVEN;
    if (slot->bad_lost)
        return err_set(err, -ENOMEM, "No memory to list the bad samples of batch %lld.",
                       (long long)slot->batch.number);
    if (in_order && l->spare)
        slot->batch.samples = rows_left(l, slot);
    if (!slot->bad_count)
        return 0;
    qsort(slot->bad, slot->bad_count, sizeof *slot->bad, by_place);
    for (size_t i = 0; i < slot->bad_count; i++) {
        const struct bad_sample *bad = &slot->bad[i];
        if (bad->place >= slot->batch.samples) {
            slot->bad_count = i; /* already listed when it was to replace another */
            break;
        }
        list_error(l, slot, slot->indices[bad->place], bad->code, bad->text);
        int failed = 0;
        if (l->options.on_error == LEAT_ERROR_REPLACE)
            failed = replace(l, slot, bad->place, err);
        else if (l->options.on_error == LEAT_ERROR_SKIP && in_order) {
            skip(l, slot, bad->place);
            slot->batch.samples = rows_left(l, slot);
        }
        if (failed < 0)
            return failed;
    }
    if (!slot->bad_count)
        return 0;
    if (l->options.on_error == LEAT_ERROR_RAISE)
        return raise_first(slot, err);
    if (l->options.on_error == LEAT_ERROR_SKIP && !in_order)
        leave_out(l, slot);
    return 0;
}
