/* slot.c: see slot.h. */
#include "load/slot.h"

#include "base/mem.h"

#include <sys/mman.h>

#define ALIGN_BYTES 64
#define HUGE_BYTES  (2u << 20)
/* Below this a slot comes from malloc: a process may have only some 65 000 mappings, and a consumer
 * may keep more batches than that. */
#define MAPPED_BYTES (256u << 10)

static int add_part(uint64_t *total, uint64_t rows, uint64_t row_bytes, uint64_t *ret_offset)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(rows, row_bytes, &bytes) || bytes > INT64_MAX / 4)
        return -EOVERFLOW;
    *ret_offset = *total;
    *total += (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return *total > INT64_MAX / 4 ? -EOVERFLOW : 0;
}

int slot_layout_init(struct slot_layout *layout, const struct leat_source *source,
                     int64_t batch_size)
{
    *layout = (struct slot_layout){.fields = source->fields};
    for (uint32_t f = 0; f < source->fields; f++) {
        layout->row_bytes[f] = source->field[f].row_bytes;
        if (add_part(&layout->bytes, (uint64_t)batch_size, layout->row_bytes[f],
                     &layout->offset[f]) < 0)
            return -EOVERFLOW;
    }
    return add_part(&layout->bytes, (uint64_t)batch_size, sizeof(int64_t), &layout->indices_offset);
}

uint64_t slot_cost_bytes(const struct slot_layout *layout)
{
    /* A mapping ends at a page, and its last huge page may stand for it. */
    uint64_t spare = layout->bytes >= HUGE_BYTES ? HUGE_BYTES : 4096;
    return (layout->bytes + spare - 1) / spare * spare + sizeof(struct slot);
}

/* Maps `bytes` at a multiple of a huge page: maps one more and cuts both ends off. */
static void *map_aligned(size_t bytes)
{
    size_t whole = bytes + HUGE_BYTES;
    uint8_t *area = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return NULL;
    size_t head = (HUGE_BYTES - (uintptr_t)area % HUGE_BYTES) % HUGE_BYTES;
    if (head)
        munmap(area, head);
    munmap(area + head + bytes, whole - head - bytes);
    madvise(area + head, bytes, MADV_HUGEPAGE); /* a hint: fine without */
    return area + head;
}

static void *get_memory(struct slot *slot, size_t bytes)
{
    slot->mapped = bytes >= MAPPED_BYTES;
    if (slot->mapped) {
        /* Huge pages only where they are filled. */
        size_t unit = bytes >= HUGE_BYTES ? HUGE_BYTES : 4096;
        slot->memory_bytes = (bytes + unit - 1) / unit * unit;
        slot->memory = map_aligned(slot->memory_bytes);
        return slot->memory;
    }
    slot->memory_bytes = bytes + ALIGN_BYTES;
    if (!(slot->memory = mem_alloc(slot->memory_bytes)))
        return NULL;
    uintptr_t at = (uintptr_t)slot->memory;
    return (void *)((at + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES);
}

int slot_get_memory(struct slot *slot, const struct slot_layout *layout)
{
    uint8_t *start = get_memory(slot, layout->bytes);
    if (!start)
        return -ENOMEM;
    for (uint32_t f = 0; f < layout->fields; f++)
        slot->data[f] = start + layout->offset[f];
    slot->indices = (int64_t *)(start + layout->indices_offset);
    slot->batch.fields = layout->fields;
    slot->batch.data = slot->data;
    slot->batch.indices = slot->indices;
    return 0;
}

void slot_drop_memory(struct slot *slot)
{
    if (slot->mapped)
        munmap(slot->memory, slot->memory_bytes);
    else
        mem_free(slot->memory);
    slot->memory = NULL;
}

void slot_free(struct slot *slot)
{
    if (!slot)
        return;
    if (slot->memory)
        slot_drop_memory(slot);
    mem_free(slot->bad);
    mem_free(slot);
}
