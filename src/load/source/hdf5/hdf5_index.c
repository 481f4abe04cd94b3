/* hdf5_index.c: see hdf5_index.h. */
#include "hdf5_index.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* What is being parsed, for bounds and for sentences. */
struct parser {
    const char *path, *name;
    const uint8_t *at, *end;
    uint64_t file_bytes;
};

static int take(struct parser *p, void *ret, uint64_t bytes)
{
    if (bytes > (uint64_t)(p->end - p->at))
        return 0;
    memcpy(ret, p->at, bytes);
    p->at += bytes;
    return 1;
}

static int damaged(const struct parser *p, const char *what, struct leat_err *err)
{
    return err_set(err, -LEAT_E_CORRUPT, "%s: dataset \"%s\" is damaged: %s.", p->path, p->name,
                   what);
}

/* The product of sizes, each within 0 and 2^62; 0: it does not fit into 63 bits. */
static int product(const int64_t *sizes, uint32_t count, uint64_t times, uint64_t *ret)
{
    for (uint32_t d = 0; d < count; d++)
        if (sizes[d] < 0 || __builtin_mul_overflow(times, (uint64_t)sizes[d], &times) ||
            times > (uint64_t)INT64_MAX)
            return 0;
    *ret = times;
    return 1;
}

static int check_type(const struct parser *p, const struct hdf5_dataset_wire *is,
                      struct leat_err *err)
{
    uint32_t unit = is->swap_bytes;
    if (is->dtype <= LEAT_RAW || is->dtype >= LEAT_DTYPES_COUNT ||
        is->item_bytes != leat_dtype_bytes((enum leat_dtype)is->dtype) ||
        is->item_bytes > HDF5_MOST_ITEM_BYTES)
        return damaged(p, "it has no known type", err);
    if (unit && ((unit != 2 && unit != 4 && unit != 8) || is->item_bytes % unit))
        return damaged(p, "it has no known byte order", err);
    return 0;
}

static int check_shape(const struct parser *p, struct hdf5_dataset *dataset, struct leat_err *err)
{
    const struct hdf5_dataset_wire *is = &dataset->is;
    if (is->dims < 1 || is->dims > LEAT_MAX_DIMS || is->shape[0] < 0)
        return damaged(p, "its dimensions do not fit", err);
    if (!product(is->shape + 1, is->dims - 1, is->item_bytes, &dataset->row_bytes) ||
        __builtin_mul_overflow(dataset->row_bytes, (uint64_t)is->shape[0], &dataset->data_bytes) ||
        dataset->data_bytes > (uint64_t)INT64_MAX)
        return damaged(p, "its shape does not fit", err);
    if (!dataset->row_bytes)
        return err_set(err, -LEAT_E_USAGE, "%s: dataset \"%s\" has samples without a single byte.",
                       p->path, p->name);
    return 0;
}

static int check_pipeline(const struct parser *p, const struct chunk_pipeline *pipeline,
                          struct leat_err *err)
{
    if (pipeline->count > CHUNK_MOST_FILTERS)
        return damaged(p, "it has too many filters", err);
    for (uint32_t i = 0; i < pipeline->count; i++) {
        const struct chunk_filter *filter = &pipeline->filter[i];
        if (filter->kind >= CHUNK_FILTERS_COUNT)
            return damaged(p, "it has an unknown filter", err);
        if (filter->kind == CHUNK_SHUFFLE && !filter->item_bytes)
            return damaged(p, "it is shuffled by items without a byte", err);
    }
    return 0;
}

/* The chunk's size, and the grid that chunks make of the dataset. */
static int check_grid(const struct parser *p, struct hdf5_dataset *dataset, struct leat_err *err)
{
    const struct hdf5_dataset_wire *is = &dataset->is;
    int64_t grid[LEAT_MAX_DIMS];
    for (uint32_t d = 0; d < is->dims; d++) {
        if (is->chunk[d] < 1 || is->chunk[d] > UINT32_MAX)
            return damaged(p, "its chunks have no size", err);
        grid[d] = is->shape[d] / is->chunk[d] + (is->shape[d] % is->chunk[d] != 0);
    }
    if (!product(is->chunk, is->dims, is->item_bytes, &dataset->chunk_bytes) ||
        dataset->chunk_bytes > UINT32_MAX)
        return damaged(p, "its chunks are larger than 4 GiB", err);
    if (!product(grid, is->dims, 1, &dataset->grid_chunks))
        return damaged(p, "it has more chunks than can be counted", err);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const struct hdf5_chunk *)a)->number, y = ((const struct hdf5_chunk *)b)->number;
    return (x > y) - (x < y);
}

