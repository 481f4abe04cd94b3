/* megatron_index.h: the .idx beside a .bin of tokens, as Megatron-LM's IndexedDataset writes it.
 *
 *     "MMIDIDX\0\0"  version 1 (8 bytes)  type (1)  sequences n (8)  documents m (8)
 *     lengths: n x int32, in tokens   pointers: n x int64, in bytes   documents: m x int64
 *
 * All little-endian. leat reads the type and how far the sequences reach: fixed-length slices run
 * over them as one stream, so they must follow each other without gaps.
 */
#ifndef LEAT_LOAD_SOURCE_MEGATRON_INDEX_H
#define LEAT_LOAD_SOURCE_MEGATRON_INDEX_H

#include "base/err.h"
#include "leat/loader.h"

struct megatron_index {
    enum leat_dtype dtype;
    int64_t tokens, sequences;
};

int megatron_index_parse(const char *path, const uint8_t *bytes, uint64_t count,
                         struct megatron_index *ret_index, struct leat_err *err);

#endif
