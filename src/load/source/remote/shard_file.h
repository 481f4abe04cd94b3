/* shard_file.h: a shard as a plain local file, mapped.
 *
 *     plain, local              mapped as it is
 *     gz, zstd, http, https, s3 ──►  a local copy, decompressed as it arrives  ──►  mapped
 *
 * The copy is kept in the cache folder when there is one, for the next run; else it is a temporary
 * file without a name, which goes with the source.
 *
 *     FOLDER/NAME-0123456789abcdef.tar         a whole copy
 *     FOLDER/NAME-0123456789abcdef.tar.part    one in progress, locked by the process that makes it
 *
 * The number is a hash of the URL, or of the path, size and time of a local file. A copy gets
 * its name by shard_file_keep(), after its headers were read to the end. So a process that is
 * killed leaves a .part, which the next one starts over; of several processes that need the same
 * copy one makes it and the others wait. A process that holds a lock never waits for another lock.
 *
 * A file that has changed behind its address is not noticed: empty the folder.
 */
#ifndef LEAT_LOAD_SOURCE_SHARD_FILE_H
#define LEAT_LOAD_SOURCE_SHARD_FILE_H

#include "load/source/array/mapped_file.h"

#include <stdatomic.h>

/* What all shards of a source share. */
struct shard_cache {
    const char *folder;   /* NULL: temporary files */
    uint64_t most_bytes;  /* of all copies together; 0: no limit but the disk's */
    const char *endpoint; /* see download.h */
    int timeout_s, tries; /* of one address */
    atomic_ullong bytes;  /* of all copies */
    atomic_int stop;      /* not 0: fail with -ECANCELED */
};

struct shard_file {
    struct mapped_file file;
    char *part, *name; /* owned; of a copy that is not kept yet */
};

int shard_file_open(struct shard_file *shard, const char *path, struct shard_cache *cache,
                    struct leat_err *err);
/* Gives the copy its name, after it was checked. */
int shard_file_keep(struct shard_file *shard, struct leat_err *err);
void shard_file_close(struct shard_file *shard); /* also of zeros; removes a copy without a name */

#endif
