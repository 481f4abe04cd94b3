/* mapped_file.h: a file mapped into memory.
 *
 * Only regular files are mapped. The size is checked again before each read of some samples: a file
 * that was cut short gives bad samples, not SIGBUS, nor the zeros between its new end and the end
 * of the page.
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
/* Maps an open file; takes the descriptor, also on failure. `path` is for messages. */
int mapped_file_take(struct mapped_file *file, int fd, const char *path, struct leat_err *err);
void mapped_file_close(struct mapped_file *file); /* also of zeros and after a failed open */

/* Closes the descriptor and keeps the mapping, for sources of more files than descriptors. From
 * then on the size is looked up by the path, as long as it is the same file. */
void mapped_file_close_descriptor(struct mapped_file *file);

/* Bytes that may be read now: `bytes`, or less if the file became shorter. */
uint64_t mapped_file_extent(const struct mapped_file *file);

#endif
