/* lmdb_tree.h: an LMDB file, read without the library that wrote it.
 *
 * liblmdb trusts its files: a damaged one ends the process that opens it. So this is a reader of
 * the format (data version 1, as all of LMDB 0.9 writes on 64-bit machines of little endian) that
 * checks every number before it follows it. Nothing is locked, nothing is written: files on
 * read-only media are fine.
 *
 *     page 0     page 1     page 2 … last                       all of one size, 4096 mostly
 *     meta       meta       branch, leaf, overflow, free
 *
 *     meta       header, magic BEEFC0DE, version 1, address (8), size of the map (8),
 *                two databases of 48 bytes (free pages; the unnamed one), last page (8), txnid (8)
 *     database   pad (4; of the first: the page size), flags (2), depth (2), branch, leaf and
 *                overflow pages (8 each), entries (8), root (8)
 *     header     page number (8), pad (2), flags (2), lower (2), upper (2)
 *                in an overflow page: the number of pages (4) in place of lower and upper
 *
 *     branch     | header | offsets of nodes (2 each) → lower |   free   | upper → nodes |
 *     or leaf
 *     node       branch: page number (6), size of key (2), key
 *                leaf:   size of data (4), flags (2), size of key (2), key, data
 *                        flags & 1: the data is the number (8) of the first of some overflow pages
 *                        flags & 2: the data is the 48 bytes of a named database
 *     overflow   | header | data, going on through the pages that follow |
 *
 * A writer puts its pages where no tree of the newest meta has any, then writes the older one of
 * the two metas with the next txnid. So the tree of a meta is whole as long as that one is the
 * newest; after that, its pages may be used again. lmdb_tree_is_current() says which of the two it
 * is, and what was read before it said yes is what the writer of that txnid wrote.
 *
 * LMDB has no checksums: damage inside of a key or a value cannot be seen by anybody. Damage to
 * what holds the tree together is either seen here, or leads to other bytes of the same file.
 *
 * Opening reads the branch pages, and of each leaf page the header, for the number of its keys. Of
 * that 16 bytes for each leaf page are kept: some 160 for a thousand values of 4 kB, which lie on
 * overflow pages; 4 for each thousand bytes of values that lie on the leaf pages themselves.
 */
#ifndef LEAT_LOAD_SOURCE_LMDB_TREE_H
#define LEAT_LOAD_SOURCE_LMDB_TREE_H

#include "load/source/array/mapped_file.h"

#include <stddef.h>

struct lmdb_leaf {
    uint64_t page;
    int64_t first; /* keys on the leaves before it */
};

struct lmdb_tree {
    struct mapped_file file;
    uint64_t page_bytes;
    uint64_t pages; /* whole ones in the file, when it was opened */
    uint64_t txnid;
    uint64_t last_page;
    struct lmdb_leaf *leaves; /* owned */
    size_t leaf_count, leaf_capacity;
    int64_t entries;
    int integer_keys; /* keys are numbers of 4 or 8 bytes, ordered as such */
};

struct lmdb_item {
    const uint8_t *key, *value; /* within the file */
    uint64_t key_bytes, value_bytes;
};

/* `path`: the folder with data.mdb, or the file itself. `db`: a named database; NULL: the unnamed
 * one. On failure nothing is left to close. */
int lmdb_tree_open(struct lmdb_tree *tree, const char *path, const char *db, struct leat_err *err);
void lmdb_tree_close(struct lmdb_tree *tree); /* also of zeros */

/* Whether no writer has ended a transaction since the tree was opened. */
int lmdb_tree_is_current(const struct lmdb_tree *tree);

/* Key and value of entry `number`, which is below `entries`, in LMDB's order. `extent`: how many
 * bytes of the file may be read. The sentence begins with the path. */
int lmdb_tree_at(const struct lmdb_tree *tree, uint64_t extent, int64_t number,
                 struct lmdb_item *ret_item, struct leat_err *err);

/* The same step by step, for who reads many: each step has the memory brought near that the next
 * one looks at, so who takes one step for all of them before the next does not wait. The leaf that
 * entry `number` is on; then its node and the page that its value begins on, of which nothing is
 * said where they are damaged; then what lmdb_tree_at() does; then the value, before it is copied.
 */
const struct lmdb_leaf *lmdb_tree_leaf(const struct lmdb_tree *tree, int64_t number);
void lmdb_tree_fetch_node(const struct lmdb_tree *tree, uint64_t extent,
                          const struct lmdb_leaf *leaf, int64_t number);
void lmdb_tree_fetch_page(const struct lmdb_tree *tree, uint64_t extent,
                          const struct lmdb_leaf *leaf, int64_t number);
int lmdb_tree_item(const struct lmdb_tree *tree, uint64_t extent, const struct lmdb_leaf *leaf,
                   int64_t number, struct lmdb_item *ret_item, struct leat_err *err);
void lmdb_tree_fetch_value(const struct lmdb_tree *tree, const struct lmdb_item *item);

/* The number of a key; -1: it is not there. A damaged page fails. Not for integer keys. */
int lmdb_tree_find(const struct lmdb_tree *tree, const void *key, size_t bytes, int64_t *ret_number,
                   struct leat_err *err);

#endif
