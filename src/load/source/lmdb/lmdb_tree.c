/* lmdb_tree.c: see lmdb_tree.h. */
#include "lmdb_tree.h"

#include "base/mem.h"
#include "base/path.h"

#include <endian.h>
#include <string.h>
#include <sys/stat.h>

#define HEADER_BYTES   16
#define META_BYTES     136 /* without the header */
#define DATABASE_BYTES 48
#define NODE_BYTES     8
#define MAGIC          0xBEEFC0DEu
#define LINE_BYTES     64
#define FETCH_BYTES    1024 /* as in gather.c */
#define NO_PAGE        UINT64_MAX
#define MOST_DEPTH     32 /* LMDB's own stack is as deep */

enum { BRANCH = 1, LEAF = 2, OVERFLOW = 4, META = 8, KINDS = 0x6f };       /* flags of a page */
enum { BIG = 1, NAMED = 2, DUPLICATES = 4 };                               /* flags of a node */
enum { REVERSE_KEY = 2, DUP_SORT = 4, INTEGER_KEY = 8, DUP_FLAGS = 0x74 }; /* of a database */

static uint32_t get_u16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t get_u32(const uint8_t *at)
{
    return get_u16(at) | get_u16(at + 2) << 16;
}

static uint64_t get_u64(const uint8_t *at)
{
    return get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}

struct database {
    uint32_t flags, depth;
    int64_t entries;
    uint64_t root;
};

static struct database database_at(const uint8_t *at)
{
    return (struct database){.flags = get_u16(at + 4),
                             .depth = get_u16(at + 6),
                             .entries = (int64_t)get_u64(at + 32),
                             .root = get_u64(at + 40)};
}

/* ---- Pages. */

static int damaged(const struct lmdb_tree *tree, uint64_t page, const char *what,
                   struct leat_err *err)
{
    return err_set(err, -LEAT_E_CORRUPT, "%s is damaged: page %llu %s.", tree->file.path,
                   (unsigned long long)page, what);
}

/* The page, when it lies within the extent, is what its number says, and of that kind. */
static const uint8_t *page_at(const struct lmdb_tree *tree, uint64_t extent, uint64_t number,
                              uint32_t kind, struct leat_err *err)
{
    if (number >= tree->pages || number > tree->last_page) {
        damaged(tree, number, "is named, but the file does not reach so far", err);
        return NULL;
    }
    if ((number + 1) * tree->page_bytes > extent) {
        err_set(err, -LEAT_E_CORRUPT, "%s was cut short to %llu bytes while it was in use.",
                tree->file.path, (unsigned long long)extent);
        return NULL;
    }
    const uint8_t *page = tree->file.base + number * tree->page_bytes;
    if (get_u64(page) != number || (get_u16(page + 10) & KINDS) != kind) {
        damaged(tree, number, "is another one than the page before it says", err);
        return NULL;
    }
    return page;
}

/* How many nodes a branch or leaf page has; -1 where the offsets do not fit into it. */
static int64_t nodes_of(const struct lmdb_tree *tree, const uint8_t *page)
{
    uint64_t lower = get_u16(page + 12), upper = get_u16(page + 14);
    if (lower < HEADER_BYTES || lower > upper || upper > tree->page_bytes || lower % 2)
        return -1;
    return (int64_t)(lower - HEADER_BYTES) / 2;
}

/* A node below nodes_of(): its header and key lie within the page. *ret_left: the bytes of the page
 * behind the key. */
static const uint8_t *node_at(const struct lmdb_tree *tree, const uint8_t *page, int64_t number,
                              uint64_t *ret_left)
{
    uint64_t at = get_u16(page + HEADER_BYTES + 2 * number);
    if (at < HEADER_BYTES || at + NODE_BYTES > tree->page_bytes)
        return NULL;
    uint64_t left = tree->page_bytes - at - NODE_BYTES, key = get_u16(page + at + 6);
    if (key > left)
        return NULL;
    *ret_left = left - key;
    return page + at;
}

