/* slot.h: the memory that one batch lies in.
 *
 *     | field 0: batch_size rows | pad | field 1 … | pad | indices: batch_size x 8 bytes |
 *
 * Every part begins at a multiple of 64 bytes. Large slots are mapped, aligned to huge pages, and
 * ask for them: a batch of a megabyte and more is then filled without a fault for each 4 KiB, which
 * is half of what a copy from warm memory costs. Slots are filled again and again; the pages stay.
 */
#ifndef LEAT_LOAD_SLOT_H
#define LEAT_LOAD_SLOT_H

#include "leat/loader.h"
#include "load/source.h"

#include <stdatomic.h>

struct bad_sample {
    int64_t place; /* row in the batch */
    int code;
    char text[sizeof((struct leat_loader_error *)0)->text];
};

enum slot_state {
    SLOT_EMPTY,  /* no memory */
    SLOT_FREE,   /* memory, no batch */
    SLOT_FLIGHT, /* a batch is made in it, or ready in it */
    SLOT_HELD    /* the consumer has it */
};

struct slot {
    struct leat_batch batch; /* first: a batch is a slot */
    struct leat_loader *loader;
    atomic_int refs; /* of the batch, while HELD */

    /* Under the loader's lock. */
    enum slot_state state;
    struct slot *next; /* in the list of free slots, or in that of flights */
    int64_t pieces, claimed, finished;
    int running;      /* threads inside */
    uint64_t read_ns; /* spent making this batch, over all threads */
    struct bad_sample *bad;
    size_t bad_count, bad_capacity;
    int bad_lost; /* no memory to note a bad sample: the batch cannot be trusted */

    /* Set when the batch is begun, then read by all. */
    int64_t first_position; /* of the order's sequence; GIVEN: unused */

    /* Set once. */
    void *memory;
    size_t memory_bytes;
    int mapped;
    int64_t *indices;
    void *data[LEAT_MAX_FIELDS];
};

struct slot_layout {
    uint32_t fields;
    uint64_t row_bytes[LEAT_MAX_FIELDS];
    uint64_t offset[LEAT_MAX_FIELDS];
    uint64_t indices_offset;
    uint64_t bytes; /* of the memory */
};

/* -EOVERFLOW when a batch is larger than an address space. */
int slot_layout_init(struct slot_layout *layout, const struct leat_source *source,
                     int64_t batch_size);

/* What a slot takes in all, for the budget. */
uint64_t slot_cost_bytes(const struct slot_layout *layout);

int slot_get_memory(struct slot *slot, const struct slot_layout *layout); /* 0 or -ENOMEM */
void slot_drop_memory(struct slot *slot);
void slot_free(struct slot *slot); /* takes NULL */

/* The row of one field. */
static inline uint8_t *slot_row(const struct slot *slot, const struct slot_layout *layout,
                                uint32_t field, int64_t row)
{
    return (uint8_t *)slot->data[field] + (uint64_t)row * layout->row_bytes[field];
}

#endif
