/* fuzz_lmdb.c: any bytes as an LMDB file. What is let through is read to its last entry: a refusal
 * has a sentence, and keys and values lie within the file. */
#include "load/source/lmdb/lmdb_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at(const struct lmdb_tree *tree, const uint8_t *bytes, uint64_t count)
{
    const uint8_t *end = tree->file.base + tree->file.bytes;
    if (bytes < tree->file.base || bytes > end || count > (uint64_t)(end - bytes))
        abort();
    uint8_t *copy = malloc(count + 1);
    if (copy)
        memcpy(copy, bytes, count);
    free(copy);
}

static void read_all(const struct lmdb_tree *tree)
{
    struct leat_err err;
    for (int64_t i = 0; i < tree->entries; i++) {
        struct lmdb_item item;
        err.text[0] = 0;
        const struct lmdb_leaf *leaf = lmdb_tree_leaf(tree, i);
        lmdb_tree_fetch_node(tree, tree->file.bytes, leaf, i);
        lmdb_tree_fetch_page(tree, tree->file.bytes, leaf, i);
        if (lmdb_tree_item(tree, tree->file.bytes, leaf, i, &item, &err) == 0) {
            lmdb_tree_fetch_value(tree, &item);
            look_at(tree, item.key, item.key_bytes);
            look_at(tree, item.value, item.value_bytes);
        } else if (!*err.text) {
            abort();
        }
    }
    int64_t number;
    if (!tree->integer_keys && lmdb_tree_find(tree, "00000003", 8, &number, &err) == 0 &&
        number >= tree->entries)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {NULL, "first", "numbered", "pairs"};
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct lmdb_tree tree;
        struct leat_err err = {""};
        if (lmdb_tree_open(&tree, path, names[i], &err) == 0) {
            read_all(&tree);
            lmdb_tree_close(&tree);
        } else if (!*err.text) {
            abort();
        }
    }
    close(fd);
    return 0;
}