/* The data on overflow pages that begin with that one. */
static int find_big(const struct lmdb_tree *tree, uint64_t extent, uint64_t number, uint64_t bytes,
                    const uint8_t **ret_data, struct leat_err *err)
{
    const uint8_t *page = page_at(tree, extent, number, OVERFLOW, err);
    if (!page)
        return -LEAT_E_CORRUPT;
    uint64_t pages = get_u32(page + 12);
    if (pages > tree->pages - number || pages * tree->page_bytes < HEADER_BYTES + bytes)
        return damaged(tree, number, "begins a value that is longer than its pages", err);
    if (number * tree->page_bytes + HEADER_BYTES + bytes > extent)
        return err_set(err, -LEAT_E_CORRUPT, "%s was cut short to %llu bytes while it was in use.",
                       tree->file.path, (unsigned long long)extent);
    *ret_data = page + HEADER_BYTES;
    return 0;
}

/* Key and value of a node of a leaf page; *ret_flags: of the node. */
static int read_node(const struct lmdb_tree *tree, uint64_t extent, const uint8_t *page,
                     int64_t number, struct lmdb_item *ret_item, uint32_t *ret_flags,
                     struct leat_err *err)
{
    uint64_t left;
    const uint8_t *node = node_at(tree, page, number, &left);
    if (!node)
        return damaged(tree, get_u64(page), "has an entry that lies beyond it", err);
    struct lmdb_item item = {
        .key = node + NODE_BYTES, .key_bytes = get_u16(node + 6), .value_bytes = get_u32(node)};
    *ret_flags = get_u16(node + 4);
    item.value = item.key + item.key_bytes;
    uint64_t here = *ret_flags & BIG ? 8 : item.value_bytes;
    if (here > left)
        return damaged(tree, get_u64(page), "has a value that reaches beyond it", err);
    int failed = 0;
    if (*ret_flags & BIG)
        failed = find_big(tree, extent, get_u64(item.value), item.value_bytes, &item.value, err);
    if (!failed)
        *ret_item = item;
    return failed;
}

/* ---- Opening: the leaves in order. */

static int add_leaf(struct lmdb_tree *tree, uint64_t number, const uint8_t *page,
                    struct leat_err *err)
{
    int64_t nodes = nodes_of(tree, page);
    if (nodes < 1)
        return damaged(tree, number, "has no entries that fit into it", err);
    if (mem_reserve(&tree->leaves, &tree->leaf_capacity, tree->leaf_count + 1,
                    sizeof *tree->leaves) < 0)
        return err_set(err, -ENOMEM, "No memory for the table of %s.", tree->file.path);
    tree->leaves[tree->leaf_count++] = (struct lmdb_leaf){number, tree->entries};
    tree->entries += nodes;
    return 0;
}

/* Depth first, from the left. All leaves lie at depth 1; no page is visited twice in a sound tree,
 * so more visits than pages are a tree that runs into itself. */
static int walk(struct lmdb_tree *tree, uint64_t number, uint32_t depth, uint64_t *visits,
                struct leat_err *err)
{
    if (++*visits > tree->pages)
        return damaged(tree, number, "is reached by more than one way", err);
    const uint8_t *page = page_at(tree, tree->file.bytes, number, depth == 1 ? LEAF : BRANCH, err);
    if (!page)
        return -LEAT_E_CORRUPT;
    if (depth == 1)
        return add_leaf(tree, number, page, err);
    int64_t nodes = nodes_of(tree, page);
    if (nodes < 1)
        return damaged(tree, number, "has no entries that fit into it", err);
    for (int64_t i = 0; i < nodes; i++) {
        uint64_t left;
        const uint8_t *node = node_at(tree, page, i, &left);
        if (!node)
            return damaged(tree, number, "has an entry that lies beyond it", err);
        uint64_t below = get_u32(node) | (uint64_t)get_u16(node + 4) << 32;
        int failed = walk(tree, below, depth - 1, visits, err);
        if (failed < 0)
            return failed;
    }
    return 0;
}

