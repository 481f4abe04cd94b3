/* tar.c: shards in the layout of WebDataset, with a length and indices.
 *
 * Each shard is a mapped file (shard_file.h) whose headers are read once (tar_index.h); sample i is
 * then found by a search among the shards and one access to an index, so every order, rank and
 * state works. Values are decoded straight from the mapping.
 *
 *     caller    waits, and asks now and then whether to cancel
 *     threads   each takes the next shard: open or download, index, keep
 */
#include "load/codec/codec.h"
#include "load/source/remote/shard_file.h"
#include "tar_header.h"
#include "tar_index.h"

#include "base/cgroup.h"
#include "base/mem.h"
#include "load/source.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    THREADS_MOST = 64,
    THREADS_ADDRESSES = 8, /* downloads mostly wait, whatever the cores */
    TIMEOUT_S = 60,
    TRIES = 3,
    POLL_MS = 50,
    DESCRIPTORS_MOST =
        256,     /* shards that keep their descriptor; many systems allow a process 1024 */
    EXTENTS = 32 /* shards of one request whose size is checked only once */
};

struct shard {
    struct shard_file file;
    struct tar_index index;
    int64_t first; /* sample */
};

struct tar_source {
    struct leat_source base;
    struct shard *shards;
    uint32_t shard_count;
    uint32_t keys; /* 1: field 0 is "__key__", and those of the index follow */
    struct codec codec[LEAT_MAX_FIELDS];              /* of the fields of the index */
    char extension[LEAT_MAX_FIELDS][LEAT_NAME_BYTES]; /* the same */
    struct leat_codec asked[LEAT_MAX_FIELDS];         /* the same */
    struct tar_wanted wanted;
};

/* ---- Reading ---- */

/* Sizes of the shards at the start of a request: one fstat for many samples. */
struct extents {
    const struct shard *shard[EXTENTS];
    uint64_t bytes[EXTENTS];
    int cut; /* a shard became shorter since its size was taken */
};

static void check_cut(struct extents *extents, size_t at)
{
    const struct shard *shard = extents->shard[at];
    if (shard && mapped_file_extent(&shard->file.file) < extents->bytes[at])
        extents->cut = 1;
}

static uint64_t extent_of(struct extents *extents, const struct tar_source *t,
                          const struct shard *shard)
{
    size_t at = (size_t)(shard - t->shards) % EXTENTS;
    if (extents->shard[at] != shard) {
        check_cut(extents, at);
        extents->shard[at] = shard;
        extents->bytes[at] = mapped_file_extent(&shard->file.file);
    }
    return extents->bytes[at];
}

static const struct shard *find_shard(const struct tar_source *t, int64_t sample)
{
    uint32_t low = 0, high = t->shard_count; /* the last one that begins at or before it */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (t->shards[middle].first <= sample)
            low = middle;
        else
            high = middle;
    }
    return &t->shards[low];
}

static struct tar_walk walk_at(const struct shard *shard, size_t row, uint64_t extent)
{
    return (struct tar_walk){.path = shard->file.file.path,
                             .base = shard->file.file.base,
                             .bytes = extent,
                             .at = (uint64_t)shard->index.starts[row] * TAR_BLOCK};
}

static int read_key(const struct shard *shard, size_t row, uint64_t extent,
                    const struct source_request *request, struct leat_span *place,
                    struct leat_err *err)
{
    const char *key;
    struct tar_walk walk = walk_at(shard, row, extent);
    if (walk.at + TAR_BLOCK > extent)
        return err_set(err, -LEAT_E_CORRUPT, "the file was cut short to %llu bytes.",
                       (unsigned long long)extent);
    int bytes = tar_index_key(&walk, &key, err);
    if (bytes < 0)
        return bytes;
    if (key == walk.joined) { /* not in one piece in the archive */
        char *copy = request->alloc(request, (uint64_t)bytes);
        if (!copy)
            return err_set(err, -ENOMEM, "there is no memory for its key.");
        key = memcpy(copy, key, (size_t)bytes);
    }
    *place = (struct leat_span){key, bytes};
    return 0;
}

/* Pages that spans point to are read from the disk here, not by the consumer. */
static void touch(const uint8_t *bytes, uint64_t count)
{
    for (uint64_t at = 0; at < count; at += 4096)
        (void)*(const volatile uint8_t *)(bytes + at);
}

