/* path.h: files and folders. Whole files are read with a limit and written by rename. */
#ifndef LEAT_BASE_PATH_H
#define LEAT_BASE_PATH_H

#include "base/err.h"

#include <stddef.h>

/* "a/b" from parts, ended by NULL; owned by the caller, NULL when out of memory. */
char *path_join(const char *first, ...) __attribute__((sentinel));

/* Makes the folder and its parents (0700 for those it makes). An existing folder is fine. */
int path_make_dirs(const char *path, struct leat_err *err);

/* The file with a NUL after its `ret_bytes` bytes. A file above `most_bytes` gives -EFBIG. Works
 * for /proc files, whose size is not known beforehand. */
int path_read_file(const char *path, size_t most_bytes, char **ret_text, size_t *ret_bytes,
                   struct leat_err *err);

/* Writes `path`.tmp, syncs it, renames it over `path`. On failure the temporary file is removed and
 * an existing `path` is untouched. */
int path_write_file(const char *path, const void *bytes, size_t count, struct leat_err *err);

/* The folder for files that are removed with the run: TMPDIR if it is an absolute path, else /tmp.
 */
const char *path_temporary(void);

/* Makes a new folder `leat-<name>-XXXXXX` (0700) there, or in /tmp where that fails. *ret_path is
 * the caller's to mem_free. */
int path_make_temporary(const char *name, char **ret_path);

int path_exists(const char *path); /* 1 or 0; 1 also for a dangling link */

#endif