static int walk_database(struct lmdb_tree *tree, const struct database *d, struct leat_err *err)
{
    uint64_t visits = 0;
    if (d->flags & DUP_FLAGS)
        return err_set(err, -LEAT_E_USAGE,
                       "%s has several values for a key (DUPSORT): which of them a sample is, is "
                       "not known.",
                       tree->file.path);
    if (d->flags & REVERSE_KEY)
        return err_set(err, -LEAT_E_USAGE, "%s has keys that are compared from their end.",
                       tree->file.path);
    tree->integer_keys = (d->flags & INTEGER_KEY) != 0;
    tree->entries = 0;
    tree->leaf_count = 0;
    if (d->root == NO_PAGE && !d->entries)
        return 0;
    if (!d->depth || d->depth > MOST_DEPTH)
        return err_set(err, -LEAT_E_CORRUPT, "%s is damaged: its tree is %u pages deep.",
                       tree->file.path, d->depth);
    int failed = walk(tree, d->root, d->depth, &visits, err);
    if (!failed && tree->entries != d->entries)
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s is damaged: it says that it has %lld entries, its pages have %lld.",
                       tree->file.path, (long long)d->entries, (long long)tree->entries);
    return failed;
}

/* The meta at that page, when it is one; `page_bytes` 0: of any page size. */
static const uint8_t *meta_at(const struct lmdb_tree *tree, uint64_t at, uint64_t page_bytes)
{
    if (tree->file.bytes < HEADER_BYTES + META_BYTES ||
        at > tree->file.bytes - HEADER_BYTES - META_BYTES)
        return NULL;
    const uint8_t *page = tree->file.base + at, *meta = page + HEADER_BYTES;
    if (!(get_u16(page + 10) & META) || get_u32(meta) != MAGIC || get_u32(meta + 4) != 1)
        return NULL;
    uint64_t size = get_u32(meta + 24);
    if (size < 256 || size > 65536 || size & (size - 1) || (page_bytes && size != page_bytes))
        return NULL;
    return meta;
}

/* The txnid of a meta changes while a writer is at work; it is one aligned number. */
static uint64_t txnid_of(const uint8_t *meta)
{
    return le64toh(__atomic_load_n((const uint64_t *)(const void *)(meta + 128), __ATOMIC_ACQUIRE));
}

static int open_meta(struct lmdb_tree *tree, struct database *ret_main, struct leat_err *err)
{
    const uint8_t *meta = meta_at(tree, 0, 0), *other = NULL;
    if (meta) {
        other = meta_at(tree, get_u32(meta + 24), get_u32(meta + 24));
    } else { /* the first one is damaged: the second lies one page further, whatever that is */
        for (uint64_t size = 256; size <= 65536 && !other; size *= 2)
            other = meta_at(tree, size, size);
    }
    if (!meta || (other && txnid_of(other) > txnid_of(meta)))
        meta = other;
    if (!meta)
        return err_set(err, -LEAT_E_FOREIGN,
                       "%s is not an LMDB file of version 1, as 64-bit machines write it.",
                       tree->file.path);
    tree->txnid = txnid_of(meta);
    tree->page_bytes = get_u32(meta + 24);
    tree->pages = tree->file.bytes / tree->page_bytes;
    tree->last_page = get_u64(meta + 120);
    *ret_main = database_at(meta + 24 + DATABASE_BYTES);
    if (tree->last_page >= tree->pages)
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s is cut short: it has %llu pages, its last one is number %llu.",
                       tree->file.path, (unsigned long long)tree->pages,
                       (unsigned long long)tree->last_page);
    return 0;
}

