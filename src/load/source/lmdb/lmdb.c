/* lmdb.c: the values of an LMDB file, one a sample, in LMDB's order of keys.
 *
 * Fields: "value", and "key" in front of it where it is asked for. Keys that are no samples (a
 * length, a list of keys) are left out: their places are few, are found once by name, and are
 * stepped over when a sample's entry is looked up.
 *
 * Values are always copied, also of variable fields: a writer may use the pages again once the look
 * at the txnid that follows the copy is past.
 */
#include "load/codec/codec.h"
#include "lmdb_tree.h"

#include "base/mem.h"
#include "load/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 64 /* entries that are looked up together */
#define AHEAD 8  /* values whose memory is under way while one is copied */

struct lmdb_source {
    struct leat_source base;
    struct lmdb_tree tree;
    struct codec key, value;
    int with_keys;
    int64_t *skipped; /* owned; numbers of entries that are no samples, ascending */
    size_t skipped_count;
};

/* The entry of a sample. */
static int64_t entry_of(const struct lmdb_source *l, int64_t sample)
{
    for (size_t i = 0; i < l->skipped_count && l->skipped[i] <= sample; i++)
        sample++;
    return sample;
}

/* "data.mdb, key "00000012": the value is …" */
static void report_bad(const struct lmdb_source *l, const struct lmdb_item *item, size_t place,
                       int code, const struct leat_err *why, struct source_report *report)
{
    char text[sizeof why->text], key[64];
    size_t length = strlen(l->tree.file.path), most = 100; /* of a long path the end tells more */
    const char *path = l->tree.file.path + (length > most ? length - most : 0);
    size_t bytes = item->key_bytes < sizeof key - 1 ? item->key_bytes : sizeof key - 1;
    for (size_t i = 0; i < bytes; i++)
        key[i] = item->key[i] >= ' ' && item->key[i] < 127 ? (char)item->key[i] : '?';
    key[bytes] = 0;
    snprintf(text, sizeof text, "%s, key \"%s\": %.300s", path, key, why->text);
    report->bad(report, place, code, text);
}

static uint8_t *place_of(const struct leat_source *source, const struct source_request *request,
                         uint32_t field, size_t i)
{
    uint64_t bytes =
        source->field[field].variable ? sizeof(struct leat_span) : source->field[field].row_bytes;
    return request->places[field] + i * bytes;
}

static void read_item(const struct lmdb_source *l, const struct source_request *request,
                      const struct lmdb_item *item, size_t place, struct source_report *report)
{
    struct leat_err why = {""};
    uint32_t f = 0;
    int failed = 0;
    if (l->with_keys)
        failed = codec_decode(&l->key, item->key, item->key_bytes, 0, request,
                              place_of(&l->base, request, f++, place), &why);
    if (!failed)
        failed = codec_decode(&l->value, item->value, item->value_bytes, 0, request,
                              place_of(&l->base, request, f, place), &why);
    if (failed < 0)
        report_bad(l, item, place, failed, &why, report);
}

static int check_writer(const struct lmdb_source *l, struct leat_err *err)
{
    if (lmdb_tree_is_current(&l->tree))
        return 0;
    return err_set(err, -LEAT_E_CORRUPT,
                   "%s was written to, or cut short, while it was read: its pages may hold "
                   "something else by now. Open it again, or read a copy.",
                   l->tree.file.path);
}

/* The entries of `count` samples, each with a value or, where it is NULL, reported as bad. */
static void find_items(const struct lmdb_source *l, uint64_t extent, const int64_t *samples,
                       size_t count, size_t first_place, struct lmdb_item *ret_items,
                       struct source_report *report)
{
    const struct lmdb_leaf *leaf[BLOCK];
    int64_t entry[BLOCK];
    for (size_t i = 0; i < count; i++) {
        entry[i] = entry_of(l, samples[i]);
        leaf[i] = lmdb_tree_leaf(&l->tree, entry[i]);
    }
    for (size_t i = 0; i < count; i++)
        lmdb_tree_fetch_node(&l->tree, extent, leaf[i], entry[i]);
    for (size_t i = 0; i < count; i++)
        lmdb_tree_fetch_page(&l->tree, extent, leaf[i], entry[i]);
    for (size_t i = 0; i < count; i++) {
        struct leat_err why;
        int bad = lmdb_tree_item(&l->tree, extent, leaf[i], entry[i], &ret_items[i], &why);
        if (bad < 0) {
            ret_items[i] = (struct lmdb_item){0};
            report->bad(report, first_place + i, bad, why.text);
        }
    }
}

static void read_block(const struct lmdb_source *l, uint64_t extent,
                       const struct source_request *request, size_t first, size_t count,
                       struct source_report *report)
{
    struct lmdb_item item[BLOCK];
    find_items(l, extent, request->indices + first, count, first, item, report);
    for (size_t i = 0; i < count && i < AHEAD; i++)
        lmdb_tree_fetch_value(&l->tree, &item[i]);
    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            lmdb_tree_fetch_value(&l->tree, &item[i + AHEAD]);
        if (item[i].value)
            read_item(l, request, &item[i], first + i, report);
    }
}

