/* str.c: see str.h. */
#include "base/str.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void str_add_bytes(struct str *s, const void *bytes, size_t count)
{
    if (s->failed)
        return;
    if (mem_reserve(&s->text, &s->capacity, s->length + count + 1, 1) < 0) {
        s->failed = 1;
        return;
    }
    if (count)
        memcpy(s->text + s->length, bytes, count);
    s->length += count;
    s->text[s->length] = 0;
}

void str_add(struct str *s, const char *text)
{
    str_add_bytes(s, text, strlen(text));
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int need = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (need < 0 || s->failed ||
        mem_reserve(&s->text, &s->capacity, s->length + (size_t)need + 1, 1) < 0) {
        s->failed = 1;
    } else {
        vsnprintf(s->text + s->length, (size_t)need + 1, fmt, again);
        s->length += (size_t)need;
    }
    va_end(again);
}

const char *str_text(const struct str *s)
{
    return s->text ? s->text : "";
}

size_t str_whole_utf8(const char *text, size_t length)
{
    size_t lead = length; /* of the last character */
    while (lead > 0 && length - lead < 3 && ((unsigned char)text[lead - 1] & 0xc0) == 0x80)
        lead--;
    if (lead == 0)
        return length;
    unsigned char first = (unsigned char)text[--lead];
    size_t need = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    return length - lead < need ? lead : length;
}

void str_done(struct str *s)
{
    mem_free(s->text);
    *s = (struct str){0};
}
