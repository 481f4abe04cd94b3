/* error.h: how a failure is reported, to callers of the C API and within leat.
 *
 * A function that can fail returns 0 or a count on success and a negative code on failure: a
 * negated errno, or one of the codes below, negated. Where the reader of the message needs to know
 * which thing failed, the function also takes a `struct leat_err *` (may be NULL) and writes one
 * full sentence with the object in it.
 */
#ifndef LEAT_ERROR_H
#define LEAT_ERROR_H

/* leat's own codes, kept clear of errno values (which stay below 4096 in the kernel's ABI). One
 * list makes the enum, the names and the texts. */
#define LEAT_ERRORS(X)                                                                             \
    X(CORRUPT, 4097, "the data is damaged")                                                        \
    X(FOREIGN, 4098, "the file is of another kind")                                                \
    X(VERSION, 4099, "the file was written by another version")                                    \
    X(USAGE, 4100, "the arguments do not fit")                                                     \
    X(MISSING, 4101, "something needed is not there")                                              \
    X(STORE, 4102, "the database cannot be used")                                                  \
    X(FULL, 4103, "every batch slot is in use")

enum leat_error {
#define X(name, code, text) LEAT_E_##name = (code),
    LEAT_ERRORS(X)
#undef X
};

struct leat_err {
    char text[512]; /* one sentence, without a newline; "" when there is none */
};

#endif
