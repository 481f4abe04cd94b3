/* files.c: one file per sample, with a label each if asked for.
 *
 *     paths   one block of text: "a/0.npy\0a/1.npy\0b/0.npy\0"      offsets   where each begins
 *
 * A file is opened, read and closed for its sample: no descriptor is kept, and nothing is mapped,
 * since for small files page tables cost more than the copy. When the layout of a file is known
 * beforehand (an array without a header, or a .npy with the header of the first one), its items are
 * read straight into their place. A file that is missing, cut short or replaced is a bad sample,
 * with its path and the reason.
 */
#include "load/codec/codec.h"

#include "base/mem.h"
#include "load/source.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Limit of a header that is compared on the stack; NumPy's have 128 bytes. */
#define MOST_HEAD_BYTES 1024
/* Limit of what a file may have beyond its row: a sparse file can claim any size. */
#define MOST_MORE_BYTES (UINT64_C(1) << 30)

struct files_source {
    struct leat_source base;
    struct codec codec;
    char *paths;       /* owned */
    uint64_t *offsets; /* owned; of each path */
    int64_t *labels;   /* owned; NULL: none */
};

/* Buffers of a thread for one request. */
struct scratch {
    uint8_t *bytes; /* owned */
    size_t capacity;
};

/* Reads all bytes of some parts from the start of the file; a shorter file is an error. */
static int read_whole(int fd, struct iovec *parts, int count, const char *path,
                      struct leat_err *err)
{
    off_t at = 0;
    while (count) {
        ssize_t got = preadv(fd, parts, count, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(err, -errno, "%s: %s.", path, err_text(errno));
        if (got == 0)
            return err_set(err, -LEAT_E_CORRUPT, "%s was cut short while it was read.", path);
        at += got;
        while (count && (size_t)got >= parts->iov_len) {
            got -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count) {
            parts->iov_base = (uint8_t *)parts->iov_base + got;
            parts->iov_len -= (size_t)got;
        }
    }
    return 0;
}

/* The end of a long path, which is more useful than its start. */
static const char *end_of(const char *path)
{
    size_t length = strlen(path), most = 120;
    return path + (length > most ? length - most : 0);
}

static int open_file(const char *path, uint64_t *ret_bytes, struct leat_err *err)
{
    struct stat info;
    /* Without O_NONBLOCK opening a pipe would wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code = errno;
    if (fd < 0)
        return err_set(err, -code, "%s: %s.", end_of(path), err_text(code));
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return err_set(err, -LEAT_E_FOREIGN, "%s is not a regular file.", end_of(path));
    }
    *ret_bytes = (uint64_t)info.st_size;
    return fd;
}

/* Straight into the row: 1. 0: the file is not laid out as the first one. */
static int read_row(const struct codec *codec, int fd, uint64_t bytes, uint8_t *place,
                    const char *path, struct leat_err *err)
{
    uint8_t head[MOST_HEAD_BYTES];
    size_t known = codec->pattern_bytes;
    if (codec->variable || (codec->kind != LEAT_CODEC_ARRAY && !known) || known > sizeof head ||
        bytes != known + codec->row_bytes)
        return 0;
    struct iovec parts[] = {
        {head,  known           },
        {place, codec->row_bytes}
    };
    int failed = read_whole(fd, known ? parts : parts + 1, known ? 2 : 1, path, err);
    if (failed < 0)
        return failed;
    return !known || memcmp(head, codec->pattern, known) == 0;
}

/* Into memory first: that of the batch if the value stays there. */
static int read_value(const struct codec *codec, int fd, uint64_t bytes, uint8_t *place,
                      const struct source_request *request, struct scratch *scratch,
                      const char *path, struct leat_err *err)
{
    uint8_t *value = NULL;
    struct leat_err why = {""};
    if (!codec->variable && bytes > codec->row_bytes + MOST_MORE_BYTES)
        return err_set(err, -LEAT_E_CORRUPT, "%s has %llu bytes, far more than its sample.", path,
                       (unsigned long long)bytes);
    if (codec->variable && bytes)
        value = request->alloc(request, bytes);
    else if (mem_reserve(&scratch->bytes, &scratch->capacity, bytes + 1, 1) == 0)
        value = scratch->bytes;
    if (!value)
        return err_set(err, -ENOMEM, "No memory for the %llu bytes of %s.",
                       (unsigned long long)bytes, path);
    struct iovec part = {value, bytes};
    int failed = bytes ? read_whole(fd, &part, 1, path, err) : 0;
    if (failed < 0)
        return failed;
    failed = codec_decode(codec, value, bytes, codec->variable, request, place, &why);
    return failed < 0 ? err_set(err, failed, "%s: %s", path, why.text) : 0;
}

static int read_file(const struct files_source *s, const char *path,
                     const struct source_request *request, uint8_t *place, struct scratch *scratch,
                     struct leat_err *err)
{
    uint64_t bytes;
    int fd = open_file(path, &bytes, err);
    if (fd < 0)
        return fd;
    path = end_of(path);
    int done = read_row(&s->codec, fd, bytes, place, path, err);
    if (!done)
        done = read_value(&s->codec, fd, bytes, place, request, scratch, path, err);
    close(fd);
    return done < 0 ? done : 0;
}

static int read_files(struct leat_source *source, const struct source_request *request,
                      struct source_report *report, struct leat_err *err)
{
    const struct files_source *s = (const struct files_source *)source;
    uint64_t step = s->codec.variable ? sizeof(struct leat_span) : s->codec.row_bytes;
    struct scratch scratch = {0};
    for (size_t i = 0; i < request->count; i++) {
        struct leat_err why = {""};
        int64_t index = request->indices[i];
        int bad = read_file(s, s->paths + s->offsets[index], request, request->places[0] + i * step,
                            &scratch, &why);
        if (bad < 0)
            report->bad(report, i, bad, why.text);
        if (s->labels)
            memcpy(request->places[1] + i * sizeof *s->labels, &s->labels[index],
                   sizeof *s->labels);
    }
    mem_free(scratch.bytes);
    return 0;
}

static void free_paths(struct leat_source *source)
{
    struct files_source *s = (struct files_source *)source;
    codec_done(&s->codec);
    mem_free(s->paths);
    mem_free(s->offsets);
    mem_free(s->labels);
}

static const struct source_ops files_ops = {.read = read_files, .done = free_paths};

/* ---- Opening. */

static int copy_paths(struct files_source *s, const struct leat_files *asked, struct leat_err *err)
{
    uint64_t bytes = 0, count = (uint64_t)asked->count;
    for (uint64_t i = 0; i < count; i++)
        bytes += strlen(asked->paths[i]) + 1;
    s->paths = mem_alloc(bytes);
    s->offsets = mem_alloc_array(count, sizeof *s->offsets);
    if (asked->labels)
        s->labels = mem_alloc_array(count, sizeof *s->labels);
    if (!s->paths || !s->offsets || (asked->labels && !s->labels))
        return err_set(err, -ENOMEM, "No memory for the paths of %lld files.",
                       (long long)asked->count);
    bytes = 0;
    for (uint64_t i = 0; i < count; i++) {
        size_t length = strlen(asked->paths[i]) + 1;
        memcpy(s->paths + bytes, asked->paths[i], length);
        s->offsets[i] = bytes;
        bytes += length;
    }
    if (asked->labels)
        memcpy(s->labels, asked->labels, count * sizeof *s->labels);
    return 0;
}

/* The first file gives type and shape if the format does. */
static int open_codec(struct files_source *s, const struct leat_files *asked, struct leat_err *err)
{
    struct scratch scratch = {0};
    const char *path = s->paths;
    uint64_t bytes = 0;
    int failed = 0;
    if (asked->value.kind == LEAT_CODEC_NPY) {
        int fd = open_file(path, &bytes, err);
        if (fd < 0)
            return fd;
        if (mem_reserve(&scratch.bytes, &scratch.capacity, bytes + 1, 1) < 0)
            failed = err_set(err, -ENOMEM, "No memory for the %llu bytes of %s.",
                             (unsigned long long)bytes, path);
        struct iovec part = {scratch.bytes, bytes};
        if (!failed && bytes)
            failed = read_whole(fd, &part, 1, path, err);
        close(fd);
    }
    if (!failed)
        failed = codec_init(&s->codec, &asked->value, path, scratch.bytes, bytes, err);
    mem_free(scratch.bytes);
    return failed;
}

int leat_source_files(const struct leat_files *asked, struct leat_source **ret_source,
                      struct leat_err *err)
{
    if (asked->count < 1)
        return err_set(err, -LEAT_E_USAGE, "There are no files to read.");
    struct files_source *s = (struct files_source *)source_new(sizeof *s, &files_ops);
    if (!s)
        return err_set(err, -ENOMEM, "No memory for a source of files.");
    int failed = copy_paths(s, asked, err);
    if (!failed)
        failed = open_codec(s, asked, err);
    if (!failed)
        failed = codec_add_field(&s->codec, &s->base, "value", asked->count, err);
    if (!failed && asked->labels)
        failed = source_add_field(&s->base, "label", LEAT_INT64, sizeof(int64_t), 1, &asked->count,
                                  NULL, err);
    if (failed < 0) {
        leat_source_unref(&s->base);
        return failed;
    }
    /* Opening, fstat, reading and closing: some microseconds when all is cached. */
    s->base.sample_ns = 8000 + codec_cost_ns(&s->codec, 0);
    snprintf(s->base.text, sizeof s->base.text, "files %.100s%s: %lld samples of ", s->paths,
             asked->count > 1 ? " and others" : "", (long long)s->base.count);
    source_add_fields_text(&s->base);
    *ret_source = &s->base;
    return 0;
}
