/* hdf5_index.c: see hdf5_index.h. */
#include "hdf5_index.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The dataset that is checked, for messages. */
struct subject {
    const char *path, *name;
};

static int damaged(const struct subject *s, const char *what, struct leat_err *err)
{
    return err_set(err, -LEAT_E_CORRUPT, "%s: dataset \"%s\" is damaged: %s.", s->path, s->name,
                   what);
}

/* The product of sizes and `times`; 0: a size is negative, or it does not fit into 63 bits. */
static int product(const int64_t *sizes, uint32_t count, uint64_t times, uint64_t *ret)
{
    for (uint32_t d = 0; d < count; d++)
        if (sizes[d] < 0 || __builtin_mul_overflow(times, (uint64_t)sizes[d], &times) ||
            times > (uint64_t)INT64_MAX)
            return 0;
    *ret = times;
    return 1;
}

static int set_type(const struct subject *s, struct hdf5_dataset *dataset,
                    const struct leat_hdf5_dataset *asked, struct leat_err *err)
{
    int is_complex = asked->dtype == LEAT_COMPLEX64 || asked->dtype == LEAT_COMPLEX128;
    if ((unsigned)asked->dtype <= LEAT_RAW || (unsigned)asked->dtype >= LEAT_DTYPES_COUNT)
        return err_set(err, -LEAT_E_USAGE, "%s: dataset \"%s\" has no known type.", s->path,
                       s->name);
    dataset->dtype = asked->dtype;
    dataset->item_bytes = (uint32_t)leat_dtype_bytes(asked->dtype);
    uint32_t unit = is_complex ? dataset->item_bytes / 2 : dataset->item_bytes;
    dataset->swap_bytes = asked->swapped && unit > 1 ? unit : 0;
    if (asked->fill)
        memcpy(dataset->fill, asked->fill, dataset->item_bytes);
    return 0;
}

static int set_shape(const struct subject *s, struct hdf5_dataset *dataset,
                     const struct leat_hdf5_dataset *asked, struct leat_err *err)
{
    if (asked->dims < 1 || asked->dims > LEAT_MAX_DIMS || asked->shape[0] < 0)
        return err_set(err, -LEAT_E_USAGE, "%s: dataset \"%s\" has %u dimensions, not 1 to %d.",
                       s->path, s->name, asked->dims, LEAT_MAX_DIMS);
    dataset->dims = asked->dims;
    memcpy(dataset->shape, asked->shape, sizeof dataset->shape);
    if (!product(dataset->shape + 1, dataset->dims - 1, dataset->item_bytes, &dataset->row_bytes) ||
        __builtin_mul_overflow(dataset->row_bytes, (uint64_t)dataset->shape[0],
                               &dataset->data_bytes) ||
        dataset->data_bytes > (uint64_t)INT64_MAX)
        return damaged(s, "its shape does not fit", err);
    if (!dataset->row_bytes)
        return err_set(err, -LEAT_E_USAGE, "%s: dataset \"%s\" has samples without a single byte.",
                       s->path, s->name);
    return 0;
}

static int set_pipeline(const struct subject *s, struct chunk_pipeline *pipeline,
                        const struct leat_hdf5_dataset *asked, struct leat_err *err)
{
    if (asked->filters_count > LEAT_HDF5_MAX_FILTERS)
        return damaged(s, "it has too many filters", err);
    pipeline->count = asked->filters_count;
    for (uint32_t i = 0; i < pipeline->count; i++) {
        pipeline->filter[i] = asked->filters[i];
        if (asked->filters[i].kind >= LEAT_HDF5_FILTERS_COUNT)
            return damaged(s, "it has an unknown filter", err);
        if (asked->filters[i].kind == LEAT_HDF5_SHUFFLE && !asked->filters[i].item_bytes)
            return damaged(s, "it is shuffled by items without a byte", err);
    }
    return 0;
}

/* The size of a chunk, and the grid that chunks make of the dataset. */
static int set_grid(const struct subject *s, struct hdf5_dataset *dataset,
                    const struct leat_hdf5_dataset *asked, struct leat_err *err)
{
    int64_t grid[LEAT_MAX_DIMS];
    memcpy(dataset->chunk, asked->chunk, sizeof dataset->chunk);
    for (uint32_t d = 0; d < dataset->dims; d++) {
        int64_t size = dataset->chunk[d];
        if (size < 1 || size > UINT32_MAX)
            return damaged(s, "its chunks have no size", err);
        grid[d] = dataset->shape[d] / size + (dataset->shape[d] % size != 0);
    }
    if (!product(dataset->chunk, dataset->dims, dataset->item_bytes, &dataset->chunk_bytes) ||
        dataset->chunk_bytes > UINT32_MAX)
        return damaged(s, "its chunks are larger than 4 GiB", err);
    if (!product(grid, dataset->dims, 1, &dataset->grid_chunks))
        return damaged(s, "it has more chunks than can be counted", err);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const struct leat_hdf5_chunk *)a)->number,
             y = ((const struct leat_hdf5_chunk *)b)->number;
    return (x > y) - (x < y);
}

