/* hdf5.c: datasets of an HDF5 file, read without libhdf5.
 *
 * libhdf5 has one lock for all threads, and unpacks a chunk again for each row unless its small
 * cache holds it. Here the caller gives the addresses of the data (struct leat_hdf5); everything is
 * then read through a mapping, by any number of threads:
 *
 *     contiguous, compact    rows are copied as those of a .npy
 *     chunked, not packed    parts of rows are copied out of the chunks in the mapping
 *     chunked, packed        chunks are unpacked into a cache (chunk_cache.h), then as above
 *     never written          the fill value
 *
 * A row may lie in several chunks, side by side: its columns. A request is sorted by chunk, so each
 * chunk is taken once. A chunk that another thread is unpacking is left for later; a thread that
 * would have to wait for it unpacks another chunk of the window instead, since all of them are
 * needed soon. Without that, one thread unpacks the last chunks of a window while the others wait.
 *
 * The source asks for windows (LEAT_ORDER_WINDOW) of whole chunks, two of which fit into the cache:
 * threads finish one window while they begin the next, and each chunk is unpacked once per epoch.
 *
 * Not detected: a damaged byte in data without a checksum. gzip and fletcher32 have checksums;
 * lzf, shuffle and plain data have none.
 */
#include "hdf5.h"

#include "load/source/array/gather.h"
#include "hdf5_index.h"
#include "load/source/array/mapped_file.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_SAMPLES 4096 /* at least, if they fit: the loader's own default */

/* Default size of the cache, at most 1 GiB: two windows of 3400 photographs of 224 x 224. */
#define CACHE_MOST_BYTES (UINT64_C(1) << 30)
#define CACHE_SHARE      8

/* Windows that are in use at a time: threads finish one while they begin the next. What is left of
 * the cache keeps chunks for the next epoch. */
#define RECENT_WINDOWS    1.25

#define BLOCK_SAMPLES     256  /* of a request that are sorted at a time */
#define AHEAD_MOST_CHUNKS 1024 /* searched for one to unpack ahead */

/* libdeflate unpacks about a byte per nanosecond. */
#define UNPACK_NS_PER_BYTE 1.0
#define COPY_NS_PER_BYTE   0.1
#define CHUNK_TAKE_NS      100.0

struct hdf5_field {
    struct hdf5_dataset *dataset; /* of the source's index */
    struct gather gather;         /* contiguous and compact */
    uint64_t end;                 /* contiguous: bytes of the file that it needs */
    int packed;                   /* chunked, with filters */
    int plain_fill;               /* of zeros */

    /* Chunked. */
    uint64_t columns;                     /* chunks that one row lies in */
    uint64_t chunk_row_bytes;             /* of one row within a chunk */
    int64_t columns_in[LEAT_MAX_DIMS];    /* by dimension; of the first: 1 */
    uint64_t row_stride[LEAT_MAX_DIMS];   /* bytes from an item to the next, in the row … */
    uint64_t chunk_stride[LEAT_MAX_DIMS]; /* … and in the chunk */
    uint32_t run_dim;                     /* both are contiguous from this dimension on: one copy */
};

struct hdf5_source {
    struct leat_source base;
    struct mapped_file file;
    struct hdf5_index index;
    struct hdf5_field field[LEAT_MAX_FIELDS];
    struct chunk_cache *cache; /* owned; NULL when nothing is packed */
};

/* ---- a part of a row ---------------------------------------------------------------------------
 *
 * The part of a row that lies in one chunk: `extent` items from `start` on in each dimension.
 */
struct part {
    const struct hdf5_field *field;
    int64_t extent[LEAT_MAX_DIMS];
    uint64_t place_at; /* bytes into the row */
};

static struct part part_of(const struct hdf5_field *field, uint64_t column)
{
    const struct hdf5_dataset *dataset = field->dataset;
    struct part part = {.field = field};
    for (uint32_t d = dataset->dims; d-- > 1;) {
        int64_t number = (int64_t)(column % (uint64_t)field->columns_in[d]);
        int64_t start = number * dataset->chunk[d], left = dataset->shape[d] - start;
        column /= (uint64_t)field->columns_in[d];
        part.extent[d] = left < dataset->chunk[d] ? left : dataset->chunk[d];
        part.place_at += (uint64_t)start * field->row_stride[d];
    }
    return part;
}