static int read_part(const struct tar_source *t, uint32_t f, const struct shard *shard,
                     const struct tar_part *part, uint64_t extent,
                     const struct source_request *request, uint8_t *place, struct leat_err *err)
{
    uint64_t offset = (uint64_t)part->block * TAR_BLOCK;
    const uint8_t *bytes = shard->file.file.base + offset;
    if (!part->block)
        return err_set(err, -LEAT_E_MISSING,
                       "it is not there; the members of a sample must be next to each other.");
    if (offset + part->bytes > extent)
        return err_set(err, -LEAT_E_CORRUPT, "the file was cut short to %llu bytes.",
                       (unsigned long long)extent);
    /* Rows of numbers are copied, since the owner of a batch may write to them. */
    int stays = t->codec[f].kind == LEAT_CODEC_BYTES;
    if (stays)
        touch(bytes, part->bytes);
    return codec_decode(&t->codec[f], bytes, part->bytes, stays, request, place, err);
}

static void report_bad(const struct tar_source *t, const struct shard *shard, size_t row,
                       uint64_t extent, size_t place, const char *field, int code,
                       const struct leat_err *why, struct source_report *report)
{
    const char *key = "?";
    char text[512];
    struct tar_walk walk = walk_at(shard, row, extent);
    int bytes = tar_index_key(&walk, &key, NULL);
    snprintf(text, sizeof text, "%.120s: \"%.*s.%s\": %.200s", shard->file.file.path,
             bytes < 0    ? 1
             : bytes < 60 ? bytes
                          : 60,
             key, field, why->text);
    report->bad(report, place, code, text);
}

static uint8_t *place_of(const struct leat_source *source, const struct source_request *request,
                         uint32_t field, size_t i)
{
    const struct leat_field *f = &source->field[field];
    return request->places[field] + i * (f->variable ? sizeof(struct leat_span) : f->row_bytes);
}

static void read_sample(struct leat_source *source, const struct source_request *request, size_t i,
                        struct extents *extents, struct source_report *report)
{
    struct tar_source *t = (struct tar_source *)source;
    const struct shard *shard = find_shard(t, request->indices[i]);
    size_t row = (size_t)(request->indices[i] - shard->first);
    const struct tar_part *parts = shard->index.parts + row * shard->index.fields;
    uint64_t extent = extent_of(extents, t, shard);
    struct leat_err err = {""};
    int failed = 0;
    uint32_t field = 0;
    if (t->keys) {
        uint8_t *place = place_of(source, request, 0, i);
        failed = read_key(shard, row, extent, request, (struct leat_span *)place, &err);
    }
    for (uint32_t f = 0; !failed && f < shard->index.fields; f++) {
        field = f + t->keys;
        failed = read_part(t, f, shard, &parts[f], extent, request,
                           place_of(source, request, field, i), &err);
    }
    if (failed < 0)
        report_bad(t, shard, row, extent, i, source->field[field].name, failed, &err, report);
}

static int read_samples(struct leat_source *source, const struct source_request *request,
                        struct source_report *report, struct leat_err *err)
{
    struct extents extents;
    do {
        extents = (struct extents){.cut = 0};
        for (size_t i = 0; i < request->count; i++)
            read_sample(source, request, i, &extents, report);
        for (size_t i = 0; i < EXTENTS; i++)
            check_cut(&extents, i);
    } while (extents.cut);
    return 0;
}

static int key_lengths(const struct tar_source *t, int64_t first, size_t count,
                       int64_t *ret_lengths, struct leat_err *err)
{
    struct extents extents = {.cut = 0};
    for (size_t i = 0; i < count; i++) {
        const struct shard *shard = find_shard(t, first + (int64_t)i);
        struct tar_walk walk = walk_at(shard, (size_t)(first + (int64_t)i - shard->first),
                                       extent_of(&extents, t, shard));
        const char *key;
        int bytes = tar_index_key(&walk, &key, err);
        if (bytes < 0)
            return bytes;
        ret_lengths[i] = bytes;
    }
    return 0;
}

/* Known from the index when a value is nothing but its rows. A sample without the value has none.
 */
static int find_lengths(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                        int64_t *ret_lengths, struct leat_err *err)
{
    struct tar_source *t = (struct tar_source *)source;
    if (field < t->keys)
        return key_lengths(t, first, count, ret_lengths, err);
    uint32_t f = field - t->keys;
    if (codec_items(&t->codec[f], 0) < 0)
        return err_set(err, -LEAT_E_USAGE,
                       "How long the values of \"%s\" are is not known before they are read.",
                       source->field[field].name);
    for (size_t i = 0; i < count; i++) {
        const struct shard *shard = find_shard(t, first + (int64_t)i);
        size_t row = (size_t)(first + (int64_t)i - shard->first);
        uint64_t bytes = shard->index.parts[row * shard->index.fields + f].bytes;
        ret_lengths[i] = codec_items(&t->codec[f], bytes);
    }
    return 0;
}

