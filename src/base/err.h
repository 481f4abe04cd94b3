/* err.h: how a failure is reported.
 *
 * Library code never prints and never exits. A function that can fail returns 0 or a count on
 * success and a negative code on failure: a negated errno, or one of our own codes below. Where
 * the reader of the message needs to know *which* thing failed, the function also takes a
 * `struct leat_err *` (may be NULL) and writes one full sentence that names the object (path, pid,
 * row), what is wrong, and what to do, if anything.
 */
#ifndef LEAT_BASE_ERR_H
#define LEAT_BASE_ERR_H

#include "leat/error.h" /* the codes and struct leat_err */

#include <errno.h>

/* Writes the sentence and returns `code` unchanged, for `return err_set(err, -EIO, ...)`. A NULL
 * err is fine. */
int err_set(struct leat_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The plain text of a code of ours or of an errno, either sign. Never NULL. */
const char *err_text(int code);

#endif
