/* tar_index.h: where the samples of one shard lie.
 *
 * As in WebDataset, the members of a sample are neighbours and share a key: the name with its
 * folder up to the first dot of the base name. What follows the dot, in lower case, is the
 * extension, which names the field.
 *
 *     train/0007.JPG       key "train/0007", extension "jpg"
 *     train/0007.seg.png   key "train/0007", extension "seg.png"
 *
 * Left out are directories, links, names without a dot, names that begin with one, and everything
 * named __like_this__, or below a first folder of such a name.
 *
 * A sample takes 4 bytes and 8 per field: offsets are counted in blocks of 512 bytes, sizes have 32
 * bits, and the key is read from the header when it is asked for. So a shard is smaller than 2 TiB
 * and a member smaller than 4 GiB.
 */
#ifndef LEAT_LOAD_SOURCE_TAR_INDEX_H
#define LEAT_LOAD_SOURCE_TAR_INDEX_H

#include "leat/loader.h"

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct tar_walk;

#define TAR_KEY_BYTES 4096 /* longer names are refused */

/* The data of a member; block 0, where a header always is: the sample lacks it. */
struct tar_part {
    uint32_t block, bytes;
};

struct tar_index {
    uint32_t fields;
    size_t count;
    uint32_t *starts;       /* of each sample, in blocks: its first header */
    struct tar_part *parts; /* `fields` of each sample */
    size_t starts_capacity, parts_capacity;
};

/* The extensions to find, and what to do with samples that lack one. */
struct tar_wanted {
    const char *extensions[LEAT_MAX_FIELDS]; /* in lower case */
    uint32_t fields;
    int skip_missing; /* leave such samples out of the index */
};

/* Of an archive of `bytes` at `base`; `path` is for messages. A member that is there twice is an
 * error, as in WebDataset. On failure nothing is left to free. */
int tar_index_parse(struct tar_index *index, const char *path, const uint8_t *base, uint64_t bytes,
                    const struct tar_wanted *wanted, struct leat_err *err);
void tar_index_done(struct tar_index *index); /* also of zeros */

/* The extensions of the first sample, in the order of its members; returns their number, 0 when the
 * archive has no sample. */
int tar_index_first(const char *path, const uint8_t *base, uint64_t bytes,
                    char ret_extensions[LEAT_MAX_FIELDS][LEAT_NAME_BYTES], struct leat_err *err);

/* The key of the sample whose first header is at walk->at; returns its length. It lies in the
 * archive, or in walk->joined. */
int tar_index_key(struct tar_walk *walk, const char **ret_key, struct leat_err *err);

#endif