static int take_chunks(struct parser *p, struct hdf5_dataset *dataset, struct leat_err *err)
{
    uint64_t count = dataset->is.follows;
    int sorted = 1;
    if (count > (uint64_t)(p->end - p->at) / sizeof *dataset->chunks)
        return damaged(p, "its table of chunks is cut short", err);
    dataset->chunks = mem_alloc_array(count ? count : 1, sizeof *dataset->chunks);
    if (!dataset->chunks)
        return err_set(err, -ENOMEM, "%s: no memory for the table of %llu chunks.", p->path,
                       (unsigned long long)count);
    take(p, dataset->chunks, count * sizeof *dataset->chunks);
    for (uint64_t i = 1; i < count && sorted; i++)
        sorted = dataset->chunks[i - 1].number < dataset->chunks[i].number;
    if (!sorted)
        qsort(dataset->chunks, count, sizeof *dataset->chunks, by_number);
    for (uint64_t i = 0; i < count; i++) {
        if (dataset->chunks[i].number >= dataset->grid_chunks)
            return damaged(p, "one of its chunks lies outside of it", err);
        if (i && dataset->chunks[i - 1].number == dataset->chunks[i].number)
            return damaged(p, "two of its chunks lie in one place", err);
    }
    return 0;
}

/* What follows the struct, by layout. */
static int take_data(struct parser *p, struct hdf5_dataset *dataset, struct leat_err *err)
{
    struct hdf5_dataset_wire *is = &dataset->is;
    int failed = 0;
    switch (is->layout) {
    case HDF5_CONTIGUOUS:
        if (is->offset != HDF5_NOWHERE &&
            (is->offset > p->file_bytes || dataset->data_bytes > p->file_bytes - is->offset))
            return damaged(p, "it reaches beyond the end of the file", err);
        return 0;
    case HDF5_COMPACT:
        if (is->follows != dataset->data_bytes || is->follows > HDF5_MOST_COMPACT_BYTES)
            return damaged(p, "its data have another size than its shape", err);
        if (!(dataset->compact = mem_alloc(is->follows ? is->follows : 1)))
            return err_set(err, -ENOMEM, "%s: no memory for dataset \"%s\".", p->path, p->name);
        return take(p, dataset->compact, is->follows) ? 0 : damaged(p, "it is cut short", err);
    case HDF5_CHUNKED:
        failed = check_grid(p, dataset, err);
        if (!failed)
            failed = check_pipeline(p, &is->pipeline, err);
        return failed ? failed : take_chunks(p, dataset, err);
    }
    return damaged(p, "it has an unknown layout", err);
}

static int take_dataset(struct parser *p, struct hdf5_dataset *dataset, struct leat_err *err)
{
    if (!take(p, &dataset->is, sizeof dataset->is))
        return damaged(p, "its description is cut short", err);
    int failed = check_type(p, &dataset->is, err);
    if (!failed)
        failed = check_shape(p, dataset, err);
    return failed ? failed : take_data(p, dataset, err);
}

/* The child's own sentence. */
static int take_error(struct parser *p, struct leat_err *err)
{
    int32_t code;
    if (!take(p, &code, sizeof code) || code >= 0 || p->at == p->end)
        return damaged(p, "nothing more is known of it", err);
    size_t left = (size_t)(p->end - p->at), length = strnlen((const char *)p->at, left);
    return err_set(err, code, "%.*s", (int)(length < 500 ? length : 500), (const char *)p->at);
}

int hdf5_index_parse(const char *path, const char *const *names, uint32_t count,
                     uint64_t file_bytes, const uint8_t *bytes, uint64_t bytes_count,
                     struct hdf5_index *ret_index, struct leat_err *err)
{
    struct parser p = {path, "", bytes, bytes + bytes_count, file_bytes};
    int failed = 0;
    *ret_index = (struct hdf5_index){0};
    for (uint32_t i = 0; i <= count && !failed; i++) {
        uint32_t tag = 0;
        p.name = i < count ? names[i] : names[count - 1];
        if (!take(&p, &tag, sizeof tag))
            failed = damaged(&p, "its description is cut short", err);
        else if (tag == HDF5_TAG_ERROR)
            failed = take_error(&p, err);
        else if (tag != (i < count ? HDF5_TAG_DATASET : HDF5_TAG_END))
            failed = damaged(&p, "its description makes no sense", err);
        else if (i < count)
            failed = take_dataset(&p, &ret_index->dataset[ret_index->count++], err);
    }
    if (failed)
        hdf5_index_done(ret_index);
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

const struct hdf5_chunk *hdf5_chunk_find(const struct hdf5_dataset *dataset, uint64_t number)
{
    const struct hdf5_chunk *chunks = dataset->chunks;
    uint64_t low = 0, high = dataset->is.follows;
    if (high == dataset->grid_chunks) /* every chunk is there, so it lies at its number */
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
