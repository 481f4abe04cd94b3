/* mapped_file.h: a file mapped into memory.
 *
 * Only regular files are mapped. A source takes mapped_file_extent() before and after it copies
 * some samples, and copies again when it became less. So samples of a file that was cut short are
 * bad, also when it is cut while they are copied: there is no SIGBUS, and no zeros from beyond the
 * new end.
 *
 * The first access to a page that cannot be read (the file was cut, or the disk failed) raises
 * SIGBUS. A handler of the process maps zeros in place of the page; from then on the file counts
 * as cut there. SIGBUS elsewhere goes to the handler that was there before.
 *
 * What does not hold. A handler for SIGBUS that the program installs later gets the signal instead:
 * the program ends as it decides. Values that a batch shows in the mapping itself, such as
 * documents, are zeros when the file is cut after the batch was read.
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
    struct mapped_range *range; /* of the handler; NULL: nothing is mapped */
};

/* An empty file is mapped as no bytes. On failure nothing is left to close. */
int mapped_file_open(struct mapped_file *file, const char *path, struct leat_err *err);
/* Maps an open file; takes the descriptor, also on failure. `path` is for messages. */
int mapped_file_take(struct mapped_file *file, int fd, const char *path, struct leat_err *err);
void mapped_file_close(struct mapped_file *file); /* also of zeros and after a failed open */

/* Closes the descriptor and keeps the mapping, for sources of more files than descriptors. From
 * then on the size is looked up by the path, as long as it is the same file. */
void mapped_file_close_descriptor(struct mapped_file *file);

/* Bytes that may be read now: `bytes`, or less if the file became shorter or cannot be read. */
uint64_t mapped_file_extent(const struct mapped_file *file);

#endif
