/* shard_file.c: see shard_file.h. */
#include "shard_file.h"

#include "download.h"
#include "load/source/tar/unpack.h"

#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    CHECK_BYTES = 16 << 20,   /* written between two checks of the free space of the disk */
    RESERVE_BYTES = 256 << 20 /* kept free, or a twentieth of the disk */
};

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- The copy: the file that unpacked bytes are written to ---- */

struct copy {
    struct unpack_out out; /* first: a pointer to it is one to the whole */
    int fd;
    const char *label, *folder; /* of the shard; of the copy */
    struct shard_cache *cache;
    uint64_t written, checked;
    struct unpack unpack;
};

/* Whether the disk has space for `wanted` more bytes; the next check is at `checked` bytes. */
static int check_space(struct copy *copy, uint64_t wanted, struct leat_err *err)
{
    struct statvfs disk;
    copy->checked = copy->written + CHECK_BYTES;
    if (fstatvfs(copy->fd, &disk) < 0)
        return 0;
    uint64_t all = (uint64_t)disk.f_blocks * disk.f_frsize;
    uint64_t reserve = all / 20 < RESERVE_BYTES ? all / 20 : RESERVE_BYTES;
    uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (left > reserve && left - reserve >= wanted) {
        if (left - reserve < CHECK_BYTES)
            copy->checked = copy->written + left - reserve;
        return 0;
    }
    return err_set(err, -ENOSPC,
                   "%s has %llu MB free on its disk, too little for a copy of %s: name another "
                   "folder with cache_dir.",
                   copy->folder, (unsigned long long)(left / 1000000), copy->label);
}

static int check_limit(const struct copy *copy, uint64_t more, struct leat_err *err)
{
    struct shard_cache *cache = copy->cache;
    unsigned long long bytes = atomic_fetch_add(&cache->bytes, more) + more;
    if (!cache->most_bytes || bytes <= cache->most_bytes)
        return 0;
    return err_set(err, -ENOSPC,
                   "The local copies of the shards take more than cache_bytes (%llu); the copy of "
                   "%s is the first that does not fit.",
                   (unsigned long long)cache->most_bytes, copy->label);
}

static int write_copy(struct unpack_out *out, const uint8_t *bytes, size_t count,
                      struct leat_err *err)
{
    struct copy *copy = (struct copy *)out;
    if (atomic_load(&copy->cache->stop))
        return err_set(err, -ECANCELED, "The copy of %s was cancelled.", copy->label);
    if (copy->written + count > copy->checked) {
        int failed = check_space(copy, count, err);
        if (failed < 0)
            return failed;
    }
    copy->written += count; /* before the check, which counts them too: see start_over() */
    int failed = check_limit(copy, count, err);
    while (!failed && count) {
        ssize_t wrote = write(copy->fd, bytes, count);
        if (wrote < 0 && errno != EINTR)
            return err_set(err, -errno, "The copy of %s cannot be written to %s: %s.", copy->label,
                           copy->folder, err_text(errno));
        bytes += wrote < 0 ? 0 : wrote;
        count -= wrote < 0 ? 0 : (size_t)wrote;
    }
    return failed;
}

/* Empties the file, for another try. */
static int start_over(struct copy *copy, struct leat_err *err)
{
    unpack_done(&copy->unpack);
    atomic_fetch_sub(&copy->cache->bytes, copy->written);
    copy->written = copy->checked = 0;
    if (ftruncate(copy->fd, 0) < 0 || lseek(copy->fd, 0, SEEK_SET) < 0)
        return err_set(err, -errno, "%s: %s.", copy->folder, err_text(errno));
    return 0;
}

/* The messages of unpack.c do not name the shard. */
static int add_label(const struct copy *copy, int code, struct leat_err *err)
{
    struct leat_err inner;
    if (code != -LEAT_E_CORRUPT && code != -LEAT_E_FOREIGN && code != -LEAT_E_MISSING)
        return code;
    memcpy(&inner, err, sizeof inner);
    return err_set(err, code, "%.200s: %.280s", copy->label, inner.text);
}

static int put(struct copy *copy, const uint8_t *bytes, size_t count, struct leat_err *err)
{
    return add_label(copy, unpack_put(&copy->unpack, bytes, count, err), err);
}

static int end(struct copy *copy, struct leat_err *err)
{
    int failed = add_label(copy, unpack_end(&copy->unpack, err), err);
    unpack_done(&copy->unpack);
    return failed;
}

/* ---- The bytes: from a compressed file or an address ---- */

