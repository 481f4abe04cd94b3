/* gather.h: rows of arrays, picked by index, laid one behind the other.
 *
 * The heart of every source that lies in memory or in a mapping. Rows without gaps are copied
 * whole, with the rows to come fetched into the caches meanwhile. Other layouts (Fortran order,
 * views) are copied item by item.
 */
#ifndef LEAT_LOAD_SOURCE_GATHER_H
#define LEAT_LOAD_SOURCE_GATHER_H

#include "leat/loader.h"

struct gather {
    const uint8_t *base; /* of row 0 */
    int64_t stride_bytes;
    uint64_t row_bytes;
    uint32_t item_bytes;
    uint32_t swap_bytes; /* 0, or the size of the units whose bytes are turned: 2, 4, 8 or 16 */
    uint32_t dims;       /* inner dimensions; 0 when the row lies without gaps */
    int64_t shape[LEAT_MAX_DIMS];
    int64_t inner_bytes[LEAT_MAX_DIMS]; /* strides of the inner dimensions */
};

/* Describes a whole array of `dims` dimensions. strides NULL: C order. */
void gather_init(struct gather *g, const void *base, uint32_t item_bytes, uint32_t dims,
                 const int64_t *shape, const int64_t *strides_bytes);

void gather_rows(const struct gather *g, const int64_t *indices, size_t count, uint8_t *place);

/* Turns the bytes of each `unit` of them. */
void gather_swap(uint8_t *place, uint64_t bytes, uint32_t unit);

/* What one row costs, in nanoseconds, to an order of magnitude. */
double gather_cost_ns(const struct gather *g);

#endif