/* The record of a named database, which is an entry of the unnamed one. */
static int open_named(struct lmdb_tree *tree, const char *db, struct leat_err *err)
{
    int64_t number;
    uint32_t flags;
    struct lmdb_item item;
    int failed =
        tree->integer_keys ? (number = -1, 0) : lmdb_tree_find(tree, db, strlen(db), &number, err);
    if (failed < 0)
        return failed;
    if (number < 0)
        return err_set(err, -LEAT_E_MISSING, "%s has no database named \"%s\".", tree->file.path,
                       db);
    size_t leaf = tree->leaf_count - 1;
    while (tree->leaves[leaf].first > number)
        leaf--;
    const uint8_t *page = page_at(tree, tree->file.bytes, tree->leaves[leaf].page, LEAF, err);
    if (!page)
        return -LEAT_E_CORRUPT;
    failed = read_node(tree, tree->file.bytes, page, number - tree->leaves[leaf].first, &item,
                       &flags, err);
    if (failed < 0)
        return failed;
    if (!(flags & NAMED) || flags & DUPLICATES || item.value_bytes != DATABASE_BYTES)
        return err_set(err, -LEAT_E_USAGE, "\"%s\" of %s is a key, not a database.", db,
                       tree->file.path);
    struct database d = database_at(item.value);
    return walk_database(tree, &d, err);
}

static int open_file(struct mapped_file *file, const char *path, struct leat_err *err)
{
    struct stat info;
    if (stat(path, &info) < 0 || !S_ISDIR(info.st_mode))
        return mapped_file_open(file, path, err);
    char *inside = path_join(path, "data.mdb", NULL);
    if (!inside)
        return err_set(err, -ENOMEM, "No memory to open %s.", path);
    int failed = mapped_file_open(file, inside, err);
    mem_free(inside);
    return failed;
}

int lmdb_tree_open(struct lmdb_tree *tree, const char *path, const char *db, struct leat_err *err)
{
    struct database unnamed;
    *tree = (struct lmdb_tree){.file = {.fd = -1}};
    int failed = open_file(&tree->file, path, err);
    if (!failed)
        failed = open_meta(tree, &unnamed, err);
    if (!failed)
        failed = walk_database(tree, &unnamed, err);
    if (!failed && db)
        failed = open_named(tree, db, err);
    if (!failed && !lmdb_tree_is_current(tree))
        failed = err_set(err, -LEAT_E_CORRUPT,
                         "%s was written to while it was opened; open it again, or read a copy.",
                         tree->file.path);
    if (failed < 0)
        lmdb_tree_close(tree);
    return failed;
}

void lmdb_tree_close(struct lmdb_tree *tree)
{
    mem_free(tree->leaves);
    mapped_file_close(&tree->file);
    *tree = (struct lmdb_tree){.file = {.fd = -1}};
}

/* ---- Reading. */

int lmdb_tree_is_current(const struct lmdb_tree *tree)
{
    /* What was read before comes from before this look. TSan has no fences, and does not see the
     * writer, which is another process. */
#if !defined(__SANITIZE_THREAD__)
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
    if (mapped_file_extent(&tree->file) < 2 * tree->page_bytes)
        return 0;
    for (uint64_t i = 0; i < 2; i++) {
        const uint8_t *meta = meta_at(tree, i * tree->page_bytes, tree->page_bytes);
        if (meta && txnid_of(meta) > tree->txnid)
            return 0;
    }
    return 1;
}

/* The last leaf that begins at or before the entry. Which half it is in is not to be foreseen, so
 * the compiler is to choose it without a branch. */
static const struct lmdb_leaf *leaf_of(const struct lmdb_tree *tree, int64_t number)
{
    const struct lmdb_leaf *leaf = tree->leaves;
    for (size_t left = tree->leaf_count; left > 1;) {
        size_t half = left / 2;
        leaf += leaf[half].first <= number ? half : 0;
        left -= half;
    }
    return leaf;
}

const struct lmdb_leaf *lmdb_tree_leaf(const struct lmdb_tree *tree, int64_t number)
{
    const struct lmdb_leaf *leaf = leaf_of(tree, number);
    const uint8_t *page = tree->file.base + leaf->page * tree->page_bytes;
    __builtin_prefetch(page);
    __builtin_prefetch(page + HEADER_BYTES + 2 * (number - leaf->first));
    return leaf;
}

