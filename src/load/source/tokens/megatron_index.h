/* megatron_index.h: the .idx beside a .bin of tokens, as Megatron-LM's IndexedDataset writes it.
 *
 *     "MMIDIDX\0\0"  version 1 (8 bytes)  type (1)  sequences n (8)  documents m (8)
 *     lengths: n x int32, in tokens   pointers: n x int64, in bytes   documents: m x int64
 *
 * All little-endian. leat reads the type and the extent of the sequences: fixed-length slices cross
 * them as one stream, so they must follow each other without gaps. `documents` holds the number of
 * the first sequence of each, and n at the end: document i has the sequences documents[i] to
 * documents[i + 1] - 1, possibly none.
 */
#ifndef LEAT_LOAD_SOURCE_MEGATRON_INDEX_H
#define LEAT_LOAD_SOURCE_MEGATRON_INDEX_H

#include "base/err.h"
#include "leat/loader.h"

struct megatron_index {
    enum leat_dtype dtype;
    int64_t tokens, sequences;
    int64_t documents; /* megatron_index_documents() only */
};

int megatron_index_parse(const char *path, const uint8_t *bytes, uint64_t count,
                         struct megatron_index *ret_index, struct leat_err *err);

/* The same, and where each document begins, in tokens: documents + 1 ascending numbers from 0 to
 * `tokens`; mem_free() them. */
int megatron_index_documents(const char *path, const uint8_t *bytes, uint64_t count,
                             struct megatron_index *ret_index, int64_t **ret_starts,
                             struct leat_err *err);

#endif
