/* mapped_file.h: a file seen as memory, and the care that takes.
 *
 * Only regular files are mapped. The size is looked up again before each read of some samples: a
 * file that was cut short meanwhile gives bad samples, not a signal, and not the zeros that lie
 * between its new end and the end of that page.
 */
#ifndef LEAT_LOAD_SOURCE_MAPPED_FILE_H
#define LEAT_LOAD_SOURCE_MAPPED_FILE_H

#include "base/err.h"

#include <stdint.h>

struct mapped_file {
    char *path; /* owned */
    int fd;
    const uint8_t *base;
    uint64_t bytes; /* when it was opened */
    uint64_t device, inode;
};

/* An empty file is mapped as no bytes. On failure nothing is left to close. */
int mapped_file_open(struct mapped_file *file, const char *path, struct leat_err *err);
/* A file that is open already; takes the descriptor, also on failure. `path` is for sentences. */
int mapped_file_take(struct mapped_file *file, int fd, const char *path, struct leat_err *err);
void mapped_file_close(struct mapped_file *file); /* also after open failed, or of zeros */

/* Closes the descriptor and keeps the map, for whoever has more files than descriptors. From then
 * on the size is looked up by the path, as long as that is the same file. */
void mapped_file_close_descriptor(struct mapped_file *file);

/* How many bytes may be read now: `bytes`, or fewer where the file became shorter. */
uint64_t mapped_file_extent(const struct mapped_file *file);

#endif
