/* batch_layout.h: from spans to what a batch shows of a variable field.
 *
 *     spans    |a a a|b|c c|          where the source found or wrote the rows of each sample
 *     LIST     the spans themselves
 *     PAD      a a a | b . . | c c .  samples x the longest, the rest filled with a value
 *     CONCAT   a a a b c c            one behind the other
 *
 * The result is made in the slot's arena, once all samples of the batch are there.
 */
#ifndef LEAT_LOAD_BATCH_LAYOUT_H
#define LEAT_LOAD_BATCH_LAYOUT_H

#include "load/slot.h"

struct field_layout {
    int variable;
    enum leat_layout_kind kind;
    int64_t multiple, most;
    uint64_t row_bytes;
    uint8_t item[16]; /* PAD: the padding, one item */
    uint32_t item_bytes;
};

struct batch_layout {
    uint32_t fields;
    int variable; /* some field is */
    struct field_layout field[LEAT_MAX_FIELDS];
};

/* `each` (of every field of the source) goes before `all`; both may be NULL: lists. Refuses what no
 * batch could be made of: a padding that the field's type cannot hold. */
int layout_init(struct batch_layout *layout, const struct leat_source *source,
                const struct leat_layout *all, const struct leat_layout *each,
                struct leat_err *err);

/* Sets what the batch of `samples` rows shows. 0, or -ENOMEM when the arena has no more. */
int layout_make(const struct batch_layout *layout, struct slot *slot);

/* Bytes of the samples in the variable fields, without padding. */
uint64_t layout_bytes(const struct batch_layout *layout, const struct slot *slot);

#endif