static void close_shards(struct leat_source *source)
{
    struct tar_source *t = (struct tar_source *)source;
    for (uint32_t i = 0; i < t->shard_count; i++) {
        tar_index_done(&t->shards[i].index);
        shard_file_close(&t->shards[i].file);
    }
    mem_free(t->shards);
    for (uint32_t f = 0; f < LEAT_MAX_FIELDS; f++)
        codec_done(&t->codec[f]);
}

static const struct source_ops tar_ops = {
    .read = read_samples, .lengths = find_lengths, .done = close_shards};

/* ---- Fields ---- */

/* The codec of a value by the last part of its extension, as in WebDataset; others are bytes. */
static const struct {
    const char *extension;
    enum leat_codec_kind kind;
} kinds[] = {
    {"npy",   LEAT_CODEC_NPY    },
    {"cls",   LEAT_CODEC_DECIMAL},
    {"cls2",  LEAT_CODEC_DECIMAL},
    {"id",    LEAT_CODEC_DECIMAL},
    {"index", LEAT_CODEC_DECIMAL},
    {"inx",   LEAT_CODEC_DECIMAL},
};

static enum leat_codec_kind kind_of(const char *extension)
{
    const char *dot = strrchr(extension, '.');
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(dot ? dot + 1 : extension, kinds[i].extension) == 0)
            return kinds[i].kind;
    return LEAT_CODEC_BYTES;
}

static int set_fields(struct tar_source *t, const struct leat_tar *asked, struct leat_err *err)
{
    uint32_t most = LEAT_MAX_FIELDS - t->keys;
    if (asked->field_count > most)
        return err_set(err, -LEAT_E_USAGE, "A sample has at most %u fields, not %u.", most,
                       asked->field_count);
    for (uint32_t f = 0; f < asked->field_count; f++) {
        const char *extension = asked->fields[f].extension;
        size_t length = strlen(extension);
        if (!length || length >= LEAT_NAME_BYTES)
            return err_set(err, -LEAT_E_USAGE, "An extension has 1 to %d bytes, unlike \"%.80s\".",
                           LEAT_NAME_BYTES - 1, extension);
        for (size_t i = 0; i < length; i++)
            t->extension[f][i] = (char)tolower((unsigned char)extension[i]);
        for (uint32_t other = 0; other < f; other++)
            if (strcmp(t->extension[f], t->extension[other]) == 0)
                return err_set(err, -LEAT_E_USAGE, "The field \"%s\" is asked for twice.",
                               t->extension[f]);
        t->asked[f] = asked->fields[f].codec;
    }
    t->wanted.fields = asked->field_count;
    return 0;
}

/* The fields of the first sample, in the order of its members. 0: the shard has no sample. */
static int learn_fields(struct tar_source *t, const struct shard *shard, struct leat_err *err)
{
    const struct mapped_file *file = &shard->file.file;
    int count = tar_index_first(file->path, file->base, file->bytes, t->extension, err);
    if (count <= 0)
        return count;
    if ((uint32_t)count > LEAT_MAX_FIELDS - t->keys)
        return err_set(err, -LEAT_E_FOREIGN,
                       "%s: the first sample has %d members, too many; name the fields to read.",
                       file->path, count);
    for (int f = 0; f < count; f++)
        t->asked[f] = (struct leat_codec){.kind = kind_of(t->extension[f])};
    t->wanted.fields = (uint32_t)count;
    return count;
}

/* ---- Opening ---- */

/* Shared by the threads that open shards. */
struct opening {
    struct tar_source *t;
    const struct leat_tar *asked;
    struct shard_cache cache; /* its counters are atomic */
    atomic_uint next;         /* shard to take */
    int learning;             /* one thread alone; ends with the first sample found */
    pthread_mutex_t lock;     /* protects what follows */
    pthread_cond_t ended;
    int left; /* threads still running */
    int failed;
    struct leat_err err; /* the first failure */
};

/* Opens, indexes and keeps one shard after the other: a thread that holds the lock of a copy never
 * waits for another. */
