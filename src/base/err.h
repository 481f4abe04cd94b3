/* err.h: how a failure is told.
 *
 * Library code never prints and never exits. A function that can fail returns 0 or a count on
 * success and a negative code on failure: a negated errno, or one of our own codes below. Where
 * the reader of the message needs to know *which* thing failed, the function also takes a
 * `struct leat_err *` (may be NULL) and writes one full sentence with the object in it: the path,
 * the pid, the row. The sentence says what is wrong and, where there is one, the way out.
 */
#ifndef LEAT_BASE_ERR_H
#define LEAT_BASE_ERR_H

#include <errno.h>

/* Our own codes, kept clear of errno values (which stay below 4096 in the kernel's ABI). One list
 * makes the enum, the names and the texts. */
#define LEAT_ERRORS(X)                                                                             \
    X(CORRUPT, 4097, "the data is damaged")                                                        \
    X(FOREIGN, 4098, "the file is of another kind")                                                \
    X(VERSION, 4099, "the file was written by another version")                                    \
    X(USAGE, 4100, "the arguments do not fit")                                                     \
    X(MISSING, 4101, "something needed is not there")                                              \
    X(STORE, 4102, "the database cannot be used")

enum leat_error {
#define X(name, code, text) LEAT_E_##name = (code),
    LEAT_ERRORS(X)
#undef X
};

struct leat_err {
    char text[512]; /* one sentence, without a newline; "" when nothing was said */
};

/* Writes the sentence and returns `code` unchanged, so that `return err_set(err, -EIO, ...)` reads
 * as one thought. A NULL err is fine. */
int err_set(struct leat_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The plain text of a code of ours or of an errno, either sign. Never NULL. */
const char *err_text(int code);

#endif
