/* unpack_zstd.c: zstd, by libzstd. Its limit on the window (128 MiB) bounds the memory that a frame
 * can ask for. */
#include "unpack.h"

#include "base/mem.h"

#include <zstd.h>

#define OUT_BYTES 131072

struct unzstd {
    ZSTD_DStream *stream;
    int inside; /* a frame has begun and not ended */
    uint8_t out[OUT_BYTES];
};

static int zstd_open(void **ret_state, struct leat_err *err)
{
    struct unzstd *u = mem_alloc(sizeof *u);
    if (!u || !(u->stream = ZSTD_createDStream())) {
        mem_free(u);
        return err_set(err, -ENOMEM, "there is no memory to decompress it.");
    }
    *ret_state = u;
    return 0;
}

static int zstd_put(void *state, const uint8_t *bytes, size_t count, struct unpack_out *out,
                    struct leat_err *err)
{
    struct unzstd *u = state;
    ZSTD_inBuffer in = {bytes, count, 0};
    ZSTD_outBuffer output;
    do {
        output = (ZSTD_outBuffer){u->out, OUT_BYTES, 0};
        size_t left = ZSTD_decompressStream(u->stream, &output, &in);
        if (ZSTD_isError(left))
            return err_set(err, -LEAT_E_CORRUPT, "its zstd data cannot be read (%s).",
                           ZSTD_getErrorName(left));
        u->inside = left != 0;
        int failed = output.pos ? out->write(out, u->out, output.pos, err) : 0;
        if (failed < 0)
            return failed;
    } while (in.pos < in.size || (u->inside && output.pos == output.size));
    return 0;
}

static int zstd_end(void *state, struct leat_err *err)
{
    return ((struct unzstd *)state)->inside
               ? err_set(err, -LEAT_E_CORRUPT, "it is cut short: its zstd data does not end.")
               : 0;
}

static void zstd_close(void *state)
{
    ZSTD_freeDStream(((struct unzstd *)state)->stream);
    mem_free(state);
}

const struct unpack_format unpack_zstd = {
    .open = zstd_open, .put = zstd_put, .end = zstd_end, .close = zstd_close};
