/* lmdb.c: the values of an LMDB file, one per sample, in the order of LMDB's keys.
 *
 * liblmdb finds a value by its key, a loader by its number. So a cursor goes once over all entries
 * when the file is opened, and their addresses in the mapping are kept: 24 bytes per sample. After
 * that, threads read the mapping and liblmdb is asked only for the number of the last transaction.
 *
 * Fields: "value", and "key" before it when asked for. Entries whose keys are in `skip` (a length,
 * a list of keys) are not samples.
 *
 * The environment is opened read-only and without locks (MDB_NOLOCK), so nothing is written, and a
 * writer does not know of this reader: after its next transaction it may use our pages again. Every
 * read therefore checks, before and after, that the last transaction is the one that was opened,
 * and values are copied before the second check. liblmdb forbids a second environment of one file
 * in a process because closing the one drops the other's lock; without locks there is none to drop.
 *
 * After fork() the child has the mapping too, and none of the calls below depends on the process.
 *
 * Not detected: damage. liblmdb trusts its files, and LMDB has no checksums. A file shorter than
 * its own count of pages is refused; any other damage gives other bytes or ends the process.
 */
#include "load/codec/codec.h"

#include "base/mem.h"
#include "base/path.h"
#include "load/source.h"

#include <lmdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define AHEAD         8   /* values that are prefetched while one is copied */
#define PREFETCH_MOST 512 /* bytes of a value; within a page the hardware goes on by itself */
#define LINE_BYTES    64
#define PAGE_BYTES    4096

struct entry {
    const uint8_t *key, *value; /* in the mapping */
    uint32_t value_bytes;
    uint16_t key_bytes;
};

struct lmdb_source {
    struct leat_source base;
    char *path; /* owned */
    MDB_env *env;
    MDB_txn *txn; /* open as long as the source */
    uint64_t txnid, file_bytes;
    struct codec key, value;
    int with_keys;
    struct entry *entries; /* owned; one per sample */
    size_t count, capacity;
};

/* ---- reading -----------------------------------------------------------------------------------
 */
/* data.mdb, key "00000012": the value is ... */
static void report_bad(const struct lmdb_source *l, const struct entry *entry, size_t place,
                       int code, const struct leat_err *why, struct source_report *report)
{
    char text[sizeof why->text], key[64];
    size_t length = strlen(l->path), most = 100; /* of a long path the end is kept */
    size_t bytes = entry->key_bytes < sizeof key - 1 ? entry->key_bytes : sizeof key - 1;
    for (size_t i = 0; i < bytes; i++)
        key[i] = entry->key[i] >= ' ' && entry->key[i] < 127 ? (char)entry->key[i] : '?';
    key[bytes] = 0;
    snprintf(text, sizeof text, "%s, key \"%s\": %.300s",
             l->path + (length > most ? length - most : 0), key, why->text);
    report->bad(report, place, code, text);
}

static uint8_t *place_of(const struct leat_source *source, const struct source_request *request,
                         uint32_t field, size_t i)
{
    uint64_t bytes =
        source->field[field].variable ? sizeof(struct leat_span) : source->field[field].row_bytes;
    return request->places[field] + i * bytes;
}

static void read_entry(const struct lmdb_source *l, const struct source_request *request,
                       const struct entry *entry, size_t place, struct source_report *report)
{
    struct leat_err why = {""};
    uint32_t f = 0;
    int failed = 0;
    if (l->with_keys)
        failed = codec_decode(&l->key, entry->key, entry->key_bytes, 0, request,
                              place_of(&l->base, request, f++, place), &why);
    if (!failed)
        failed = codec_decode(&l->value, entry->value, entry->value_bytes, 0, request,
                              place_of(&l->base, request, f, place), &why);
    if (failed < 0)
        report_bad(l, entry, place, failed, &why, report);
}

/* The first lines of a value and one of its next page, whose address the processor must look up. */
static void prefetch(const struct entry *entry)
{
    for (size_t at = 0; at < PREFETCH_MOST && at < entry->value_bytes; at += LINE_BYTES)
        __builtin_prefetch(entry->value + at);
    if (entry->value_bytes > PAGE_BYTES)
        __builtin_prefetch(entry->value + PAGE_BYTES);
}

/* The file must be as long as it was before the pages of the metas are looked at. */
static int check_unchanged(const struct lmdb_source *l, struct leat_err *err)
{
    struct stat info;
    MDB_envinfo env;
    int fd;
    if (mdb_env_get_fd(l->env, &fd) || fstat(fd, &info) < 0 ||
        (uint64_t)info.st_size < l->file_bytes)
        return err_set(err, -LEAT_E_CORRUPT, "%s was cut short while it was in use.", l->path);
    if (mdb_env_info(l->env, &env) || env.me_last_txnid != l->txnid)
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s was written to while it was in use: its pages may hold something else "
                       "by now. Open it again, or read a copy.",
                       l->path);
    return 0;
}

