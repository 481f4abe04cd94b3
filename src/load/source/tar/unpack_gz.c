/* unpack_gz.c: gzip, by zlib. A file may be several gzip files one after the other, as pigz and cat
 * make them, and may be padded with zeros. */
#include "unpack.h"

#include "base/mem.h"

#include <zlib.h>

#define OUT_BYTES 65536

struct gunzip {
    z_stream stream;
    int opened, ended, padding; /* ended: exactly at the end of a gzip file */
    uint8_t out[OUT_BYTES];
};

static void gz_close(void *state)
{
    struct gunzip *g = state;
    if (g->opened)
        inflateEnd(&g->stream);
    mem_free(g);
}

static int gz_open(void **ret_state, struct leat_err *err)
{
    struct gunzip *g = mem_alloc(sizeof *g);
    if (!g || inflateInit2(&g->stream, 15 + 16) != Z_OK) { /* + 16: gzip only */
        mem_free(g);
        return err_set(err, -ENOMEM, "there is no memory to decompress it.");
    }
    g->opened = 1;
    *ret_state = g;
    return 0;
}

static int all_zero(const uint8_t *bytes, size_t count)
{
    while (count && !*bytes)
        bytes++, count--;
    return !count;
}

static int inflate_some(struct gunzip *g, struct unpack_out *out, struct leat_err *err)
{
    g->stream.next_out = g->out;
    g->stream.avail_out = OUT_BYTES;
    int result = inflate(&g->stream, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR)
        return err_set(err, -ENOMEM, "there is no memory to decompress it.");
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return err_set(err, -LEAT_E_CORRUPT, "its gz data is damaged (%s).",
                       g->stream.msg ? g->stream.msg : "no reason given");
    g->ended = result == Z_STREAM_END;
    size_t made = OUT_BYTES - g->stream.avail_out;
    return made ? out->write(out, g->out, made, err) : 0;
}

static int gz_put(void *state, const uint8_t *bytes, size_t count, struct unpack_out *out,
                  struct leat_err *err)
{
    struct gunzip *g = state;
    while (count) {
        if (g->ended && !*bytes)
            g->padding = 1;
        if (g->padding)
            return all_zero(bytes, count)
                       ? 0
                       : err_set(err, -LEAT_E_CORRUPT, "bytes follow the end of its gz data.");
        if (g->ended)
            inflateReset(&g->stream);
        g->stream.next_in = (Bytef *)bytes; /* zlib does not write there */
        g->stream.avail_in = count > 1u << 30 ? 1u << 30 : (uInt)count;
        size_t given = g->stream.avail_in;
        int failed, more;
        do {
            failed = inflate_some(g, out, err);
            if (failed < 0)
                return failed;
            more = !g->ended && (g->stream.avail_in || !g->stream.avail_out);
        } while (more);
        bytes += given - g->stream.avail_in;
        count -= given - g->stream.avail_in;
    }
    return 0;
}

static int gz_end(void *state, struct leat_err *err)
{
    struct gunzip *g = state;
    return g->ended || g->padding
               ? 0
               : err_set(err, -LEAT_E_CORRUPT, "it is cut short: its gz data does not end.");
}

const struct unpack_format unpack_gz = {
    .open = gz_open, .put = gz_put, .end = gz_end, .close = gz_close};