static int set_chunks(const struct subject *s, struct hdf5_dataset *dataset,
                      const struct leat_hdf5_dataset *asked, struct leat_err *err)
{
    uint64_t count = asked->chunks_count;
    struct leat_hdf5_chunk *chunks = mem_alloc_array(count ? count : 1, sizeof *chunks);
    int sorted = 1;
    if (!chunks)
        return err_set(err, -ENOMEM, "%s: no memory for the table of %llu chunks.", s->path,
                       (unsigned long long)count);
    dataset->chunks = chunks;
    dataset->chunks_count = count;
    if (count)
        memcpy(chunks, asked->chunks, count * sizeof *chunks);
    for (uint64_t i = 1; i < count && sorted; i++)
        sorted = chunks[i - 1].number < chunks[i].number;
    if (!sorted)
        qsort(chunks, count, sizeof *chunks, by_number);
    for (uint64_t i = 0; i < count; i++) {
        if (chunks[i].number >= dataset->grid_chunks)
            return damaged(s, "one of its chunks lies outside of it", err);
        if (i && chunks[i - 1].number == chunks[i].number)
            return damaged(s, "two of its chunks have one number", err);
    }
    return 0;
}

static int set_layout(const struct subject *s, struct hdf5_dataset *dataset,
                      const struct leat_hdf5_dataset *asked, uint64_t file_bytes,
                      struct leat_err *err)
{
    int failed = 0;
    dataset->layout = asked->layout;
    switch (asked->layout) {
    case LEAT_HDF5_CONTIGUOUS:
        dataset->offset = asked->offset;
        if (asked->offset != LEAT_HDF5_NEVER_WRITTEN &&
            (asked->offset > file_bytes || dataset->data_bytes > file_bytes - asked->offset))
            return damaged(s, "it reaches beyond the end of the file", err);
        return 0;
    case LEAT_HDF5_COMPACT:
        if (dataset->data_bytes > HDF5_MAX_COMPACT_BYTES)
            return damaged(s, "it is larger than a compact one can be", err);
        if (!(dataset->compact = mem_alloc(dataset->data_bytes ? dataset->data_bytes : 1)))
            return err_set(err, -ENOMEM, "%s: no memory for dataset \"%s\".", s->path, s->name);
        if (dataset->data_bytes)
            memcpy(dataset->compact, asked->data, dataset->data_bytes);
        return 0;
    case LEAT_HDF5_CHUNKED:
        failed = set_grid(s, dataset, asked, err);
        if (!failed)
            failed = set_pipeline(s, &dataset->pipeline, asked, err);
        return failed ? failed : set_chunks(s, dataset, asked, err);
    }
    return err_set(err, -LEAT_E_USAGE, "%s: dataset \"%s\" has an unknown layout.", s->path,
                   s->name);
}

int hdf5_index_init(struct hdf5_index *index, const struct leat_hdf5 *hdf5, uint64_t file_bytes,
                    struct leat_err *err)
{
    int failed = 0;
    *index = (struct hdf5_index){0};
    for (uint32_t i = 0; i < hdf5->count && !failed; i++) {
        const struct leat_hdf5_dataset *asked = &hdf5->datasets[i];
        struct hdf5_dataset *dataset = &index->dataset[index->count++];
        struct subject s = {hdf5->path, asked->name};
        failed = set_type(&s, dataset, asked, err);
        if (!failed)
            failed = set_shape(&s, dataset, asked, err);
        if (!failed)
            failed = set_layout(&s, dataset, asked, file_bytes, err);
    }
    if (failed)
        hdf5_index_done(index);
    return failed;
}

void hdf5_index_done(struct hdf5_index *index)
{
    for (uint32_t i = 0; i < index->count; i++) {
        mem_free(index->dataset[i].compact);
        mem_free(index->dataset[i].chunks);
    }
    *index = (struct hdf5_index){0};
}

const struct leat_hdf5_chunk *hdf5_chunk_find(const struct hdf5_dataset *dataset, uint64_t number)
{
    const struct leat_hdf5_chunk *chunks = dataset->chunks;
    uint64_t low = 0, high = dataset->chunks_count;
    if (high == dataset->grid_chunks) /* every chunk was written: it is at its number */
        return &chunks[number];
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (chunks[middle].number == number)
            return &chunks[middle];
        if (chunks[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
