/* slot.c: see slot.h. */
#include "load/slot.h"

#include "load/engine.h"

#include "base/mem.h"

static int add_part(uint64_t *total, uint64_t rows, uint64_t row_bytes, uint64_t *ret_offset)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(rows, row_bytes, &bytes) || bytes > BLOCK_MOST_BYTES)
        return -EOVERFLOW;
    *ret_offset = *total;
    *total += block_round_up(bytes);
    return *total > BLOCK_MOST_BYTES ? -EOVERFLOW : 0;
}

int slot_layout_init(struct slot_layout *layout, const struct leat_source *source,
                     int64_t batch_size)
{
    uint64_t samples = (uint64_t)batch_size;
    *layout = (struct slot_layout){.fields = source->fields};
    for (uint32_t f = 0; f < source->fields; f++) {
        const struct leat_field *field = &source->field[f];
        layout->row_bytes[f] = field->variable ? sizeof(struct leat_span) : field->row_bytes;
        if (add_part(&layout->bytes, samples, layout->row_bytes[f], &layout->offset[f]) < 0)
            return -EOVERFLOW;
    }
    layout->rows_bytes = layout->bytes;
    if (add_part(&layout->bytes, samples, sizeof(int64_t), &layout->indices_offset) < 0)
        return -EOVERFLOW;
    for (uint32_t f = 0; f < source->fields; f++)
        if (source->field[f].variable &&
            add_part(&layout->bytes, samples, sizeof(int64_t), &layout->lengths_offset[f]) < 0)
            return -EOVERFLOW;
    return 0;
}

uint64_t slot_cost_bytes(const struct slot_layout *layout)
{
    return block_cost_bytes(layout->bytes) + sizeof(struct slot);
}

int slot_get_memory(struct slot *slot, const struct slot_layout *layout)
{
    uint64_t bytes = layout->bytes - (layout->indices_only ? layout->indices_offset : 0);
    if ((layout->own_pages ? block_map : block_get)(&slot->block, bytes) < 0)
        return -ENOMEM;
    uint8_t *start = slot->block.start;
    if (layout->indices_only)
        start -= layout->indices_offset; /* as if the rows were there: they are not used */
    for (uint32_t f = 0; f < layout->fields; f++) {
        slot->rows[f] = slot->shown[f] = start + layout->offset[f];
        slot->lengths[f] =
            layout->lengths_offset[f] ? (int64_t *)(start + layout->lengths_offset[f]) : NULL;
    }
    slot->indices = (int64_t *)(start + layout->indices_offset);
    slot->batch.fields = layout->fields;
    slot->batch.data = slot->shown;
    slot->batch.indices = slot->indices;
    slot->batch.lengths = (const int64_t *const *)slot->lengths;
    slot->batch.items = slot->items;
    return 0;
}

void slot_drop_memory(struct slot *slot)
{
    if (slot->device.host)
        device_slot_drop(slot->loader->device, &slot->device);
    arena_done(&slot->arena);
    block_drop(&slot->block);
}

void slot_free(struct slot *slot)
{
    if (!slot)
        return;
    slot_drop_memory(slot);
    mem_free(slot->bad);
    mem_free(slot);
}

static void *alloc_row(const struct source_request *request, uint64_t bytes)
{
    return arena_alloc(request->alloc_owner, bytes);
}

struct source_request slot_request(struct slot *slot, const struct slot_layout *layout,
                                   const int64_t *indices, size_t count, int64_t row,
                                   uint8_t **places)
{
    for (uint32_t f = 0; f < layout->fields; f++)
        places[f] = slot_row(slot, layout, f, row);
    return (struct source_request){.indices = indices,
                                   .count = count,
                                   .places = places,
                                   .alloc = alloc_row,
                                   .alloc_owner = &slot->arena};
}
