/* npy_header.h: the first bytes of a .npy file.
 *
 *     "\x93NUMPY"  major  minor  length (2 bytes; 4 from version 2 on)  dictionary  data …
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (7000000, 100), }
 *
 * The dictionary is a literal of Python's. Foreign bytes: every length is checked against what is
 * there, nesting is bounded, and nothing is allocated but the text of the description.
 */
#ifndef LEAT_LOAD_SOURCE_NPY_HEADER_H
#define LEAT_LOAD_SOURCE_NPY_HEADER_H

#include "base/err.h"
#include "leat/loader.h"

struct npy_header {
    enum leat_dtype dtype;
    uint64_t item_bytes;
    uint32_t swap_bytes; /* as in struct gather */
    int fortran;
    uint32_t dims;
    int64_t shape[LEAT_MAX_DIMS];
    uint64_t data_offset; /* from the start of the .npy */
    uint64_t data_bytes;  /* what the shape asks for; within the given bytes */
    char *descr;          /* RAW: owned by the caller, as the file has it; else NULL */
};

/* `path` is for the sentence. */
int npy_header_parse(const char *path, const uint8_t *bytes, uint64_t count,
                     struct npy_header *ret_header, struct leat_err *err);

/* As above, for a .npy that is one value and not an array of samples: single items, and arrays
 * without any, are fine. */
int npy_header_parse_value(const char *path, const uint8_t *bytes, uint64_t count,
                           struct npy_header *ret_header, struct leat_err *err);

#endif
