/* npy_header.h: the header of a .npy file.
 *
 *     "\x93NUMPY"  major  minor  length (2 bytes; 4 from version 2 on)  dictionary  data …
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (7000000, 100), }
 *
 * The dictionary is a literal of Python. Foreign bytes: every length is checked against what is
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
    uint64_t data_bytes;  /* by the shape; within the given bytes */
    char *descr;          /* RAW: owned by the caller, as in the file; else NULL */
};

/* `path` is for messages. */
int npy_header_parse(const char *path, const uint8_t *bytes, uint64_t count,
                     struct npy_header *ret_header, struct leat_err *err);

/* As above, for a .npy that is one value, not an array of samples: single items and empty arrays
 * are allowed. */
int npy_header_parse_value(const char *path, const uint8_t *bytes, uint64_t count,
                           struct npy_header *ret_header, struct leat_err *err);

#endif