static int open_shard(struct opening *o, uint32_t number, struct leat_err *err)
{
    struct tar_source *t = o->t;
    struct shard *shard = &t->shards[number];
    const struct mapped_file *file = &shard->file.file;
    int failed = shard_file_open(&shard->file, o->asked->shards[number], &o->cache, err);
    if (!failed && o->learning)
        failed = learn_fields(t, shard, err);
    if (failed >= 0 && t->wanted.fields) /* else the shard has no sample */
        failed =
            tar_index_parse(&shard->index, file->path, file->base, file->bytes, &t->wanted, err);
    if (failed >= 0 && mapped_file_extent(file) < file->bytes)
        failed = err_set(err, -LEAT_E_CORRUPT, "%s was cut short while it was opened.", file->path);
    if (failed >= 0)
        failed = shard_file_keep(&shard->file, err);
    if (failed >= 0 && t->shard_count > DESCRIPTORS_MOST)
        mapped_file_close_descriptor(&shard->file.file);
    return failed;
}

static int take_shard(struct opening *o, uint32_t *ret_number)
{
    if (atomic_load(&o->cache.stop) || (o->learning && o->t->wanted.fields))
        return 0;
    *ret_number = atomic_fetch_add(&o->next, 1);
    return *ret_number < o->t->shard_count;
}

static void *open_some(void *argument)
{
    struct opening *o = argument;
    uint32_t number;
    int failed = 0;
    struct leat_err err = {""};
    while (failed >= 0 && take_shard(o, &number))
        failed = open_shard(o, number, &err);
    pthread_mutex_lock(&o->lock);
    if (failed < 0) {
        if (!o->failed) {
            o->failed = failed;
            o->err = err;
        }
        atomic_store(&o->cache.stop, 1);
    }
    o->left--;
    pthread_cond_signal(&o->ended);
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Waits for the threads; 1: the caller cancelled. */
static int wait_for_threads(struct opening *o)
{
    int gave_up = 0;
    pthread_mutex_lock(&o->lock);
    while (o->left > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += POLL_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&o->ended, &o->lock, &until);
        if (gave_up || o->left <= 0 || !o->asked->cancelled)
            continue;
        pthread_mutex_unlock(&o->lock); /* the callback may take long: it may take the GIL */
        gave_up = o->asked->cancelled(o->asked->owner) != 0;
        pthread_mutex_lock(&o->lock);
        if (gave_up)
            atomic_store(&o->cache.stop, 1);
    }
    pthread_mutex_unlock(&o->lock);
    return gave_up;
}

static int run_threads(struct opening *o, int threads, struct leat_err *err)
{
    pthread_t thread[THREADS_MOST];
    int started = 0;
    o->left = threads;
    while (started < threads && pthread_create(&thread[started], NULL, open_some, o) == 0)
        started++;
    pthread_mutex_lock(&o->lock);
    o->left -= threads - started;
    pthread_mutex_unlock(&o->lock);
    int gave_up = wait_for_threads(o);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    if (!started)
        return err_set(err, -EAGAIN, "No thread can be started to open the shards.");
    if (gave_up)
        return err_set(err, -ECANCELED, "Opening the shards was cancelled.");
    return o->failed ? err_set(err, o->failed, "%s", o->err.text) : 0;
}

/* One thread per core, more for addresses. */
static int choose_threads(const struct leat_tar *asked)
{
    long threads = asked->threads;
    if (threads < 1) {
        struct cgroup_info limits = {.cpus = 1};
        cgroup_read("/", &limits); /* when it fails: one core */
        threads = (long)(limits.cpus + 0.5);
        for (uint32_t i = 0; i < asked->shard_count; i++)
            if (strstr(asked->shards[i], "://") && threads < THREADS_ADDRESSES)
                threads = THREADS_ADDRESSES;
    }
    threads = threads < 1 ? 1 : threads > THREADS_MOST ? THREADS_MOST : threads;
    return threads > (long)asked->shard_count ? (int)asked->shard_count : (int)threads;
}

static int open_shards(struct tar_source *t, const struct leat_tar *asked, struct leat_err *err)
{
    struct opening o = {
        .t = t,
        .asked = asked,
        .cache = {.folder = asked->cache,
                  .most_bytes = asked->cache_bytes,
                  .endpoint = asked->endpoint,
                  .timeout_s = asked->timeout_s > 0 ? asked->timeout_s : TIMEOUT_S,
                  .tries = TRIES},
        .learning = !t->wanted.fields
    };
    if (!o.cache.endpoint)
        o.cache.endpoint = getenv("LEAT_S3_ENDPOINT");
    pthread_mutex_init(&o.lock, NULL);
    pthread_cond_init(&o.ended, NULL);
    int failed = o.learning ? run_threads(&o, 1, err) : 0;
    o.learning = 0;
    if (!failed)
        failed = run_threads(&o, choose_threads(asked), err);
    pthread_cond_destroy(&o.ended);
    pthread_mutex_destroy(&o.lock);
    return failed;
}

