/* chunk_filter.c: see chunk_filter.h. */
#include "chunk_filter.h"

#include "base/err.h"
#include "base/mem.h"

#include <libdeflate.h>
#include <string.h>

/* A byte of deflate gives at most 1032 bytes: a match of 258 for two bits. Three bytes of lzf give
 * at most 264. */
#define DEFLATE_MOST   1032
#define LZF_MOST       88

#define CHECKSUM_BYTES 4

const char *chunk_filter_name(uint32_t kind)
{
    static const char *const names[LEAT_HDF5_FILTERS_COUNT] = {[LEAT_HDF5_DEFLATE] = "gzip",
                                                               [LEAT_HDF5_SHUFFLE] = "shuffle",
                                                               [LEAT_HDF5_LZF] = "lzf",
                                                               [LEAT_HDF5_FLETCHER32] =
                                                                   "fletcher32"};
    return kind < LEAT_HDF5_FILTERS_COUNT ? names[kind] : "?";
}

void chunk_scratch_done(struct chunk_scratch *scratch)
{
    mem_free(scratch->bytes);
    libdeflate_free_decompressor(scratch->inflater);
    *scratch = (struct chunk_scratch){0};
}

uint64_t chunk_filter_capacity(uint64_t chunk_bytes)
{
    /* For the checksums of all filters, and deflate applied twice. */
    return chunk_bytes + chunk_bytes / 256 + 1024;
}

int chunk_filter_plausible(const struct chunk_pipeline *pipeline, uint32_t mask,
                           uint64_t stored_bytes, uint64_t chunk_bytes)
{
    double most = (double)stored_bytes;
    for (uint32_t i = 0; i < pipeline->count; i++) {
        if (mask >> i & 1)
            continue;
        if (pipeline->filter[i].kind == LEAT_HDF5_DEFLATE)
            most *= DEFLATE_MOST;
        else if (pipeline->filter[i].kind == LEAT_HDF5_LZF)
            most *= LZF_MOST;
    }
    return most >= (double)chunk_bytes;
}

/* A chunk on its way through the pipeline. */
struct passage {
    const uint8_t *at;
    uint64_t bytes;
    const char *why;
};

static int unpack_deflate(struct chunk_scratch *scratch, struct passage *p, uint8_t *to,
                          uint64_t capacity)
{
    size_t bytes = 0;
    if (!scratch->inflater && !(scratch->inflater = libdeflate_alloc_decompressor())) {
        p->why = "there is no memory to unpack it";
        return -ENOMEM;
    }
    enum libdeflate_result result =
        libdeflate_zlib_decompress(scratch->inflater, p->at, p->bytes, to, capacity, &bytes);
    if (result != LIBDEFLATE_SUCCESS) {
        p->why = result == LIBDEFLATE_INSUFFICIENT_SPACE
                     ? "its deflate stream is longer than a chunk"
                     : "its deflate stream is damaged";
        return -LEAT_E_CORRUPT;
    }
    *p = (struct passage){.at = to, .bytes = bytes};
    return 0;
}

/* One step of lzf: a run of literals, or a match. A control byte below 32 is followed by that many
 * literals and one more. In other control bytes the upper three bits are the length of the match
 * less two (7: the next byte is added), the lower five and the next byte are its distance less one.
 * Returns the bytes written, 0 when they would lie outside. */
static uint64_t unpack_lzf_step(const uint8_t **at, const uint8_t *end, uint8_t *to, uint64_t done,
                                uint64_t capacity)
{
    const uint8_t *from = *at;
    uint64_t control = *from++, length;
    if (control < 32) {
        length = control + 1;
        if (length > (uint64_t)(end - from) || length > capacity - done)
            return 0;
        memcpy(to + done, from, length);
        *at = from + length;
        return length;
    }
    length = control >> 5;
    if (length == 7) {
        if (from == end)
            return 0;
        length += *from++;
    }
    if (from == end)
        return 0;
    uint64_t back = ((control & 31) << 8 | *from++) + 1;
    length += 2;
    if (back > done || length > capacity - done)
        return 0;
    for (uint64_t i = 0; i < length; i++) /* the two may overlap: the run then repeats */
        to[done + i] = to[done + i - back];
    *at = from;
    return length;
}

static int unpack_lzf(struct passage *p, uint8_t *to, uint64_t capacity)
{
    const uint8_t *at = p->at, *end = p->at + p->bytes;
    uint64_t done = 0;
    while (at < end) {
        uint64_t bytes = unpack_lzf_step(&at, end, to, done, capacity);
        if (!bytes) {
            p->why = "its lzf stream is damaged";
            return -LEAT_E_CORRUPT;
        }
        done += bytes;
    }
    *p = (struct passage){.at = to, .bytes = done};
    return 0;
}

/* The first bytes of all items lie together, then the second ones, and so on; bytes that do not
 * fill an item stay at the end. For usual sizes the inner loop has a constant length. */
#define UNSHUFFLE(size)                                                                            \
    for (uint64_t i = 0; i < items; i++)                                                           \
        for (uint32_t b = 0; b < (size); b++)                                                      \
            to[i * (size) + b] = from[b * items + i];

