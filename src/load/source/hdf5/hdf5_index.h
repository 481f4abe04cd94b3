/* hdf5_index.h: where the data of some datasets lie in an HDF5 file.
 *
 * What libhdf5 knows of the datasets is asked for by a child process (hdf5_ask.h) and comes back as
 * bytes through a pipe:
 *
 *     DATASET  struct hdf5_dataset_wire   compact: its data   chunked: its struct hdf5_chunk
 *     DATASET  …
 *     END                                 or, at any point:   ERROR  code  sentence
 *
 * Each word in capitals is a uint32_t. Both ends are the same program, so the structs are sent as
 * they are; but the child read a foreign file with a library that trusts its files, so its bytes
 * are parsed like foreign ones: every number is checked before it is used.
 */
#ifndef LEAT_LOAD_SOURCE_HDF5_INDEX_H
#define LEAT_LOAD_SOURCE_HDF5_INDEX_H

#include "base/err.h"
#include "leat/loader.h"
#include "chunk_filter.h"

#define HDF5_MOST_ITEM_BYTES    16
#define HDF5_MOST_COMPACT_BYTES 65536 /* of the format */
#define HDF5_NOWHERE            UINT64_MAX

enum hdf5_tag { HDF5_TAG_DATASET = 0x48354453, HDF5_TAG_ERROR, HDF5_TAG_END };

enum hdf5_layout { HDF5_COMPACT, HDF5_CONTIGUOUS, HDF5_CHUNKED }; /* HDF5's own numbers */

struct hdf5_dataset_wire {
    uint32_t dtype; /* enum leat_dtype */
    uint32_t item_bytes;
    uint32_t swap_bytes; /* as in struct gather */
    uint32_t dims;       /* at least 1: the first one counts the samples */
    int64_t shape[LEAT_MAX_DIMS];
    uint32_t layout;
    uint32_t reserved;
    uint64_t offset;              /* CONTIGUOUS; HDF5_NOWHERE: never written */
    int64_t chunk[LEAT_MAX_DIMS]; /* CHUNKED: shape of a chunk */
    uint64_t follows;             /* COMPACT: bytes; CHUNKED: chunks */
    struct chunk_pipeline pipeline;
    uint8_t fill[HDF5_MOST_ITEM_BYTES]; /* an item of what was never written, as in the file */
};

/* A chunk that was written. Its number counts chunks in C order of the grid they make. */
struct hdf5_chunk {
    uint64_t number;
    uint64_t offset;
    uint32_t bytes;
    uint32_t mask; /* filters that were not applied */
};

struct hdf5_dataset {
    struct hdf5_dataset_wire is;
    uint64_t data_bytes;       /* all samples, unpacked */
    uint64_t row_bytes;        /* more than 0 */
    uint64_t chunk_bytes;      /* CHUNKED: unpacked */
    uint64_t grid_chunks;      /* CHUNKED: of the whole grid, written or not */
    uint8_t *compact;          /* owned; data_bytes */
    struct hdf5_chunk *chunks; /* owned; by number, each once */
};

struct hdf5_index {
    uint32_t count;
    struct hdf5_dataset dataset[LEAT_MAX_FIELDS];
};

/* `path` and `names` are for the sentences; `count` datasets are expected, of a file of
 * `file_bytes`. On failure nothing is left to free. */
int hdf5_index_parse(const char *path, const char *const *names, uint32_t count,
                     uint64_t file_bytes, const uint8_t *bytes, uint64_t bytes_count,
                     struct hdf5_index *ret_index, struct leat_err *err);
void hdf5_index_done(struct hdf5_index *index);

/* The chunk of that number, or NULL: it was never written. */
const struct hdf5_chunk *hdf5_chunk_find(const struct hdf5_dataset *dataset, uint64_t number);

#endif