void lmdb_tree_fetch_node(const struct lmdb_tree *tree, uint64_t extent,
                          const struct lmdb_leaf *leaf, int64_t number)
{
    const uint8_t *page = page_at(tree, extent, leaf->page, LEAF, NULL);
    if (page && number - leaf->first < nodes_of(tree, page))
        __builtin_prefetch(page + get_u16(page + HEADER_BYTES + 2 * (number - leaf->first)));
}

void lmdb_tree_fetch_page(const struct lmdb_tree *tree, uint64_t extent,
                          const struct lmdb_leaf *leaf, int64_t number)
{
    uint64_t left;
    const uint8_t *page = page_at(tree, extent, leaf->page, LEAF, NULL);
    if (!page || number - leaf->first >= nodes_of(tree, page))
        return;
    const uint8_t *node = node_at(tree, page, number - leaf->first, &left);
    if (!node || !(get_u16(node + 4) & BIG) || left < 8)
        return; /* it lies on the leaf */
    uint64_t big = get_u64(node + NODE_BYTES + get_u16(node + 6));
    if (big < tree->pages)
        __builtin_prefetch(tree->file.base + big * tree->page_bytes);
}

int lmdb_tree_item(const struct lmdb_tree *tree, uint64_t extent, const struct lmdb_leaf *leaf,
                   int64_t number, struct lmdb_item *ret_item, struct leat_err *err)
{
    uint32_t flags;
    const uint8_t *page = page_at(tree, extent, leaf->page, LEAF, err);
    if (!page)
        return -LEAT_E_CORRUPT;
    if (number - leaf->first >= nodes_of(tree, page)) /* it had more when it was opened */
        return damaged(tree, leaf->page, "has fewer entries than when it was opened", err);
    int failed = read_node(tree, extent, page, number - leaf->first, ret_item, &flags, err);
    if (!failed && flags & (NAMED | DUPLICATES))
        return err_set(
            err, -LEAT_E_USAGE,
            "%s: entry \"%.*s\" is a named database, not a value; say which one is meant "
            "with db=.",
            tree->file.path, (int)(ret_item->key_bytes < 64 ? ret_item->key_bytes : 64),
            (const char *)ret_item->key);
    return failed;
}

int lmdb_tree_at(const struct lmdb_tree *tree, uint64_t extent, int64_t number,
                 struct lmdb_item *ret_item, struct leat_err *err)
{
    return lmdb_tree_item(tree, extent, leaf_of(tree, number), number, ret_item, err);
}

/* The first lines of the value and one of the page after it: the hardware goes on alone within a
 * page, but the walk to another page it has not seen takes as long as a trip to memory. */
void lmdb_tree_fetch_value(const struct lmdb_tree *tree, const struct lmdb_item *item)
{
    for (size_t at = 0; at < FETCH_BYTES && at < item->value_bytes; at += LINE_BYTES)
        __builtin_prefetch(item->value + at);
    if (item->value_bytes > tree->page_bytes - HEADER_BYTES)
        __builtin_prefetch(item->value + tree->page_bytes - HEADER_BYTES);
}

/* As LMDB compares keys: bytes, then lengths. */
static int compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

int lmdb_tree_find(const struct lmdb_tree *tree, const void *key, size_t bytes, int64_t *ret_number,
                   struct leat_err *err)
{
    int64_t low = 0, high = tree->entries;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const struct lmdb_leaf *leaf = leaf_of(tree, middle);
        uint64_t left;
        const uint8_t *page = page_at(tree, tree->file.bytes, leaf->page, LEAF, err);
        if (!page)
            return -LEAT_E_CORRUPT;
        const uint8_t *node = middle - leaf->first < nodes_of(tree, page)
                                  ? node_at(tree, page, middle - leaf->first, &left)
                                  : NULL;
        if (!node)
            return damaged(tree, leaf->page, "has an entry that lies beyond it", err);
        int order = compare(node + NODE_BYTES, get_u16(node + 6), key, bytes);
        if (order == 0) {
            *ret_number = middle;
            return 0;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_number = -1;
    return 0;
}