static int copy_local(struct copy *copy, const struct mapped_file *packed, struct leat_err *err)
{
    int failed = start_over(copy, err);
    for (uint64_t at = 0; !failed && at < packed->bytes;) {
        uint64_t left = packed->bytes - at, some = left < 1 << 20 ? left : 1 << 20;
        failed = put(copy, packed->base + at, some, err);
        if (mapped_file_extent(packed) < at + some)
            return err_set(err, -LEAT_E_CORRUPT, "%s was cut short while it was in use.",
                           copy->label);
        at += some;
    }
    return failed < 0 ? failed : end(copy, err);
}

static int receive(void *owner, const uint8_t *bytes, size_t count, int64_t length,
                   struct leat_err *err)
{
    struct copy *copy = owner;
    if (!copy->unpack.begun && length > 0) { /* unpacked it needs at least that */
        int failed = check_space(copy, (uint64_t)length, err);
        if (failed < 0)
            return failed;
    }
    return put(copy, bytes, count, err);
}

static int copy_address(struct copy *copy, const char *address, struct leat_err *err)
{
    struct shard_cache *cache = copy->cache;
    struct download download = {.address = address,
                                .label = copy->label,
                                .endpoint = cache->endpoint,
                                .timeout_s = cache->timeout_s,
                                .stop = &cache->stop,
                                .put = receive,
                                .owner = copy};
    for (int attempt = 1;; attempt++) {
        int again, failed = start_over(copy, err);
        if (failed < 0)
            return failed;
        failed = download_run(&download, &again, err);
        if (!failed)
            return end(copy, err);
        if (!again || attempt >= cache->tries)
            return failed;
        for (long waited = 0; waited < 500L * attempt && !atomic_load(&cache->stop); waited += 50)
            pause_ms(50);
    }
}

/* ---- Names and locks ---- */

static uint64_t hash(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return h;
}

/* "FOLDER/NAME-0123456789abcdef.tar": NAME is for people, the number identifies the shard. */
static char *copy_name(const char *folder, const char *label, const char *identity)
{
    const char *slash = strrchr(label, '/');
    const char *base = slash ? slash + 1 : label;
    struct str name = {0};
    str_addf(&name, "%s/", folder);
    for (size_t i = 0; i < 80 && base[i]; i++)
        str_addf(&name, "%c", isalnum((unsigned char)base[i]) || base[i] == '-' ? base[i] : '_');
    str_addf(&name, "-%016llx.tar", (unsigned long long)hash(identity));
    if (!name.failed)
        return name.text;
    str_done(&name);
    return NULL;
}

