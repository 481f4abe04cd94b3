/* hdf5_index.h: where the datasets of an HDF5 file lie: a checked copy of the caller's description.
 *
 * The caller's library read the description from a foreign file, so every number is checked before
 * it is used: sizes that overflow, chunks outside of the dataset, data beyond the end of the file.
 * A chunk is found by its number: directly where all were written, else by binary search.
 */
#ifndef LEAT_LOAD_SOURCE_HDF5_INDEX_H
#define LEAT_LOAD_SOURCE_HDF5_INDEX_H

#include "base/err.h"
#include "leat/loader.h"
#include "chunk_filter.h"

#define HDF5_MAX_ITEM_BYTES    16
#define HDF5_MAX_COMPACT_BYTES 65536 /* of the format */

struct hdf5_dataset {
    enum leat_dtype dtype;
    uint32_t item_bytes;
    uint32_t swap_bytes; /* as in struct gather */
    uint32_t dims;
    int64_t shape[LEAT_MAX_DIMS];
    enum leat_hdf5_layout layout;
    uint64_t data_bytes; /* all samples, unpacked */
    uint64_t row_bytes;  /* more than 0 */
    uint64_t offset;     /* CONTIGUOUS; or LEAT_HDF5_NEVER_WRITTEN */
    uint8_t *compact;    /* COMPACT: owned; data_bytes */
    /* CHUNKED. */
    int64_t chunk[LEAT_MAX_DIMS];   /* shape of a chunk */
    uint64_t chunk_bytes;           /* unpacked */
    uint64_t grid_chunks;           /* of the whole grid, written or not */
    struct leat_hdf5_chunk *chunks; /* owned; by number, each once */
    uint64_t chunks_count;
    struct chunk_pipeline pipeline;
    uint8_t fill[HDF5_MAX_ITEM_BYTES]; /* as stored */
};

struct hdf5_index {
    uint32_t count;
    struct hdf5_dataset dataset[LEAT_MAX_FIELDS];
};

/* `hdf5->count` is within bounds. On failure nothing is left to free. */
int hdf5_index_init(struct hdf5_index *index, const struct leat_hdf5 *hdf5, uint64_t file_bytes,
                    struct leat_err *err);
void hdf5_index_done(struct hdf5_index *index);

/* The chunk of that number, or NULL: it was never written. */
const struct leat_hdf5_chunk *hdf5_chunk_find(const struct hdf5_dataset *dataset, uint64_t number);

#endif
