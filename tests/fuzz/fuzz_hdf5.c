/* fuzz_hdf5.c: any bytes as the index of one dataset and the file it describes. A refusal has a
 * message; what is accepted is read whole.
 *
 *     struct head   head.chunks times struct packed_chunk   the file
 */
#include "leat/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct head {
    uint8_t dtype, swapped, dims, layout, filters, filter[3], shape[3], chunk[3], offset, chunks;
};

struct packed_chunk {
    uint8_t number, offset, bytes, mask; /* the offset in units of 16 bytes */
};

static void describe(const struct head *head, struct leat_hdf5_dataset *dataset,
                     struct leat_hdf5_filter *filters)
{
    static const uint8_t compact[65536], fill[16] = {1, 2, 3};
    *dataset = (struct leat_hdf5_dataset){
        .name = "x",
        .dtype = (enum leat_dtype)(head->dtype % (LEAT_DTYPES_COUNT + 1)),
        .swapped = head->swapped,
        .dims = head->dims % 4,
        .layout = (enum leat_hdf5_layout)(head->layout % 4),
        .offset = head->offset == 255 ? LEAT_HDF5_NEVER_WRITTEN : head->offset,
        .data = compact,
        .filters = filters,
        .filters_count = head->filters % 4,
        .fill = fill};
    for (int i = 0; i < 3; i++) {
        dataset->shape[i] = i ? head->shape[i] % 16 : head->shape[i];
        dataset->chunk[i] = head->chunk[i] % 32;
        filters[i].kind = head->filter[i] % 16 % (LEAT_HDF5_FILTERS_COUNT + 1);
        filters[i].item_bytes = head->filter[i] / 16;
    }
}

static void read_all(struct leat_source *source, struct leat_err *err)
{
    for (int64_t i = 0; i < leat_source_count(source); i++) {
        struct leat_batch *batch;
        if (leat_source_read(source, &i, 1, NULL, &batch, err) == 0)
            leat_batch_unref(batch);
        else if (!*err->text)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct head head;
    struct leat_hdf5_dataset dataset;
    struct leat_hdf5_filter filters[3];
    struct leat_hdf5_chunk chunks[256];
    struct leat_source *source;
    struct leat_err err = {""};
    char path[32];
    if (size < sizeof head)
        return 0;
    memcpy(&head, data, sizeof head);
    data += sizeof head;
    size -= sizeof head;
    describe(&head, &dataset, filters);
    for (; dataset.chunks_count < head.chunks && size >= sizeof(struct packed_chunk);
         data += sizeof(struct packed_chunk), size -= sizeof(struct packed_chunk)) {
        struct packed_chunk packed;
        memcpy(&packed, data, sizeof packed);
        chunks[dataset.chunks_count++] =
            (struct leat_hdf5_chunk){packed.number, 16u * packed.offset, packed.bytes, packed.mask};
    }
    dataset.chunks = chunks;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct leat_hdf5 hdf5 = {.path = path, .datasets = &dataset, .count = 1};
    if (fd >= 0 && write(fd, data, size) == (ssize_t)size) {
        if (leat_source_hdf5(&hdf5, &source, &err) == 0) {
            read_all(source, &err);
            leat_source_unref(source);
        } else if (!*err.text) {
            abort();
        }
    }
    close(fd);
    return 0;
}
