/* megatron_index.c: see megatron_index.h. */
#include "megatron_index.h"

#include "base/mem.h"

#include <endian.h>
#include <string.h>

#define HEADER_BYTES 34

static uint64_t get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static int32_t get_i32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return (int32_t)le32toh(value);
}

/* Megatron's code of a type; floats are not tokens. */
static int dtype_of(uint8_t code, enum leat_dtype *ret)
{
    static const enum leat_dtype types[] = {[1] = LEAT_UINT8, [2] = LEAT_INT8,  [3] = LEAT_INT16,
                                            [4] = LEAT_INT32, [5] = LEAT_INT64, [8] = LEAT_UINT16};
    if (code >= sizeof types / sizeof *types || types[code] == LEAT_RAW)
        return -1;
    *ret = types[code];
    return 0;
}

int megatron_index_parse(const char *path, const uint8_t *bytes, uint64_t count,
                         struct megatron_index *ret_index, struct leat_err *err)
{
    struct megatron_index index = {0};
    if (count < HEADER_BYTES || memcmp(bytes, "MMIDIDX\0\0", 9) != 0)
        return err_set(err, -LEAT_E_FOREIGN, "%s is not an index of Megatron's.", path);
    uint64_t version = get_u64(bytes + 9), n = get_u64(bytes + 18);
    if (version != 1)
        return err_set(err, -LEAT_E_VERSION, "%s has version %llu; 1 is known.", path,
                       (unsigned long long)version);
    if (dtype_of(bytes[17], &index.dtype) < 0)
        return err_set(err, -LEAT_E_USAGE, "%s has tokens of type %u, which is no integer.", path,
                       bytes[17]);
    if (n > (count - HEADER_BYTES) / 12)
        return err_set(err, -LEAT_E_CORRUPT, "%s is cut short: %llu sequences do not fit into it.",
                       path, (unsigned long long)n);
    const uint8_t *lengths = bytes + HEADER_BYTES, *pointers = lengths + 4 * n;
    uint64_t item = leat_dtype_bytes(index.dtype), tokens = 0;
    for (uint64_t i = 0; i < n; i++) {
        int32_t length = get_i32(lengths + 4 * i);
        if (length < 0 || get_u64(pointers + 8 * i) != tokens * item)
            return err_set(err, -LEAT_E_CORRUPT,
                           "%s: sequence %llu does not begin where the one before it ends.", path,
                           (unsigned long long)i);
        tokens += (uint64_t)length; /* n * 2^31 at most: cannot overflow for n from a file */
    }
    index.tokens = (int64_t)tokens;
    index.sequences = (int64_t)n;
    *ret_index = index;
    return 0;
}

/* Checks sequences and documents together: 0, or -1 when their numbers contradict each other. */
static int find_starts(const uint8_t *lengths, uint64_t n, const uint8_t *documents, uint64_t m,
                       int64_t *starts)
{
    uint64_t sequence = 0;
    int64_t tokens = 0;
    for (uint64_t i = 0; i < m; i++) {
        uint64_t first = get_u64(documents + 8 * i);
        if (first < sequence || first > n || (i == 0 && first != 0))
            return -1;
        for (; sequence < first; sequence++)
            tokens += get_i32(lengths + 4 * sequence);
        starts[i] = tokens;
    }
    return sequence == n ? 0 : -1;
}

int megatron_index_documents(const char *path, const uint8_t *bytes, uint64_t count,
                             struct megatron_index *ret_index, int64_t **ret_starts,
                             struct leat_err *err)
{
    struct megatron_index index;
    int failed = megatron_index_parse(path, bytes, count, &index, err);
    if (failed < 0)
        return failed;
    uint64_t n = (uint64_t)index.sequences, m = get_u64(bytes + 26);
    if (m > (count - HEADER_BYTES - 12 * n) / 8)
        return err_set(err, -LEAT_E_CORRUPT, "%s is cut short: %llu documents do not fit into it.",
                       path, (unsigned long long)m);
    if (!m)
        return err_set(err, -LEAT_E_CORRUPT, "%s does not say where documents begin.", path);
    int64_t *starts = mem_alloc_array(m, sizeof *starts);
    if (!starts)
        return err_set(err, -ENOMEM, "No memory for the %llu documents of %s.",
                       (unsigned long long)m - 1, path);
    const uint8_t *lengths = bytes + HEADER_BYTES;
    if (find_starts(lengths, n, lengths + 12 * n, m, starts) < 0) {
        mem_free(starts);
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s: the documents do not follow each other from the first sequence to the "
                       "last.",
                       path);
    }
    index.documents = (int64_t)m - 1;
    *ret_index = index;
    *ret_starts = starts;
    return 0;
}
