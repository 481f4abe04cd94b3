/* slot.h: the memory of one batch.
 *
 *     block   | field 0: batch_size rows | field 1 … | indices | lengths of a variable field … |
 *     arena   the values of variable fields, whose size is known only when they are read
 *
 * Every part of the block begins at a multiple of 64 bytes. The rows of a variable field are struct
 * leat_span: they are moved, replaced and left out like other rows (bad_samples.c). The batch shows
 * the spans themselves, or what batch_layout.c makes of them in the arena.
 */
#ifndef LEAT_LOAD_SLOT_H
#define LEAT_LOAD_SLOT_H

#include "leat/loader.h"
#include "load/block.h"
#include "load/device/device.h"
#include "load/arena.h"
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
    SLOT_FLIGHT, /* its batch is being made, or ready */
    SLOT_HELD    /* the consumer has it */
};

struct slot {
    struct leat_batch batch;    /* first: a batch is a slot */
    struct leat_loader *loader; /* NULL: the batch is of leat_source_read() and frees itself */
    struct leat_source *source; /* without a loader: a reference */
    atomic_int refs;            /* of the batch, while HELD */

    /* Under the loader's lock. */
    enum slot_state state;
    struct slot *next; /* in the list of free slots, or in that of flights */
    int64_t pieces, claimed, finished;
    int running;      /* threads inside */
    int ready;        /* all pieces are finished, no thread works on it */
    int laid_out;     /* batch_layout.c is done with it */
    int copied;       /* its copy to the device is enqueued and up to date */
    uint64_t read_ns; /* spent making this batch, over all threads */
    struct bad_sample *bad;
    size_t bad_count, bad_capacity;
    int bad_lost; /* no memory to list a bad sample: the batch cannot be trusted */

    /* Set when the batch is begun, then read by all. */
    int64_t first_position; /* of the order's sequence; GIVEN: unused */

    struct arena arena; /* has its own lock */

    /* Set once, with the memory. */
    struct block block;
    int64_t *indices;
    void *rows[LEAT_MAX_FIELDS];       /* in the block */
    int64_t *lengths[LEAT_MAX_FIELDS]; /* NULL: not a variable field */
    struct device_slot device;         /* zeros: batches stay where they are made */
    void *on_device[LEAT_MAX_FIELDS];

    /* What the batch shows; batch_layout.c. */
    void *shown[LEAT_MAX_FIELDS];
    int64_t items[LEAT_MAX_FIELDS];
};

struct slot_layout {
    uint32_t fields;
    uint64_t row_bytes[LEAT_MAX_FIELDS]; /* of a variable field: of a span */
    uint64_t offset[LEAT_MAX_FIELDS];
    uint64_t indices_offset;
    uint64_t lengths_offset[LEAT_MAX_FIELDS]; /* 0: not a variable field */
    uint64_t bytes;                           /* of the block */
    uint64_t rows_bytes;                      /* of all fields' rows, from its start on */
    int own_pages;                            /* the block is mapped by itself */
    int indices_only; /* the block holds no rows: they are gathered on the device (device_rows.h);
                         there the indices follow the rows */
};

/* -EOVERFLOW when a batch is larger than the address space. */
int slot_layout_init(struct slot_layout *layout, const struct leat_source *source,
                     int64_t batch_size);

/* What a slot without arena takes from the budget. */
uint64_t slot_cost_bytes(const struct slot_layout *layout);

int slot_get_memory(struct slot *slot, const struct slot_layout *layout); /* 0 or -ENOMEM */
void slot_drop_memory(struct slot *slot);
void slot_free(struct slot *slot); /* takes NULL */

/* A request for `count` samples that go to the rows from `row` on, with the slot's arena. `places`
 * has LEAT_MAX_FIELDS entries and must live as long as the request. */
struct source_request slot_request(struct slot *slot, const struct slot_layout *layout,
                                   const int64_t *indices, size_t count, int64_t row,
                                   uint8_t **places);

/* The row of one field. */
static inline uint8_t *slot_row(const struct slot *slot, const struct slot_layout *layout,
                                uint32_t field, int64_t row)
{
    return (uint8_t *)slot->rows[field] + (uint64_t)row * layout->row_bytes[field];
}

#endif
