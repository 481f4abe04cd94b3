/* unpack_zstd.c: zstd by the system's libzstd, opened when a shard needs it: where it is not
 * installed everything else works, and the sentence names the package. The few declarations are
 * those of its stable interface, which has kept them since 1.0. Its own limit on the window (128
 * MiB) bounds what a frame can ask for. */
#include "unpack.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <pthread.h>

#define OUT_BYTES 131072

struct zstd_in {
    const void *bytes;
    size_t count, at;
};
struct zstd_out {
    void *bytes;
    size_t count, at;
};

static struct {
    void *library;
    void *(*create)(void);
    size_t (*free)(void *stream);
    size_t (*decompress)(void *stream, struct zstd_out *out, struct zstd_in *in);
    unsigned (*is_error)(size_t code);
    const char *(*error_name)(size_t code);
} zstd;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    zstd.library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!zstd.library)
        return;
    *(void **)&zstd.create = dlsym(zstd.library, "ZSTD_createDStream");
    *(void **)&zstd.free = dlsym(zstd.library, "ZSTD_freeDStream");
    *(void **)&zstd.decompress = dlsym(zstd.library, "ZSTD_decompressStream");
    *(void **)&zstd.is_error = dlsym(zstd.library, "ZSTD_isError");
    *(void **)&zstd.error_name = dlsym(zstd.library, "ZSTD_getErrorName");
    if (!zstd.create || !zstd.free || !zstd.decompress || !zstd.is_error || !zstd.error_name)
        zstd.library = NULL;
}

struct unzstd {
    void *stream;
    int inside; /* a frame has begun and not ended */
    uint8_t out[OUT_BYTES];
};

static int zstd_open(void **ret_state, struct leat_err *err)
{
    pthread_once(&once, open_library);
    if (!zstd.library)
        return err_set(err, -LEAT_E_MISSING,
                       "it is compressed with zstd, and libzstd.so.1 is not installed (Debian's "
                       "package is libzstd1).");
    struct unzstd *u = mem_alloc(sizeof *u);
    if (!u || !(u->stream = zstd.create())) {
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
    struct zstd_in in = {bytes, count, 0};
    struct zstd_out room;
    do {
        room = (struct zstd_out){u->out, OUT_BYTES, 0};
        size_t left = zstd.decompress(u->stream, &room, &in);
        if (zstd.is_error(left))
            return err_set(err, -LEAT_E_CORRUPT, "its zstd data cannot be read (%s).",
                           zstd.error_name(left));
        u->inside = left != 0;
        int failed = room.at ? out->write(out, u->out, room.at, err) : 0;
        if (failed < 0)
            return failed;
    } while (in.at < in.count || (u->inside && room.at == room.count));
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
    zstd.free(((struct unzstd *)state)->stream);
    mem_free(state);
}

const struct unpack_format unpack_zstd = {
    .open = zstd_open, .put = zstd_put, .end = zstd_end, .close = zstd_close};