static int read_values(struct leat_source *source, const struct source_request *request,
                       struct source_report *report, struct leat_err *err)
{
    const struct lmdb_source *l = (const struct lmdb_source *)source;
    int failed = check_unchanged(l, err);
    if (failed < 0)
        return failed;
    for (size_t i = 0; i < request->count; i++)
        __builtin_prefetch(&l->entries[request->indices[i]]);
    for (size_t i = 0; i < request->count && i < AHEAD; i++)
        prefetch(&l->entries[request->indices[i]]);
    for (size_t i = 0; i < request->count; i++) {
        if (i + AHEAD < request->count)
            prefetch(&l->entries[request->indices[i + AHEAD]]);
        read_entry(l, request, &l->entries[request->indices[i]], i, report);
    }
    return check_unchanged(l, err);
}

/* Field 0 is the key when there are two. */
static int find_lengths(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                        int64_t *ret_lengths, struct leat_err *err)
{
    const struct lmdb_source *l = (const struct lmdb_source *)source;
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = &l->entries[first + (int64_t)i];
        ret_lengths[i] = l->with_keys && field == 0 ? codec_items(&l->key, entry->key_bytes)
                                                    : codec_items(&l->value, entry->value_bytes);
    }
    return 0;
}

static void close_source(struct leat_source *source)
{
    struct lmdb_source *l = (struct lmdb_source *)source;
    codec_done(&l->key);
    codec_done(&l->value);
    if (l->txn)
        mdb_txn_abort(l->txn);
    if (l->env)
        mdb_env_close(l->env);
    mem_free(l->entries);
    mem_free(l->path);
}

static const struct source_ops with_lengths = {
    .read = read_values, .lengths = find_lengths, .done = close_source};
static const struct source_ops without_lengths = {.read = read_values, .done = close_source};

/* ---- opening -----------------------------------------------------------------------------------
 */
static int refuse(const struct lmdb_source *l, int code, struct leat_err *err)
{
    if (code == MDB_INVALID || code == MDB_VERSION_MISMATCH)
        return err_set(err, -LEAT_E_FOREIGN, "%s is not an LMDB file of this version (%s).",
                       l->path, mdb_strerror(code));
    return err_set(err, code > 0 ? -code : -LEAT_E_CORRUPT, "%s: %s.", l->path, mdb_strerror(code));
}

/* liblmdb would map a file that is shorter than its header declares, and reading a missing page
 * kills the process. */
static int check_size(struct lmdb_source *l, struct leat_err *err)
{
    struct stat info;
    MDB_envinfo env;
    MDB_stat pages;
    int fd, code = mdb_env_get_fd(l->env, &fd);
    if (!code)
        code = mdb_env_info(l->env, &env);
    if (!code)
        code = mdb_env_stat(l->env, &pages);
    if (!code && fstat(fd, &info) < 0)
        code = errno;
    if (code)
        return refuse(l, code, err);
    l->file_bytes = (env.me_last_pgno + 1) * (uint64_t)pages.ms_psize;
    if (env.me_last_pgno >= UINT64_MAX / pages.ms_psize || (uint64_t)info.st_size < l->file_bytes)
        return err_set(err, -LEAT_E_CORRUPT, "%s is cut short: it has %lld bytes, not %llu.",
                       l->path, (long long)info.st_size, (unsigned long long)l->file_bytes);
    return 0;
}

static int open_environment(struct lmdb_source *l, const char *path, struct leat_err *err)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return err_set(err, -errno, "%s: %s.", path, err_text(errno));
    int folder = S_ISDIR(info.st_mode);
    if (!(l->path = folder ? path_join(path, "data.mdb", NULL) : mem_strdup(path)))
        return err_set(err, -ENOMEM, "No memory to open %s.", path);
    if (stat(l->path, &info) == 0 && !S_ISREG(info.st_mode))
        return err_set(err, -LEAT_E_FOREIGN, "%s is not a regular file.", l->path);
    if (!folder && !info.st_size) /* liblmdb would start a new one */
        return refuse(l, MDB_INVALID, err);
    int code = mdb_env_create(&l->env);
    if (!code)
        code = mdb_env_set_maxdbs(l->env, 1);
    if (!code) /* as much as the file has, not what its writer reserved */
        code = mdb_env_set_mapsize(l->env, 1);
    if (!code)
        code = mdb_env_open(l->env, l->path, MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | MDB_NOSUBDIR, 0);
    int failed = code ? refuse(l, code, err) : check_size(l, err);
    if (!failed && (code = mdb_txn_begin(l->env, NULL, MDB_RDONLY, &l->txn)) != 0)
        failed = refuse(l, code, err);
    if (!failed)
        l->txnid = mdb_txn_id(l->txn);
    return failed;
}

