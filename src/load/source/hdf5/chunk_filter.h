/* chunk_filter.h: undoes the filters of an HDF5 chunk.
 *
 *     written    items ──► shuffle ──► deflate ──► fletcher32 ──► the bytes in the file
 *     read       items ◄── shuffle ◄── deflate ◄── fletcher32 ◄──
 *
 * The bytes are foreign: no filter reads or writes outside of its buffers. The size of an unpacked
 * chunk is known beforehand, so nothing is allocated here. libdeflate does deflate and checks
 * Adler-32; the other filters are written here.
 */
#ifndef LEAT_LOAD_SOURCE_CHUNK_FILTER_H
#define LEAT_LOAD_SOURCE_CHUNK_FILTER_H

#include "leat/loader.h"

#include <stdint.h>

struct chunk_pipeline {
    uint32_t count;
    struct leat_hdf5_filter filter[LEAT_HDF5_MAX_FILTERS]; /* in the order they were applied in */
};

/* The name that users know: "gzip". */
const char *chunk_filter_name(uint32_t kind);

/* Buffers of a thread, kept for the next chunk. Begin with zeros. */
struct chunk_scratch {
    uint8_t *bytes; /* owned; at least `capacity` of them before a call */
    uint64_t capacity;
    void *inflater; /* owned; made at the first use */
};

void chunk_scratch_done(struct chunk_scratch *scratch);

/* Size of both buffers: between two filters a chunk may be a little larger than at the end. */
uint64_t chunk_filter_capacity(uint64_t chunk_bytes);

/* Whether `stored_bytes` can unpack to `chunk_bytes`: checked before memory is allocated. */
int chunk_filter_plausible(const struct chunk_pipeline *pipeline, uint32_t mask,
                           uint64_t stored_bytes, uint64_t chunk_bytes);

/* Unpacks into `chunk`, which has chunk_filter_capacity() bytes. Filters whose bit is set in `mask`
 * were not applied. Negative: `*ret_why` is the end of a sentence such as "its deflate stream is
 * damaged". */
int chunk_unfilter(const struct chunk_pipeline *pipeline, uint32_t mask, const uint8_t *stored,
                   uint64_t stored_bytes, struct chunk_scratch *scratch, uint8_t *chunk,
                   uint64_t chunk_bytes, const char **ret_why);

#endif
