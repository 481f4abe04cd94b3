/* proc_text.h: reading the small text files of /proc, /sys and cgroups.
 *
 * What a process may write into these files (its name, its arguments, a cgroup's name) is foreign
 * text; so is everything under a recorded root. The readers below therefore never read beyond the
 * NUL that proc_text_read puts after the bytes, and a number that is missing, negative where it
 * cannot be, or too large for its type is -1: unknown, never a wrong figure.
 */
#ifndef LEAT_BASE_PROC_TEXT_H
#define LEAT_BASE_PROC_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens the folder `path` (absolute, as the machine sees it) under `root`. A descriptor or -errno.
 */
int proc_text_open_dir(const char *root, const char *path);

/* Reads the file `name` in the folder `dir_fd` (or under the working folder with AT_FDCWD) into
 * `buffer` and ends it with a NUL. What does not fit is cut off. Returns the count of bytes, which
 * may be 0, or -errno. */
ssize_t proc_text_read(int dir_fd, const char *name, char *buffer, size_t bytes);
/* The same for `path` under `root`. */
ssize_t proc_text_read_at(const char *root, const char *path, char *buffer, size_t bytes);

/* A number of at least 0 at *at, after any blanks and tabs; *at moves behind it. -1 when there is
 * none (and *at stays) or when it does not fit (and *at moves). */
int64_t proc_text_number(const char **at);

/* The number behind `key` at the start of a line: "MemTotal:" in meminfo, "pswpin" in vmstat. The
 * key ends with its colon or "=", or a blank or tab follows it. -1 when absent. */
int64_t proc_text_field(const char *text, const char *key);

/* a * b, -1 when either is unknown (negative) or the product overflows. */
int64_t proc_text_scale(int64_t a, int64_t b);
/* a + b, by the same rule. */
int64_t proc_text_sum(int64_t a, int64_t b);

#endif
