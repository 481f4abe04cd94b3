/* figures.h: compares the figures of a sentence, not its words. The exact wording is held by the
 * transcripts in tests/cli. */
#ifndef LEAT_TESTS_FIGURES_H
#define LEAT_TESTS_FIGURES_H

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* Copies every word that holds a digit, without the punctuation around it, one space between two:
 * "idle 37 % (at train.py:4)." gives "37% train.py:4". A following "%" belongs to its figure. */
static inline void figures_of(const char *text, char *ret_figures, size_t bytes)
{
    size_t used = 0;
    ret_figures[0] = 0;
    while (*(text += strspn(text, " \n"))) {
        size_t length = strcspn(text, " \n"), from = 0, to = length;
        while (from < to && strchr("(\"'[,;", text[from]))
            from++;
        while (to > from && strchr(")\"'],.;:", text[to - 1]))
            to--;
        int figure = strcspn(text + from, "0123456789") < to - from;
        int percent = used && to - from == 1 && text[from] == '%';
        if (figure || percent)
            used += (size_t)snprintf(ret_figures + used, bytes - used, "%s%.*s",
                                     figure && used ? " " : "", (int)(to - from), text + from);
        if (used >= bytes)
            fail_msg("too many figures");
        text += length;
    }
}

static inline void assert_figures(const char *text, const char *expected)
{
    char figures[1024];
    figures_of(text, figures, sizeof figures);
    if (strcmp(figures, expected) != 0)
        fail_msg("figures \"%s\", not \"%s\", in:\n%s", figures, expected, text);
}

#endif
