/* shard_file.h: a shard as a plain local file, mapped, wherever it came from.
 *
 *     plain, local              mapped where it lies
 *     gz, zstd, http, https, s3 ──►  a local copy, decompressed while it comes  ──►  mapped
 *
 * The copy lies in the cache folder where one is given, to be found there the next time; else in a
 * temporary file that has no name and goes with the source.
 *
 *     FOLDER/NAME-0123456789abcdef.tar         a whole copy
 *     FOLDER/NAME-0123456789abcdef.tar.part    one that is being made, locked by who makes it
 *
 * The number is that of the address, or of the path, size and time of a local file. A copy gets its
 * name only by shard_file_keep(), after its headers were read to their end. So a process that is
 * killed leaves a .part, which the next one begins anew; and of several that want the same copy one
 * makes it, and the others wait. A holder of a lock never waits for another: none waits forever.
 *
 * That the file behind an address has changed is not noticed: then empty the folder.
 */
#ifndef LEAT_LOAD_SOURCE_SHARD_FILE_H
#define LEAT_LOAD_SOURCE_SHARD_FILE_H

#include "load/source/array/mapped_file.h"

#include <stdatomic.h>

/* What all shards of a source share. */
struct shard_cache {
    const char *folder;   /* NULL: temporary files */
    uint64_t most_bytes;  /* of all copies together; 0: no limit but the disk's */
    const char *endpoint; /* see fetch.h */
    int timeout_s, tries; /* of one address */
    atomic_ullong bytes;  /* of all copies */
    atomic_int stop;      /* gives up with -ECANCELED */
};

struct shard_file {
    struct mapped_file file;
    char *part, *name; /* owned; of a copy that is not kept yet */
};

int shard_file_open(struct shard_file *shard, const char *path, struct shard_cache *cache,
                    struct leat_err *err);
/* The copy is a good one: others may find it. */
int shard_file_keep(struct shard_file *shard, struct leat_err *err);
void shard_file_close(struct shard_file *shard); /* also of zeros; removes what was not kept */

#endif
