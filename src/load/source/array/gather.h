/* gather.h: copies rows of an array, chosen by index, one after the other.
 *
 * Used by every source in memory or in a mapping. Rows without gaps are copied whole, while the
 * next ones are prefetched. Other layouts (Fortran order, views) are copied item by item.
 */
#ifndef LEAT_LOAD_SOURCE_GATHER_H
#define LEAT_LOAD_SOURCE_GATHER_H

#include "leat/loader.h"

struct gather {
    const uint8_t *base; /* of row 0 */
    int64_t stride_bytes;
    uint64_t row_bytes;
    uint32_t item_bytes;
    uint32_t swap_bytes; /* 0, or the unit whose bytes are reversed: 2, 4, 8 or 16 */
    uint32_t dims;       /* inner dimensions; 0 when the row has no gaps */
    int64_t shape[LEAT_MAX_DIMS];
    int64_t inner_bytes[LEAT_MAX_DIMS]; /* strides of the inner dimensions */
};

/* Describes a whole array of `dims` dimensions. strides NULL: C order. */
void gather_init(struct gather *g, const void *base, uint32_t item_bytes, uint32_t dims,
                 const int64_t *shape, const int64_t *strides_bytes);

void gather_rows(const struct gather *g, const int64_t *indices, size_t count, uint8_t *place);

/* Reverses the bytes of each `unit`. */
void gather_swap(uint8_t *place, uint64_t bytes, uint32_t unit);

/* Cost of one row in nanoseconds, to an order of magnitude. */
double gather_cost_ns(const struct gather *g);

#endif
