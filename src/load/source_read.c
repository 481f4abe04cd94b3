/* source_read.c: leat_source_read(): samples without a loader.
 *
 * For callers that need certain samples now, such as __getitem__ of a dataset: the calling thread
 * makes the batch, in a slot of its own.
 */
#include "load/batch_layout.h"

#include "base/mem.h"

#include <stdio.h>

struct read_report {
    struct source_report base;
    size_t place;
    int code;
    char text[sizeof((struct bad_sample *)0)->text];
};

/* Keeps the bad sample that comes first in the request. */
static void note_first(struct source_report *base, size_t place, int code, const char *text)
{
    struct read_report *report = (struct read_report *)base;
    if (report->code && report->place <= place)
        return;
    report->place = place;
    report->code = code;
    snprintf(report->text, sizeof report->text, "%s", text);
}

static int check_indices(const struct leat_source *source, const int64_t *indices, size_t count,
                         struct leat_err *err)
{
    if (!count || count > INT64_MAX / sizeof(int64_t))
        return err_set(err, -LEAT_E_USAGE, "%zu samples cannot be read together.", count);
    for (size_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= source->count)
            return err_set(err, -ERANGE, "Index %lld is outside the source of %lld samples.",
                           (long long)indices[i], (long long)source->count);
    return 0;
}

static int read_all(struct leat_source *source, struct slot *slot, const struct slot_layout *place,
                    const struct batch_layout *layout, struct leat_err *err)
{
    uint8_t *places[LEAT_MAX_FIELDS];
    struct read_report report = {.base = {note_first}};
    struct source_request request =
        slot_request(slot, place, slot->indices, (size_t)slot->batch.samples, 0, places);
    int failed = source->ops->read(source, &request, &report.base, err);
    if (failed < 0)
        return failed;
    if (report.code)
        return err_set(err, report.code, "Sample %lld: %s", (long long)slot->indices[report.place],
                       report.text);
    if (layout_make(layout, slot) < 0)
        return err_set(err, -ENOMEM, "No memory for %lld samples.", (long long)slot->batch.samples);
    return 0;
}

int leat_source_read(struct leat_source *source, const int64_t *indices, size_t count,
                     const struct leat_layout *asked, struct leat_batch **ret_batch,
                     struct leat_err *err)
{
    struct slot_layout place;
    struct batch_layout layout;
    int failed = check_indices(source, indices, count, err);
    if (!failed)
        failed = layout_init(&layout, source, asked, NULL, err);
    if (failed)
        return failed;
    struct slot *slot = mem_alloc(sizeof *slot);
    if (!slot || slot_layout_init(&place, source, (int64_t)count) < 0 ||
        slot_get_memory(slot, &place) < 0) {
        slot_free(slot);
        return err_set(err, -ENOMEM, "No memory for %zu samples.", count);
    }
    arena_init(&slot->arena, NULL);
    atomic_init(&slot->refs, 1);
    slot->source = leat_source_ref(source);
    slot->batch.samples = (int64_t)count;
    for (size_t i = 0; i < count; i++)
        slot->indices[i] = indices[i];
    failed = read_all(source, slot, &place, &layout, err);
    if (failed)
        leat_batch_unref(&slot->batch);
    else
        *ret_batch = &slot->batch;
    return failed;
}
