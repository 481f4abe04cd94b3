/* chunk_filter.h: the filters of HDF5's chunks, backwards.
 *
 *     written    items ──► shuffle ──► deflate ──► fletcher32 ──► the bytes in the file
 *     read       items ◄── shuffle ◄── deflate ◄── fletcher32 ◄──
 *
 * The bytes are foreign: no filter reads or writes outside of what it is given, whatever they say.
 * What a chunk unpacks to is known beforehand, so nothing is allocated here. Deflate is
 * libdeflate's, which this file is the home of; it checks Adler-32 too. The others are our own.
 */
#ifndef LEAT_LOAD_SOURCE_CHUNK_FILTER_H
#define LEAT_LOAD_SOURCE_CHUNK_FILTER_H

#include "leat/loader.h"

#include <stdint.h>

struct chunk_pipeline {
    uint32_t count;
    struct leat_hdf5_filter filter[LEAT_HDF5_MAX_FILTERS]; /* in the order they were applied in */
};

/* As HDF5's users call it: "gzip". */
const char *chunk_filter_name(uint32_t kind);

/* What a thread needs to unpack a chunk, kept for the next one. Zeros are a fresh one. */
struct chunk_scratch {
    uint8_t *bytes; /* owned; at least `capacity` of them before a call */
    uint64_t capacity;
    void *inflater; /* owned; made when first needed */
};

void chunk_scratch_done(struct chunk_scratch *scratch);

/* The bytes that both buffers must have: between two filters a chunk may be a little larger than
 * at the end. */
uint64_t chunk_filter_capacity(uint64_t chunk_bytes);

/* Whether `stored_bytes` can unpack to `chunk_bytes` at all: asked before memory is taken for it.
 */
int chunk_filter_plausible(const struct chunk_pipeline *pipeline, uint32_t mask,
                           uint64_t stored_bytes, uint64_t chunk_bytes);

/* Unpacks into `chunk`, which has chunk_filter_capacity() bytes. Filters whose bit is set in `mask`
 * were not applied. 0, or negative with `*ret_why`, the end of a sentence: "its deflate stream is
 * damaged". */
int chunk_unfilter(const struct chunk_pipeline *pipeline, uint32_t mask, const uint8_t *stored,
                   uint64_t stored_bytes, struct chunk_scratch *scratch, uint8_t *chunk,
                   uint64_t chunk_bytes, const char **ret_why);

#endif
