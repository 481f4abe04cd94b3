/* fuzz_codec.c: any bytes as two values: the first sets a codec up, the second is decoded by it. A
 * refusal has a message; what is accepted lies within a row or a span of its size.
 *
 *     kind  variable  length of the first value (2 bytes)  first value  second value
 */
#include "load/codec/codec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *memory; /* a value allocates once */
static uint64_t most_bytes;

static void *give_memory(const struct source_request *request, uint64_t bytes)
{
    if (bytes > most_bytes) /* more than the value has */
        abort();
    free(memory);
    return memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
}

/* A copy of exactly this size, so that a sanitizer sees reads outside. */
static uint8_t *copy_of(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + !count);
    if (copy && count)
        memcpy(copy, bytes, count);
    return copy;
}

static void look_at(const struct leat_span *span, uint64_t row_bytes)
{
    uint8_t *copy = copy_of(span->data, (size_t)span->items * row_bytes); /* ASan sees each byte */
    if (span->items < 0 || (uint64_t)span->items * row_bytes > most_bytes)
        abort();
    free(copy);
}

static void decode(const struct codec *codec, const uint8_t *bytes, size_t count)
{
    struct source_request request = {.alloc = give_memory};
    size_t place_bytes = codec->variable ? sizeof(struct leat_span) : codec->row_bytes;
    if (place_bytes > 1u << 20)
        return;
    for (int stays = 0; stays < 2; stays++) {
        struct leat_err err = {""};
        uint8_t *place = calloc(1, place_bytes);
        most_bytes = count;
        if (!place)
            return;
        if (codec_decode(codec, bytes, count, stays, &request, place, &err) < 0) {
            if (!*err.text)
                abort();
        } else if (codec->variable) {
            look_at((struct leat_span *)place, codec->row_bytes);
        }
        free(place);
        free(memory);
        memory = NULL;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct codec codec;
    struct leat_err err = {""};
    if (size < 4)
        return 0;
    size_t length = data[2] | (size_t)data[3] << 8;
    struct leat_codec asked = {
        .kind = (enum leat_codec_kind)(data[0] % LEAT_CODECS_COUNT),
        .variable = data[1] & 1,
        .dtype = LEAT_INT32,
        .dims = data[1] & 1 ? 1 : 2,
        .shape = {data[1] & 1 ? 4 : 3, 4}
    };
    if (length > size - 4)
        length = size - 4;
    uint8_t *first = copy_of(data + 4, length);
    uint8_t *second = copy_of(data + 4 + length, size - 4 - length);
    if (first && second) {
        if (codec_init(&codec, &asked, "first", first, length, &err) == 0) {
            decode(&codec, first, length);
            decode(&codec, second, size - 4 - length);
            codec_done(&codec);
        } else if (!*err.text) {
            abort();
        }
    }
    free(first);
    free(second);
    return 0;
}