static void fill_items(const struct hdf5_field *field, uint8_t *to, uint64_t bytes)
{
    const struct hdf5_dataset *dataset = field->dataset;
    if (field->plain_fill) {
        memset(to, 0, bytes);
        return;
    }
    for (uint64_t at = 0; at < bytes; at += dataset->item_bytes)
        memcpy(to + at, dataset->fill, dataset->item_bytes);
}

/* Copies from the chunk; fills if `from` is NULL. */
static void copy_part(const struct part *part, uint32_t dim, const uint8_t *from, uint8_t *to)
{
    const struct hdf5_field *field = part->field;
    if (dim >= field->run_dim) {
        uint64_t bytes = field->dataset->item_bytes;
        if (field->dataset->dims > 1)
            bytes = (uint64_t)part->extent[field->run_dim] * field->row_stride[field->run_dim];
        if (from)
            memcpy(to, from, bytes);
        else
            fill_items(field, to, bytes);
        return;
    }
    for (int64_t i = 0; i < part->extent[dim]; i++) {
        copy_part(part, dim + 1, from, to);
        to += field->row_stride[dim];
        if (from)
            from += field->chunk_stride[dim];
    }
}

/* ---- reading -----------------------------------------------------------------------------------
 */
struct wanted {
    int64_t chunk_row; /* index / rows of a chunk */
    int64_t index;
    size_t place;
};

struct reading {
    struct hdf5_source *source;
    uint32_t number; /* of the field */
    const struct hdf5_field *field;
    uint8_t *places;
    uint64_t extent; /* of the file, now */
    struct source_report *report;
    uint64_t ahead_first, ahead_count; /* chunks needed soon; count 0: unknown */
};

__attribute__((format(printf, 5, 6))) static void report_bad(const struct reading *r,
                                                             const struct wanted *wanted,
                                                             size_t count, int code,
                                                             const char *fmt, ...)
{
    char text[236];
    va_list arguments;
    va_start(arguments, fmt);
    int at = snprintf(text, sizeof text, "%.80s, \"%.60s\": ", r->source->file.path,
                      r->source->base.field[r->number].name);
    vsnprintf(text + at, sizeof text - (size_t)at, fmt, arguments);
    va_end(arguments);
    for (size_t i = 0; i < count; i++)
        r->report->bad(r->report, wanted[i].place, code, text);
}

static int chunk_fits(const struct reading *r, const struct leat_hdf5_chunk *chunk)
{
    return chunk->offset <= r->extent && chunk->bytes <= r->extent - chunk->offset;
}

static int chunk_plausible(const struct reading *r, const struct leat_hdf5_chunk *chunk)
{
    const struct hdf5_dataset *dataset = r->field->dataset;
    return r->field->packed ? chunk_filter_plausible(&dataset->pipeline, chunk->mask, chunk->bytes,
                                                     dataset->chunk_bytes)
                            : chunk->bytes == dataset->chunk_bytes;
}

/* Whether the chunk lies within the file and has a possible size. */
static int check_chunk(const struct reading *r, const struct leat_hdf5_chunk *chunk,
                       const struct wanted *wanted, size_t count)
{
    const struct hdf5_dataset *dataset = r->field->dataset;
    int fits = chunk_fits(r, chunk), plausible = chunk_plausible(r, chunk);
    if (!fits && chunk->offset + chunk->bytes <= r->source->file.bytes)
        report_bad(r, wanted, count, -LEAT_E_CORRUPT,
                   "the file was cut short to %llu bytes while it was in use.",
                   (unsigned long long)r->extent);
    else if (!fits)
        report_bad(r, wanted, count, -LEAT_E_CORRUPT,
                   "chunk %llu is damaged: it lies beyond the end of the file.",
                   (unsigned long long)chunk->number);
    else if (!plausible)
        report_bad(r, wanted, count, -LEAT_E_CORRUPT,
                   "chunk %llu is damaged: %u bytes cannot be a chunk of %llu.",
                   (unsigned long long)chunk->number, chunk->bytes,
                   (unsigned long long)dataset->chunk_bytes);
    return fits && plausible;
}

static void copy_run(const struct reading *r, uint64_t column, const uint8_t *chunk,
                     const struct wanted *wanted, size_t count)
{
    const struct hdf5_field *field = r->field;
    struct part part = part_of(field, column);
    for (size_t i = 0; i < count; i++) {
        uint64_t row = (uint64_t)(wanted[i].index % field->dataset->chunk[0]);
        copy_part(&part, 1, chunk ? chunk + row * field->chunk_row_bytes : NULL,
                  r->places + wanted[i].place * field->dataset->row_bytes + part.place_at);
    }
}

