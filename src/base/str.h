/* str.h: a string that grows. Start from `struct str s = {0}`; str_done frees. After a failed
 * allocation the string keeps its text, `failed` is set, and later calls do nothing. So a caller
 * checks `failed` once, at the end. */
#ifndef LEAT_BASE_STR_H
#define LEAT_BASE_STR_H

#include <stddef.h>

struct str {
    char *text; /* owned, NUL-terminated once anything was added; NULL before */
    size_t length;
    size_t capacity;
    int failed; /* an allocation failed: the text is incomplete */
};

void str_add(struct str *s, const char *text);
void str_addf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_add_bytes(struct str *s, const void *bytes, size_t count);
const char *str_text(const struct str *s); /* never NULL */
/* The length without a UTF-8 character that a cut at `length` has split. */
size_t str_whole_utf8(const char *text, size_t length);
void str_done(struct str *s);

#endif
