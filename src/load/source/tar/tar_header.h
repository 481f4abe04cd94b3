/* tar_header.h: the members of a tar archive in memory, one after the other, with bounds.
 *
 *     header 512 bytes | data, padded to 512 | header | data | … | two blocks of zeros
 *
 * The checksum of a header is verified. Data has none: changed bytes of a member are not noticed.
 * The first block of zeros ends the archive; an archive without one was cut short.
 *
 * ustar, pax (path, size) and GNU (long names, sizes in base 256) are known, as Python's tarfile
 * and GNU tar write them. A sparse file is refused, since its data is not in one piece; so is a
 * global pax header that gives all members one path or size.
 */
#ifndef LEAT_LOAD_SOURCE_TAR_HEADER_H
#define LEAT_LOAD_SOURCE_TAR_HEADER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512

struct tar_member {
    const char *name; /* not terminated: in the archive, or in the walk until its next step */
    size_t name_bytes;
    int regular;            /* a plain file: not a directory, a link or something else */
    uint64_t start;         /* of the member's first header: of its long name, if it has one */
    uint64_t offset, bytes; /* of its data, which lies within the archive */
};

/* Set path, base and bytes; `at` is where the walk begins, the first header of a member. */
struct tar_walk {
    const char *path; /* for messages */
    const uint8_t *base;
    uint64_t bytes, at;
    char joined[257]; /* prefix, slash and name of a ustar header */
};

/* 1: *ret_member is set. 0: the end of the archive. -LEAT_E_CORRUPT or -LEAT_E_FOREIGN. */
int tar_walk_next(struct tar_walk *walk, struct tar_member *ret_member, struct leat_err *err);

#endif
