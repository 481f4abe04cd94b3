/* fuzz_hdf5_index.c: any bytes as what comes through the pipe from the process that asked libhdf5.
 * The first byte says how many datasets were asked for. What is let through is searched. */
#include "base/mem.h"
#include "load/source/hdf5/hdf5_index.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void search(const struct hdf5_dataset *dataset)
{
    if (dataset->is.layout != HDF5_CHUNKED || !dataset->grid_chunks)
        return;
    for (uint64_t i = 0; i < dataset->is.follows; i++)
        if (hdf5_chunk_find(dataset, dataset->chunks[i].number) != &dataset->chunks[i])
            abort();
    const struct hdf5_chunk *last = hdf5_chunk_find(dataset, dataset->grid_chunks - 1);
    if (last && last->number != dataset->grid_chunks - 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    struct hdf5_index index;
    struct leat_err err = {""};
    if (!size)
        return 0;
    uint32_t count = 1 + data[0] % 4;
    uint8_t *exact = malloc(size); /* so that a sanitizer sees its end */
    for (size_t i = 1; i < size; i++)
        exact[i - 1] = data[i];
    if (hdf5_index_parse("x.h5", names, count, 4096, exact, size - 1, &index, &err) == 0) {
        if (index.count != count)
            abort();
        for (uint32_t i = 0; i < count; i++)
            search(&index.dataset[i]);
        hdf5_index_done(&index);
    } else if (!*err.text) {
        abort();
    }
    free(exact);
    return 0;
}