static int unpack(const struct reading *r, const struct leat_hdf5_chunk *chunk, uint8_t *bytes,
                  const char **ret_why)
{
    const struct hdf5_dataset *dataset = r->field->dataset;
    struct chunk_cache *cache = r->source->cache;
    struct chunk_scratch *scratch =
        chunk_cache_take_scratch(cache, chunk_filter_capacity(dataset->chunk_bytes));
    if (!scratch) {
        *ret_why = "there is no memory to unpack it";
        return -ENOMEM;
    }
    int failed =
        chunk_unfilter(&dataset->pipeline, chunk->mask, r->source->file.base + chunk->offset,
                       chunk->bytes, scratch, bytes, dataset->chunk_bytes, ret_why);
    chunk_cache_return_scratch(cache, scratch);
    return failed;
}

/* Unpacks a chunk that is needed soon and not in the cache; 0: there is none. A damaged one is left
 * to the thread that reads its samples, which reports it. */
static int unpack_ahead(const struct reading *r)
{
    struct chunk_cache *cache = r->source->cache;
    struct cached_chunk *cached;
    const char *why;
    if (!r->ahead_count ||
        !chunk_cache_take_absent(cache, r->number, r->ahead_first, r->ahead_count,
                                 chunk_filter_capacity(r->field->dataset->chunk_bytes), &cached))
        return 0;
    const struct leat_hdf5_chunk *chunk = hdf5_chunk_find(r->field->dataset, cached->number);
    int good = chunk && chunk_fits(r, chunk) && chunk_plausible(r, chunk) &&
               unpack(r, chunk, cached->bytes, &why) == 0;
    chunk_cache_filled(cache, cached, good);
    if (good)
        chunk_cache_release(cache, cached);
    return good;
}

/* Rows of one packed chunk. 1: done. -1: reported as bad. 0: another thread is unpacking it. */
static int read_packed(const struct reading *r, uint64_t column,
                       const struct leat_hdf5_chunk *chunk, int wait, const struct wanted *wanted,
                       size_t count)
{
    struct chunk_cache *cache = r->source->cache;
    struct cached_chunk *cached;
    const char *why = "there is no memory to unpack it";
    uint64_t capacity = chunk_filter_capacity(r->field->dataset->chunk_bytes);
    int result = chunk_cache_take(cache, r->number, chunk->number, capacity, 0, &cached);
    while (result == CHUNK_BUSY && wait)
        result =
            chunk_cache_take(cache, r->number, chunk->number, capacity, !unpack_ahead(r), &cached);
    if (result == CHUNK_BUSY)
        return 0;
    if (result == CHUNK_FILL) {
        result = unpack(r, chunk, cached->bytes, &why);
        chunk_cache_filled(cache, cached, result == 0);
    }
    if (result < 0) {
        report_bad(r, wanted, count, result, "chunk %llu is damaged: %s.",
                   (unsigned long long)chunk->number, why);
        return -1;
    }
    copy_run(r, column, cached->bytes, wanted, count);
    chunk_cache_release(cache, cached);
    return 1;
}

/* The rows of one row of chunks; as read_packed(). */
static int read_run(const struct reading *r, int wait, const struct wanted *wanted, size_t count)
{
    const struct hdf5_field *field = r->field;
    for (uint64_t column = 0; column < field->columns; column++) {
        uint64_t number = (uint64_t)wanted->chunk_row * field->columns + column;
        const struct leat_hdf5_chunk *chunk = hdf5_chunk_find(field->dataset, number);
        if (!chunk) {
            copy_run(r, column, NULL, wanted, count);
            continue;
        }
        if (!check_chunk(r, chunk, wanted, count))
            return -1;
        if (!field->packed) {
            copy_run(r, column, r->source->file.base + chunk->offset, wanted, count);
            continue;
        }
        int done = read_packed(r, column, chunk, wait, wanted, count);
        if (done <= 0)
            return done;
    }
    return 1;
}

/* By chunk, then by index: Shell sort, for some tens of samples. */
static void sort_wanted(struct wanted *wanted, size_t count)
{
    for (size_t gap = count > 40 ? 40 : count / 2; gap; gap = gap > 13  ? 13
                                                              : gap > 4 ? 4
                                                                        : gap > 1) {
        for (size_t i = gap; i < count; i++) {
            struct wanted one = wanted[i];
            size_t j = i;
            for (; j >= gap && wanted[j - gap].index > one.index; j -= gap)
                wanted[j] = wanted[j - gap];
            wanted[j] = one;
        }
        if (gap == 1)
            break;
    }
}

