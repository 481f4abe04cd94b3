/* array_value.h: an array inside of a value: what it is and where its items lie. */
#ifndef LEAT_LOAD_CODEC_ARRAY_VALUE_H
#define LEAT_LOAD_CODEC_ARRAY_VALUE_H

#include "base/err.h"
#include "leat/loader.h"

struct array_value {
    enum leat_dtype dtype;
    uint64_t item_bytes;
    uint32_t swap_bytes; /* as in struct gather */
    int fortran;         /* the first dimension is fastest */
    uint32_t dims;
    int64_t shape[LEAT_MAX_DIMS];
    uint64_t data_offset; /* from the start of the value */
    uint64_t data_bytes;  /* what the shape asks for; within the value */
};

/* Bytes of an array; -1 where they do not fit into 63 bits. */
int64_t array_value_bytes(uint64_t item_bytes, uint32_t dims, const int64_t *shape);

/* torch.save() of one tensor (torch_value.c). `name` is the subject of the sentence. */
int torch_value_parse(const char *name, const uint8_t *bytes, uint64_t count,
                      struct array_value *ret_value, struct leat_err *err);

#endif