static void unshuffle(struct passage *p, uint32_t item_bytes, uint8_t *to)
{
    const uint8_t *from = p->at;
    uint64_t items = p->bytes / item_bytes, whole = items * item_bytes;
    switch (item_bytes) {
    case 2: UNSHUFFLE(2) break;
    case 4: UNSHUFFLE(4) break;
    case 8: UNSHUFFLE(8) break;
    default: UNSHUFFLE(item_bytes) break;
    }
    memcpy(to + whole, from + whole, p->bytes - whole);
    p->at = to;
}

/* A ones-complement sum. It is 0 for zeros only. */
static uint64_t fold(uint64_t sum)
{
    return sum ? (sum - 1) % 65535 + 1 : 0;
}

/* Over big-endian words of two bytes; a last single byte is the upper one. */
static uint32_t fletcher32(const uint8_t *at, uint64_t bytes)
{
    uint64_t sum = 0, sums = 0;
    while (bytes) {
        uint64_t some = bytes < 1u << 20 ? bytes : 1u << 20; /* both sums stay below 2^56 */
        for (uint64_t i = 0; i + 1 < some; i += 2) {
            sum += (uint64_t)at[i] << 8 | at[i + 1];
            sums += sum;
        }
        if (some & 1) {
            sum += (uint64_t)at[some - 1] << 8;
            sums += sum;
        }
        sum = fold(sum);
        sums = fold(sums);
        at += some;
        bytes -= some;
    }
    return (uint32_t)(sums << 16 | sum);
}

static int check_sum(struct passage *p)
{
    if (p->bytes < CHECKSUM_BYTES) {
        p->why = "it is too short for its checksum";
        return -LEAT_E_CORRUPT;
    }
    p->bytes -= CHECKSUM_BYTES;
    const uint8_t *tail = p->at + p->bytes;
    uint32_t stored =
        (uint32_t)tail[3] << 24 | (uint32_t)tail[2] << 16 | (uint32_t)tail[1] << 8 | tail[0];
    uint32_t sum = fletcher32(p->at, p->bytes);
    /* HDF5 1.6.2 and older wrote the bytes of each half in the other order on most machines;
     * libhdf5 accepts both. */
    uint32_t turned = (sum & 0x00ff00ff) << 8 | (sum >> 8 & 0x00ff00ff);
    if (stored != sum && stored != turned) {
        p->why = "its fletcher32 checksum does not fit";
        return -LEAT_E_CORRUPT;
    }
    return 0;
}

/* Whether the filter writes to another buffer. */
static int moves(const struct leat_hdf5_filter *filter)
{
    return filter->kind == LEAT_HDF5_SHUFFLE ? filter->item_bytes > 1
                                             : filter->kind != LEAT_HDF5_FLETCHER32;
}

static int unfilter_one(const struct leat_hdf5_filter *filter, struct chunk_scratch *scratch,
                        struct passage *p, uint8_t *to, uint64_t capacity)
{
    switch (filter->kind) {
    case LEAT_HDF5_DEFLATE: return unpack_deflate(scratch, p, to, capacity);
    case LEAT_HDF5_LZF: return unpack_lzf(p, to, capacity);
    case LEAT_HDF5_FLETCHER32: return check_sum(p);
    case LEAT_HDF5_SHUFFLE:
        if (p->bytes > capacity) {
            p->why = "it is longer than a chunk";
            return -LEAT_E_CORRUPT;
        }
        if (filter->item_bytes > 1)
            unshuffle(p, filter->item_bytes, to);
        return 0;
    }
    p->why = "it has an unknown filter";
    return -LEAT_E_CORRUPT;
}

int chunk_unfilter(const struct chunk_pipeline *pipeline, uint32_t mask, const uint8_t *stored,
                   uint64_t stored_bytes, struct chunk_scratch *scratch, uint8_t *chunk,
                   uint64_t chunk_bytes, const char **ret_why)
{
    uint64_t capacity = chunk_filter_capacity(chunk_bytes);
    struct passage p = {.at = stored, .bytes = stored_bytes};
    uint32_t left =
        0; /* filters that write alternate between the buffers; the last one writes to ours */
    for (uint32_t i = 0; i < pipeline->count; i++)
        left += !(mask >> i & 1) && moves(&pipeline->filter[i]);
    for (uint32_t i = pipeline->count; i-- > 0;) {
        const struct leat_hdf5_filter *filter = &pipeline->filter[i];
        if (mask >> i & 1)
            continue;
        uint8_t *to = left & 1 ? chunk : scratch->bytes;
        int failed = unfilter_one(filter, scratch, &p, to, capacity);
        if (failed < 0) {
            *ret_why = p.why;
            return failed;
        }
        left -= (uint32_t)moves(filter);
    }
    if (p.bytes != chunk_bytes) {
        *ret_why =
            p.bytes < chunk_bytes ? "it is shorter than a chunk" : "it is longer than a chunk";
        return -LEAT_E_CORRUPT;
    }
    if (p.at != chunk)
        memcpy(chunk, p.at, chunk_bytes);
    return 0;
}