/* First the chunks that need no waiting, then the rest. */
static void read_chunked(const struct reading *r, struct wanted *wanted, size_t count)
{
    sort_wanted(wanted, count);
    for (int wait = 0; wait < 2; wait++) {
        size_t left = 0;
        for (size_t from = 0, to; from < count; from = to) {
            for (to = from + 1; to < count && wanted[to].chunk_row == wanted[from].chunk_row;)
                to++;
            if (read_run(r, wait, wanted + from, to - from))
                continue;
            memmove(wanted + left, wanted + from, (to - from) * sizeof *wanted);
            left += to - from;
        }
        count = left;
    }
}

/* When all samples of the request lie in one window (orders "window" and "sequential"), the other
 * chunks of that window are needed soon. */
static void set_ahead(struct reading *r, const struct source_request *request)
{
    int64_t window = r->source->base.window, rows = r->field->dataset->chunk[0];
    r->ahead_count = 0;
    if (!r->field->packed || window < rows)
        return;
    for (size_t i = 1; i < request->count; i++)
        if (request->indices[i] / window != request->indices[0] / window)
            return;
    int64_t first = request->indices[0] / window * window / rows, last = first + window / rows;
    int64_t all = (r->source->base.count + rows - 1) / rows;
    uint64_t count = (uint64_t)((last < all ? last : all) - first) * r->field->columns;
    r->ahead_first = (uint64_t)first * r->field->columns;
    r->ahead_count = count < AHEAD_MOST_CHUNKS ? count : AHEAD_MOST_CHUNKS;
}

static void read_chunked_field(struct reading *r, const struct source_request *request)
{
    set_ahead(r, request);
    struct wanted wanted[BLOCK_SAMPLES];
    int64_t rows = r->field->dataset->chunk[0];
    for (size_t first = 0; first < request->count; first += BLOCK_SAMPLES) {
        size_t count = request->count - first;
        if (count > BLOCK_SAMPLES)
            count = BLOCK_SAMPLES;
        for (size_t i = 0; i < count; i++) {
            int64_t index = request->indices[first + i];
            wanted[i] = (struct wanted){index / rows, index, first + i};
        }
        read_chunked(r, wanted, count);
    }
    if (r->field->dataset->swap_bytes)
        gather_swap(r->places, request->count * r->field->dataset->row_bytes,
                    r->field->dataset->swap_bytes);
}

/* The file became shorter: rows that are still there are read, the others are bad. */
static void read_what_is_left(const struct reading *r, const struct source_request *request)
{
    const struct gather *g = &r->field->gather;
    uint64_t start = r->field->end - r->field->dataset->data_bytes;
    for (size_t i = 0; i < request->count; i++) {
        struct wanted wanted = {.index = request->indices[i], .place = i};
        if (start + ((uint64_t)wanted.index + 1) * g->row_bytes <= r->extent)
            gather_rows(g, &wanted.index, 1, r->places + i * g->row_bytes);
        else
            report_bad(r, &wanted, 1, -LEAT_E_CORRUPT,
                       "the file was cut short to %llu bytes while it was in use.",
                       (unsigned long long)r->extent);
    }
}

static void read_field(struct reading *r, const struct source_request *request)
{
    const struct hdf5_field *field = r->field;
    const struct hdf5_dataset *dataset = field->dataset;
    if (dataset->layout == LEAT_HDF5_CHUNKED) {
        read_chunked_field(r, request);
    } else if (!field->gather.base) {
        uint64_t bytes = request->count * field->dataset->row_bytes;
        fill_items(field, r->places, bytes);
        if (dataset->swap_bytes)
            gather_swap(r->places, bytes, dataset->swap_bytes);
    } else if (r->extent < field->end) {
        read_what_is_left(r, request);
    } else {
        gather_rows(&field->gather, request->indices, request->count, r->places);
    }
}

static int read_samples(struct leat_source *source, const struct source_request *request,
                        struct source_report *report, struct leat_err *err)
{
    struct hdf5_source *s = (struct hdf5_source *)source;
    struct reading reading = {.source = s, .report = report};
    uint64_t after = mapped_file_extent(&s->file);
    do {
        reading.extent = after;
        for (uint32_t f = 0; f < source->fields; f++) {
            reading.number = f;
            reading.field = &s->field[f];
            reading.places = request->places[f];
            read_field(&reading, request);
        }
        after = mapped_file_extent(&s->file);
    } while (after < reading.extent);
    return 0;
}