/* ---- The source ---- */

static void count_samples(struct tar_source *t, int64_t *ret_count, double *ret_bytes)
{
    uint64_t bytes = 0;
    *ret_count = 0;
    for (uint32_t i = 0; i < t->shard_count; i++) {
        const struct tar_index *index = &t->shards[i].index;
        t->shards[i].first = *ret_count;
        *ret_count += (int64_t)index->count;
        for (size_t p = 0; p < index->count * index->fields; p++)
            bytes += index->parts[p].bytes;
    }
    *ret_bytes = *ret_count ? (double)bytes / (double)*ret_count : 0;
}

/* The codec learns from the first value; a field that no sample has is an error. */
static int set_codec(struct tar_source *t, uint32_t f, int64_t count, struct leat_err *err)
{
    for (uint32_t i = 0; i < t->shard_count; i++) {
        const struct shard *shard = &t->shards[i];
        for (size_t row = 0; row < shard->index.count; row++) {
            const struct tar_part *part = &shard->index.parts[row * shard->index.fields + f];
            char name[400];
            if (!part->block)
                continue;
            snprintf(name, sizeof name, "%.300s: .%s of the first sample", shard->file.file.path,
                     t->extension[f]);
            int failed = codec_init(&t->codec[f], &t->asked[f], name,
                                    shard->file.file.base + (uint64_t)part->block * TAR_BLOCK,
                                    part->bytes, err);
            return failed < 0
                       ? failed
                       : codec_add_field(&t->codec[f], &t->base, t->extension[f], count, err);
        }
    }
    return err_set(err, -LEAT_E_MISSING, "No sample of %s%s has a member .%s.",
                   t->shards[0].file.file.path, t->shard_count > 1 ? " and the other shards" : "",
                   t->extension[f]);
}

static int add_fields(struct tar_source *t, struct leat_err *err)
{
    int64_t count;
    double bytes;
    int failed = 0;
    count_samples(t, &count, &bytes);
    if (t->keys) {
        struct codec key;
        failed = codec_init(&key, &(struct leat_codec){.kind = LEAT_CODEC_BYTES}, "__key__", NULL,
                            0, err);
        if (!failed)
            failed = codec_add_field(&key, &t->base, "__key__", count, err);
        codec_done(&key);
    }
    for (uint32_t f = 0; !failed && f < t->wanted.fields; f++)
        failed = set_codec(t, f, count, err);
    for (uint32_t f = 0; !failed && f < t->wanted.fields; f++)
        t->base.sample_ns += codec_cost_ns(&t->codec[f], (uint64_t)bytes);
    t->base.sample_ns +=
        100 + 300.0 * t->keys; /* the search; the header of the key and its checksum */
    return failed;
}

static int make(struct tar_source *t, const struct leat_tar *asked, struct leat_err *err)
{
    if (!asked->shard_count)
        return err_set(err, -LEAT_E_USAGE, "There are no shards to read.");
    t->keys = asked->keys != 0;
    t->wanted.skip_missing = asked->skip_missing;
    for (uint32_t f = 0; f < LEAT_MAX_FIELDS; f++)
        t->wanted.extensions[f] = t->extension[f];
    if (!(t->shards = mem_alloc_array(asked->shard_count, sizeof *t->shards)))
        return err_set(err, -ENOMEM, "No memory for %u shards.", asked->shard_count);
    t->shard_count = asked->shard_count;
    int failed = set_fields(t, asked, err);
    if (!failed)
        failed = open_shards(t, asked, err);
    if (!failed && !t->wanted.fields)
        failed = err_set(err, -LEAT_E_MISSING, "%s%s: there is not one sample.",
                         t->shards[0].file.file.path, t->shard_count > 1 ? " and others" : "");
    return failed < 0 ? failed : add_fields(t, err);
}

int leat_source_tar(const struct leat_tar *asked, struct leat_source **ret_source,
                    struct leat_err *err)
{
    struct tar_source *t = (struct tar_source *)source_new(sizeof *t, &tar_ops);
    if (!t)
        return err_set(err, -ENOMEM, "No memory for a source of shards.");
    int failed = make(t, asked, err);
    if (failed < 0) {
        leat_source_unref(&t->base);
        return failed;
    }
    snprintf(t->base.text, sizeof t->base.text, "tar %.100s%s: %lld samples of ",
             t->shards[0].file.file.path, t->shard_count > 1 ? " and others" : "",
             (long long)t->base.count);
    source_add_fields_text(&t->base);
    *ret_source = &t->base;
    return 0;
}