static int open_database(struct lmdb_source *l, const char *name, MDB_dbi *ret_dbi,
                         struct leat_err *err)
{
    unsigned flags = 0;
    int code = mdb_dbi_open(l->txn, name, 0, ret_dbi);
    if (code == MDB_NOTFOUND)
        return err_set(err, -LEAT_E_USAGE, "%s has no database named \"%s\".", l->path, name);
    if (code == MDB_INCOMPATIBLE)
        return err_set(err, -LEAT_E_USAGE, "%s: \"%s\" is a key, not a database.", l->path, name);
    if (!code)
        code = mdb_dbi_flags(l->txn, *ret_dbi, &flags);
    if (code)
        return refuse(l, code, err);
    if (flags & MDB_DUPSORT)
        return err_set(err, -LEAT_E_USAGE, "%s has several values for a key (DUPSORT).", l->path);
    return 0;
}

static int is_skipped(const MDB_val *key, const struct leat_lmdb *asked)
{
    for (size_t i = 0; i < asked->skip_count; i++)
        if (asked->skip[i].count == key->mv_size &&
            memcmp(asked->skip[i].bytes, key->mv_data, key->mv_size) == 0)
            return 1;
    return 0;
}

/* The unnamed database holds the named ones beside its values: each in about 48 bytes. */
static int check_value(struct lmdb_source *l, const MDB_val *key, struct leat_err *err)
{
    char name[512];
    MDB_dbi dbi;
    if (key->mv_size >= sizeof name || memchr(key->mv_data, 0, key->mv_size))
        return 0;
    memcpy(name, key->mv_data, key->mv_size);
    name[key->mv_size] = 0;
    if (mdb_dbi_open(l->txn, name, 0, &dbi) != MDB_SUCCESS)
        return 0;
    return err_set(err, -LEAT_E_USAGE,
                   "%s: \"%s\" is a named database, not a value: name it, or leave it out.",
                   l->path, name);
}

static int find_entries(struct lmdb_source *l, const struct leat_lmdb *asked, struct leat_err *err)
{
    enum { DATABASE_BYTES = 48 };
    MDB_cursor *cursor;
    MDB_dbi dbi;
    MDB_val key, value;
    int failed = open_database(l, asked->db, &dbi, err);
    if (failed)
        return failed;
    int code = mdb_cursor_open(l->txn, dbi, &cursor);
    if (code)
        return refuse(l, code, err);
    while (!failed && (code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        if (is_skipped(&key, asked))
            continue;
        if (!asked->db && value.mv_size == DATABASE_BYTES)
            failed = check_value(l, &key, err);
        if (!failed && mem_reserve(&l->entries, &l->capacity, l->count + 1, sizeof *l->entries) < 0)
            failed = err_set(err, -ENOMEM, "No memory for the %zu entries of %s.", l->count + 1,
                             l->path);
        if (!failed)
            l->entries[l->count++] = (struct entry){key.mv_data, value.mv_data,
                                                    (uint32_t)value.mv_size, (uint16_t)key.mv_size};
    }
    mdb_cursor_close(cursor);
    return failed || code == MDB_NOTFOUND ? failed : refuse(l, code, err);
}

static int add_fields(struct lmdb_source *l, const struct leat_lmdb *asked, struct leat_err *err)
{
    const struct entry *first = l->entries;
    int64_t count = (int64_t)l->count;
    char name[300];
    int failed = 0;
    if (!count)
        return err_set(err, -LEAT_E_USAGE, "%s has no values in it.", l->path);
    snprintf(name, sizeof name, "The first value of %.250s", l->path);
    if (asked->key) {
        l->with_keys = 1;
        failed =
            codec_init(&l->key, asked->key, "The first key", first->key, first->key_bytes, err);
        if (!failed)
            failed = codec_add_field(&l->key, &l->base, "key", count, err);
    }
    if (!failed)
        failed = codec_init(&l->value, &asked->value, name, first->value, first->value_bytes, err);
    if (!failed)
        failed = codec_add_field(&l->value, &l->base, "value", count, err);
    if (failed < 0)
        return failed;
    if (!l->value.variable || codec_is_plain(&l->value))
        l->base.ops = &with_lengths;
    l->base.sample_ns = 200 + codec_cost_ns(&l->value, first->value_bytes);
    return 0;
}

int leat_source_lmdb(const struct leat_lmdb *asked, struct leat_source **ret_source,
                     struct leat_err *err)
{
    struct lmdb_source *l = (struct lmdb_source *)source_new(sizeof *l, &without_lengths);
    if (!l)
        return err_set(err, -ENOMEM, "No memory for a source of LMDB values.");
    int failed = open_environment(l, asked->path, err);
    if (!failed)
        failed = find_entries(l, asked, err);
    if (!failed)
        failed = add_fields(l, asked, err);
    if (!failed)
        failed = check_unchanged(l, err);
    if (failed < 0) {
        leat_source_unref(&l->base);
        return failed;
    }
    snprintf(l->base.text, sizeof l->base.text, "lmdb %.100s: %lld samples of ", l->path,
             (long long)l->base.count);
    source_add_fields_text(&l->base);
    *ret_source = &l->base;
    return 0;
}