static void close_source(struct leat_source *source)
{
    struct hdf5_source *s = (struct hdf5_source *)source;
    chunk_cache_free(s->cache);
    hdf5_index_done(&s->index);
    mapped_file_close(&s->file);
}

struct chunk_cache *hdf5_source_cache(struct leat_source *source)
{
    return ((struct hdf5_source *)source)->cache;
}

static const struct source_ops hdf5_ops = {.read = read_samples, .done = close_source};

/* ---- opening -----------------------------------------------------------------------------------
 */
static void set_chunked(struct hdf5_field *field)
{
    const struct hdf5_dataset *dataset = field->dataset;
    uint64_t row = dataset->item_bytes, chunk = row;
    int alike = 1; /* the dimensions behind this one have one size in the row and in the chunk */
    field->packed = dataset->pipeline.count > 0;
    field->columns = 1;
    field->run_dim = 1;
    for (uint32_t d = dataset->dims; d-- > 1;) {
        field->columns_in[d] =
            dataset->shape[d] / dataset->chunk[d] + (dataset->shape[d] % dataset->chunk[d] != 0);
        field->columns *= (uint64_t)field->columns_in[d];
        field->row_stride[d] = row;
        field->chunk_stride[d] = chunk;
        if (alike)
            field->run_dim = d;
        alike = alike && dataset->shape[d] == dataset->chunk[d];
        row *= (uint64_t)dataset->shape[d];
        chunk *= (uint64_t)dataset->chunk[d];
    }
    field->chunk_row_bytes = chunk;
}

/* Bytes unpacked per sample when each chunk is unpacked once. */
static double unpacked_bytes(const struct hdf5_field *field)
{
    if (!field->packed)
        return 0;
    return (double)field->columns * (double)field->dataset->chunk_bytes /
           (double)field->dataset->chunk[0];
}

/* "shuffle and gzip": the filters, in the order in which they are undone. */
static void add_filters_text(struct hdf5_source *s, uint32_t number)
{
    const struct chunk_pipeline *pipeline = &s->field[number].dataset->pipeline;
    char text[64] = "";
    for (uint32_t i = pipeline->count; i-- > 0;) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s", at ? " and " : "",
                 chunk_filter_name(pipeline->filter[i].kind));
    }
    source_add_decode(&s->base, number, text);
}

static void set_field(struct hdf5_source *s, uint32_t number)
{
    struct hdf5_field *field = &s->field[number];
    struct hdf5_dataset *dataset = field->dataset = &s->index.dataset[number];
    static const uint8_t zeros[HDF5_MAX_ITEM_BYTES];
    field->plain_fill = memcmp(dataset->fill, zeros, dataset->item_bytes) == 0;
    if (dataset->layout == LEAT_HDF5_CHUNKED) {
        set_chunked(field);
        if (field->packed)
            add_filters_text(s, number);
        s->base.sample_ns += CHUNK_TAKE_NS + COPY_NS_PER_BYTE * (double)dataset->row_bytes +
                             UNPACK_NS_PER_BYTE * unpacked_bytes(field);
        return;
    }
    const uint8_t *data = dataset->compact;
    if (dataset->layout == LEAT_HDF5_CONTIGUOUS && dataset->offset != LEAT_HDF5_NEVER_WRITTEN) {
        data = s->file.base + dataset->offset;
        field->end = dataset->offset + dataset->data_bytes;
    }
    gather_init(&field->gather, data, dataset->item_bytes, dataset->dims, dataset->shape, NULL);
    field->gather.swap_bytes = dataset->swap_bytes;
    s->base.sample_ns += gather_cost_ns(&field->gather);
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b, result;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return __builtin_mul_overflow(a / x, b, &result) ? INT64_MAX : result;
}

/* The smallest number of samples that is whole chunks of every packed field; when that is large, of
 * the field with the largest chunks alone. 0: nothing is packed. */
static int64_t chunk_samples(const struct hdf5_source *s)
{
    int64_t all = 1, largest = 0;
    for (uint32_t f = 0; f < s->base.fields; f++) {
        if (!s->field[f].packed)
            continue;
        int64_t rows = s->field[f].dataset->chunk[0];
        largest = rows > largest ? rows : largest;
        all = all > WINDOW_SAMPLES ? all : common_multiple(all, rows);
    }
    return all > WINDOW_SAMPLES && all > largest ? largest : largest ? all : 0;
}