static char *local_identity(const struct mapped_file *packed)
{
    struct stat info;
    struct str text = {0};
    char *real = realpath(packed->path, NULL);
    if (fstat(packed->fd, &info) < 0)
        info = (struct stat){.st_size = (off_t)packed->bytes};
    str_addf(&text, "%s\n%lld\n%lld.%09ld", real ? real : packed->path, (long long)info.st_size,
             (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    free(real);
    if (!text.failed)
        return text.text;
    str_done(&text);
    return NULL;
}

/* The URL, not the address: an s3:// address means another object on another endpoint. */
static int remote_identity(const char *address, const char *label, const char *endpoint,
                           char **ret_identity, struct leat_err *err)
{
    struct str url = {0};
    struct download download = {.address = address, .label = label, .endpoint = endpoint};
    int failed = download_url(&download, &url, err);
    if (!failed && !url.failed)
        *ret_identity = url.text;
    else
        str_done(&url);
    return failed;
}

static int is_same_file(int fd, const char *path)
{
    struct stat one, other;
    return fstat(fd, &one) == 0 && stat(path, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* Waits while another process makes this copy. Polled, so that it can be cancelled. */
static int lock(int fd, const char *part, struct shard_cache *cache, struct leat_err *err)
{
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_set(err, -errno, "%s cannot be locked: %s.", part, err_text(errno));
        if (atomic_load(&cache->stop))
            return err_set(err, -ECANCELED, "Waiting for %s was cancelled.", part);
        pause_ms(20);
    }
    return 0;
}

/* The locked .part, or -1 in *ret_fd when the whole copy exists by now. The process that held the
 * lock before may have renamed or removed the file: then the name means another one. */
static int open_part(const struct shard_file *shard, struct shard_cache *cache, int *ret_fd,
                     struct leat_err *err)
{
    *ret_fd = -1;
    while (!path_exists(shard->name)) {
        int fd = open(shard->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
            return err_set(err, -errno, "%s: %s.", shard->part, err_text(errno));
        int failed = lock(fd, shard->part, cache, err);
        if (!failed && is_same_file(fd, shard->part)) {
            *ret_fd = fd;
            return 0;
        }
        close(fd);
        if (failed < 0)
            return failed;
    }
    return 0;
}

static int open_temporary(struct leat_err *err)
{
    const char *folder = path_temporary();
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    char *path = path_join(folder, "leat-shard-XXXXXX", NULL);
    if (!path)
        return err_set(err, -ENOMEM, "No memory for a temporary file.");
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    else
        fd = err_set(err, -errno, "No temporary file can be made in %s: %s.", folder,
                     err_text(errno));
    mem_free(path);
    return fd;
}

/* ---- Opening ---- */

static int write_all(struct copy *copy, const char *address, const struct mapped_file *packed,
                     struct leat_err *err)
{
    copy->out.write = write_copy;
    copy->unpack.out = &copy->out;
    int failed = packed ? copy_local(copy, packed, err) : copy_address(copy, address, err);
    unpack_done(&copy->unpack);
    return failed;
}

/* An existing copy counts against the limit as one made now. */
static int open_existing(struct shard_file *shard, const char *label, struct shard_cache *cache,
                         struct leat_err *err)
{
    int failed = mapped_file_open(&shard->file, shard->name, err);
    struct copy copy = {.label = label, .cache = cache};
    mem_free(shard->part);
    shard->part = NULL;
    return failed < 0 ? failed : check_limit(&copy, shard->file.bytes, err);
}

static int make_names(struct shard_file *shard, const char *label, const char *identity,
                      const struct shard_cache *cache, struct leat_err *err)
{
    struct str part = {0};
    if (!identity || !(shard->name = copy_name(cache->folder, label, identity)))
        return err_set(err, -ENOMEM, "No memory to open %s.", label);
    str_addf(&part, "%s.part", shard->name);
    shard->part = part.text;
    return part.failed ? err_set(err, -ENOMEM, "No memory to open %s.", label)
                       : path_make_dirs(cache->folder, err);
}

static int open_copy(struct shard_file *shard, const char *address, const char *label,
                     const struct mapped_file *packed, struct shard_cache *cache,
                     struct leat_err *err)
{
    struct copy copy = {.fd = -1, .label = label, .folder = path_temporary(), .cache = cache};
    if (cache->folder) {
        char *identity = packed ? local_identity(packed) : NULL;
        int failed = packed ? 0 : remote_identity(address, label, cache->endpoint, &identity, err);
        if (!failed)
            failed = make_names(shard, label, identity, cache, err);
        mem_free(identity);
        copy.folder = cache->folder;
        if (!failed)
            failed = open_part(shard, cache, &copy.fd, err);
        if (failed < 0) { /* another process may have it */
            mem_free(shard->part);
            shard->part = NULL;
            return failed;
        }
        if (copy.fd < 0)
            return open_existing(shard, label, cache, err);
    } else if ((copy.fd = open_temporary(err)) < 0) {
        return copy.fd;
    }
    int failed = write_all(&copy, address, packed, err);
    if (!failed)
        return mapped_file_take(&shard->file, copy.fd, label, err);
    if (shard->part)
        unlink(shard->part); /* while it is locked */
    mem_free(shard->part);
    shard->part = NULL;
    close(copy.fd);
    return failed;
}

static int open_local(struct shard_file *shard, const char *path, struct shard_cache *cache,
                      struct leat_err *err)
{
    int failed = mapped_file_open(&shard->file, path, err);
    if (failed < 0 || !unpack_is_packed(shard->file.base, shard->file.bytes))
        return failed;
    struct mapped_file packed = shard->file;
    shard->file = (struct mapped_file){.fd = -1};
    failed = open_copy(shard, NULL, path, &packed, cache, err);
    mapped_file_close(&packed);
    return failed;
}

int shard_file_open(struct shard_file *shard, const char *path, struct shard_cache *cache,
                    struct leat_err *err)
{
    *shard = (struct shard_file){.file = {.fd = -1}};
    int failed;
    if (download_is_address(path)) {
        char *label = download_label(path);
        failed = label ? open_copy(shard, path, label, NULL, cache, err)
                       : err_set(err, -ENOMEM, "No memory to open a shard.");
        mem_free(label);
    } else {
        failed = open_local(shard, path, cache, err);
    }
    if (failed < 0)
        shard_file_close(shard);
    return failed;
}

int shard_file_keep(struct shard_file *shard, struct leat_err *err)
{
    if (!shard->part)
        return 0;
    /* After a power failure the name must not exist without the bytes. */
    if (fdatasync(shard->file.fd) < 0 || rename(shard->part, shard->name) < 0)
        return err_set(err, -errno, "%s cannot be written: %s.", shard->name, err_text(errno));
    flock(shard->file.fd, LOCK_UN);
    mem_free(shard->part);
    shard->part = NULL;
    return 0;
}

void shard_file_close(struct shard_file *shard)
{
    if (shard->part && shard->file.path)
        unlink(shard->part); /* while it is locked */
    mapped_file_close(&shard->file);
    mem_free(shard->part);
    mem_free(shard->name);
    *shard = (struct shard_file){.file = {.fd = -1}};
}
