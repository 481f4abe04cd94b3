/* fuzz_chunk_filter.c: any bytes as a packed chunk.
 *
 *     filters (1 byte, up to 4)   kind (1 byte each)   mask (1)   chunk bytes (2, little-endian) …
 *
 * The buffers have the minimal size, so that a sanitizer sees every write outside. */
#include "load/source/hdf5/chunk_filter.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chunk_pipeline p = {0};
    const char *why = NULL;
    if (size < 8)
        return 0;
    p.count = data[0] % 5;
    for (uint32_t i = 0; i < p.count; i++)
        p.filter[i] =
            (struct leat_hdf5_filter){data[1 + i] % LEAT_HDF5_FILTERS_COUNT, 1 + data[1 + i] / 16};
    uint64_t chunk_bytes = data[6] + 256u * data[7];
    uint64_t capacity = chunk_filter_capacity(chunk_bytes);
    struct chunk_scratch scratch = {.bytes = malloc(capacity), .capacity = capacity};
    uint8_t *stored = malloc(size - 8 + !(size - 8)), *chunk = malloc(capacity);
    memcpy(stored, data + 8, size - 8);
    int failed = chunk_unfilter(&p, data[5], stored, size - 8, &scratch, chunk, chunk_bytes, &why);
    if (!failed == (why != NULL))
        abort();
    if (!failed && !chunk_filter_plausible(&p, data[5], size - 8, chunk_bytes))
        abort();
    free(scratch.bytes);
    scratch.bytes = NULL;
    chunk_scratch_done(&scratch);
    free(stored);
    free(chunk);
    return 0;
}