/* Window and cache: two windows fit into the cache, and a window is at least one row of chunks. */
static int set_cache(struct hdf5_source *s, uint64_t asked_bytes, struct leat_err *err)
{
    double sample_bytes = 0, least_bytes = 0;
    uint64_t smallest = UINT64_MAX, budget = asked_bytes;
    int64_t rows = chunk_samples(s);
    if (!rows)
        return 0;
    for (uint32_t f = 0; f < s->base.fields; f++) {
        const struct hdf5_field *field = &s->field[f];
        if (!field->packed)
            continue;
        uint64_t capacity = chunk_filter_capacity(field->dataset->chunk_bytes);
        smallest = capacity < smallest ? capacity : smallest;
        double row_of_chunks = (double)field->columns * (double)capacity;
        least_bytes += 2 * row_of_chunks;
        sample_bytes += row_of_chunks / (double)field->dataset->chunk[0];
    }
    if (!budget) {
        budget = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / CACHE_SHARE;
        budget = budget < CACHE_MOST_BYTES ? budget : CACHE_MOST_BYTES;
    }
    if (least_bytes > 1e18)
        return err_set(err, -LEAT_E_USAGE, "%s has samples that lie in too many chunks to be read.",
                       s->file.path);
    if (budget < (uint64_t)least_bytes)
        budget = (uint64_t)least_bytes;
    int64_t fit = (int64_t)((double)budget / 2 / sample_bytes) / rows;
    int64_t want = (WINDOW_SAMPLES + rows - 1) / rows;
    s->base.window = (fit < 1 ? 1 : fit < want ? fit : want) * rows;
    double recent_bytes = RECENT_WINDOWS * (double)s->base.window * sample_bytes;
    if (!(s->cache = chunk_cache_new(budget, (uint64_t)recent_bytes, smallest)))
        return err_set(err, -ENOMEM, "No memory for the chunks of %s.", s->file.path);
    return 0;
}

static void set_text(struct hdf5_source *s)
{
    int64_t largest = 0;
    for (uint32_t f = 0; f < s->base.fields; f++)
        if (s->field[f].packed && s->field[f].dataset->chunk[0] > largest)
            largest = s->field[f].dataset->chunk[0];
    snprintf(s->base.text, sizeof s->base.text, "hdf5 %.60s: %lld samples of ", s->file.path,
             (long long)s->base.count);
    source_add_fields_text(&s->base);
    size_t at = strlen(s->base.text);
    if (largest)
        snprintf(
            s->base.text + at, sizeof s->base.text - at,
            "; chunks of %lld samples, unpacked whole: order \"window\" does so once an epoch, "
            "\"full\" again and again",
            (long long)largest);
}

static int open_source(struct hdf5_source *s, const struct leat_hdf5 *asked, struct leat_err *err)
{
    int failed = mapped_file_open(&s->file, asked->path, err);
    if (!failed)
        failed = hdf5_index_init(&s->index, asked, s->file.bytes, err);
    for (uint32_t i = 0; i < asked->count && !failed; i++) {
        const struct hdf5_dataset *dataset = &s->index.dataset[i];
        const char *field = asked->datasets[i].field;
        failed = source_add_field(&s->base, field ? field : asked->datasets[i].name, dataset->dtype,
                                  dataset->item_bytes, dataset->dims, dataset->shape, NULL, err);
        if (!failed)
            set_field(s, i);
    }
    if (!failed)
        failed = set_cache(s, asked->cache_bytes, err);
    if (!failed)
        set_text(s);
    return failed;
}

int leat_source_hdf5(const struct leat_hdf5 *hdf5, struct leat_source **ret_source,
                     struct leat_err *err)
{
    if (!hdf5->count || hdf5->count > LEAT_MAX_FIELDS)
        return err_set(err, -LEAT_E_USAGE, "A source has 1 to %d fields, not %u.", LEAT_MAX_FIELDS,
                       hdf5->count);
    struct hdf5_source *s = (struct hdf5_source *)source_new(sizeof *s, &hdf5_ops);
    if (!s)
        return err_set(err, -ENOMEM, "No memory for %s.", hdf5->path);
    int failed = open_source(s, hdf5, err);
    if (failed) {
        leat_source_unref(&s->base);
        return failed;
    }
    *ret_source = &s->base;
    return 0;
}