static int read_values(struct leat_source *source, const struct source_request *request,
                       struct source_report *report, struct leat_err *err)
{
    const struct lmdb_source *l = (const struct lmdb_source *)source;
    uint64_t extent = mapped_file_extent(&l->tree.file);
    int failed = check_writer(l, err);
    if (failed < 0)
        return failed;
    for (size_t first = 0; first < request->count; first += BLOCK) {
        size_t left = request->count - first;
        read_block(l, extent, request, first, left < BLOCK ? left : BLOCK, report);
    }
    return check_writer(l, err);
}

/* Field 0 is the key where there are two. */
static int find_lengths(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                        int64_t *ret_lengths, struct leat_err *err)
{
    const struct lmdb_source *l = (const struct lmdb_source *)source;
    uint64_t extent = mapped_file_extent(&l->tree.file);
    for (size_t i = 0; i < count; i++) {
        struct lmdb_item item;
        int failed = lmdb_tree_at(&l->tree, extent, entry_of(l, first + (int64_t)i), &item, err);
        if (failed < 0)
            return failed;
        ret_lengths[i] = l->with_keys && field == 0 ? codec_items(&l->key, item.key_bytes)
                                                    : codec_items(&l->value, item.value_bytes);
    }
    return check_writer(l, err);
}

static void close_tree(struct leat_source *source)
{
    struct lmdb_source *l = (struct lmdb_source *)source;
    codec_done(&l->key);
    codec_done(&l->value);
    mem_free(l->skipped);
    lmdb_tree_close(&l->tree);
}

static const struct source_ops with_lengths = {
    .read = read_values, .lengths = find_lengths, .done = close_tree};
static const struct source_ops without_lengths = {.read = read_values, .done = close_tree};

/* ---- Opening. */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int find_skipped(struct lmdb_source *l, const struct leat_lmdb *asked, struct leat_err *err)
{
    if (!asked->skip_count || l->tree.integer_keys)
        return 0;
    if (!(l->skipped = mem_alloc_array(asked->skip_count, sizeof *l->skipped)))
        return err_set(err, -ENOMEM, "No memory for the keys to leave out.");
    for (size_t i = 0; i < asked->skip_count; i++) {
        int64_t number;
        int failed =
            lmdb_tree_find(&l->tree, asked->skip[i].bytes, asked->skip[i].count, &number, err);
        if (failed < 0)
            return failed;
        int known = number < 0;
        for (size_t k = 0; k < l->skipped_count; k++)
            known |= l->skipped[k] == number;
        if (!known)
            l->skipped[l->skipped_count++] = number;
    }
    qsort(l->skipped, l->skipped_count, sizeof *l->skipped, ascending);
    return 0;
}

static int add_fields(struct lmdb_source *l, const struct leat_lmdb *asked, struct leat_err *err)
{
    struct lmdb_item first = {0};
    int64_t count = l->tree.entries - (int64_t)l->skipped_count;
    char name[300];
    snprintf(name, sizeof name, "The first value of %.250s", l->tree.file.path);
    if (!count)
        return err_set(err, -LEAT_E_USAGE, "%s has no values in it.", l->tree.file.path);
    int failed = lmdb_tree_at(&l->tree, l->tree.file.bytes, entry_of(l, 0), &first, err);
    if (!failed && asked->key) {
        l->with_keys = 1;
        failed = codec_init(&l->key, asked->key, "The first key", first.key, first.key_bytes, err);
        if (!failed)
            failed = codec_add_field(&l->key, &l->base, "key", count, err);
    }
    if (!failed)
        failed = codec_init(&l->value, &asked->value, name, first.value, first.value_bytes, err);
    if (!failed)
        failed = codec_add_field(&l->value, &l->base, "value", count, err);
    if (failed < 0)
        return failed;
    if (!l->value.variable || codec_is_plain(&l->value))
        l->base.ops = &with_lengths;
    l->base.sample_ns = 200 + codec_cost_ns(&l->value, first.value_bytes);
    return 0;
}

int leat_source_lmdb(const struct leat_lmdb *asked, struct leat_source **ret_source,
                     struct leat_err *err)
{
    struct lmdb_source *l = (struct lmdb_source *)source_new(sizeof *l, &without_lengths);
    if (!l)
        return err_set(err, -ENOMEM, "No memory for a source of LMDB values.");
    int failed = lmdb_tree_open(&l->tree, asked->path, asked->db, err);
    if (!failed)
        failed = find_skipped(l, asked, err);
    if (!failed)
        failed = add_fields(l, asked, err);
    if (!failed)
        failed = check_writer(l, err);
    if (failed < 0) {
        leat_source_unref(&l->base);
        return failed;
    }
    snprintf(l->base.text, sizeof l->base.text, "lmdb %.100s: %lld samples of ", l->tree.file.path,
             (long long)l->base.count);
    source_add_fields_text(&l->base);
    *ret_source = &l->base;
    return 0;
}
