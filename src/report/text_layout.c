/* text_layout.c: see text_layout.h. */
#include "report/text_layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer paragraphs are cut; the JSON has the whole text. */
static const size_t most_paragraph_bytes = 1500;

/* Three to four significant digits. */
static void put_number(char cell[static LAYOUT_CELL], double value, const char *unit)
{
    double size = fabs(value);
    if (size >= 1e15)
        snprintf(cell, LAYOUT_CELL, "%.3g%s", value, unit);
    else
        snprintf(cell, LAYOUT_CELL, "%.*f%s",
                 size < 9.995    ? 2
                 : size < 999.95 ? 1
                                 : 0,
                 value, unit);
}

char *layout_duration(double ms, char cell[static LAYOUT_CELL])
{
    double size = fabs(ms);
    if (!isfinite(ms))
        strcpy(cell, "-");
    else if (size == 0)
        strcpy(cell, "0ms");
    else if (size < 0.0995)
        put_number(cell, ms * 1000, "us");
    else if (size < 999.95)
        put_number(cell, ms, "ms");
    else if (size < 119950)
        put_number(cell, ms / 1000, "s");
    else if (size < 7200000)
        snprintf(cell, LAYOUT_CELL, "%dm%02ds", (int)(ms / 60000), abs((int)(ms / 1000) % 60));
    else if (size < 3.6e12) /* a million hours */
        snprintf(cell, LAYOUT_CELL, "%dh%02dm", (int)(ms / 3600000), abs((int)(ms / 60000) % 60));
    else
        snprintf(cell, LAYOUT_CELL, "%.3gs", ms / 1000);
    return cell;
}

char *layout_seconds(double s, char cell[static LAYOUT_CELL])
{
    return layout_duration(s * 1000, cell);
}

char *layout_percent(double ratio, char cell[static LAYOUT_CELL])
{
    double percent = ratio * 100, size = fabs(percent);
    if (!isfinite(ratio))
        strcpy(cell, "-");
    else if (size >= 1e15)
        snprintf(cell, LAYOUT_CELL, "%.3g %%", percent);
    else if (percent > 0 && size < 0.05)
        strcpy(cell, "< 0.1 %");
    else
        snprintf(cell, LAYOUT_CELL, "%.*f %%", size == 0 || size >= 9.95 ? 0 : 1, percent);
    return cell;
}

char *layout_change(double ratio, char cell[static LAYOUT_CELL])
{
    double percent = ratio * 100, size = fabs(percent);
    if (!isfinite(ratio))
        strcpy(cell, "-");
    else if (percent >= 1e8)
        snprintf(cell, LAYOUT_CELL, "%.3gx", ratio + 1);
    else if (percent >= 199.5) /* "+312 %" is harder to read than "4.1x" */
        snprintf(cell, LAYOUT_CELL, "%.*fx", ratio + 1 < 99.95 ? 1 : 0, ratio + 1);
    else
        snprintf(cell, LAYOUT_CELL, "%+.*f %%", size >= 9.95 ? 0 : 1, size < 0.05 ? 0.0 : percent);
    return cell;
}

char *layout_bytes(double bytes, char cell[static LAYOUT_CELL])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    if (!isfinite(bytes))
        return strcpy(cell, "-");
    while (fabs(bytes) >= 1023.95 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    if (fabs(bytes) >= 1e9)
        snprintf(cell, LAYOUT_CELL, "%.3g %s", bytes, units[unit]);
    else
        snprintf(cell, LAYOUT_CELL, "%.*f %s", unit < 3 || fabs(bytes) >= 99.95 ? 0 : 1, bytes,
                 units[unit]);
    return cell;
}

const char *layout_file(const char *file)
{
    static const char *const folders[] = {"site-packages/", "dist-packages/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *at = strstr(file, folders[i]);
        if (at)
            return at + strlen(folders[i]);
    }
    return file;
}

char *layout_count(double n, char cell[static LAYOUT_CELL])
{
    if (!isfinite(n))
        return strcpy(cell, "-");
    if (n == floor(n) && fabs(n) < 1e15)
        snprintf(cell, LAYOUT_CELL, "%.0f", n);
    else
        put_number(cell, n, "");
    return cell;
}

/* One character of UTF-8: its bytes and its columns. A cut sequence must not be read past its end.
 */
struct glyph {
    size_t bytes;
    int columns;
    int unsafe;
};

static struct glyph glyph_at(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t want = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    unsigned code = want == 1 ? *p : *p & (0xffu >> (want + 1));
    size_t got = 1;
    for (; got < want && (p[got] & 0xc0) == 0x80; got++)
        code = code << 6 | (p[got] & 0x3fu);
    struct glyph g = {got, code >= 0x1100 ? 2 : 1, 0};
    g.unsafe = got < want || (want == 1 && *p >= 0x80) || code < 0x20 ||
               (code >= 0x7f && code < 0xa0) || (code >= 0x200b && code <= 0x200f) ||
               (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    if (g.unsafe)
        g.columns = 1;
    return g;
}

static void put_glyph(struct str *out, const char *text, struct glyph g)
{
    if (g.unsafe)
        str_add(out, "?");
    else
        str_add_bytes(out, text, g.bytes);
}

static int is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

int layout_width(const char *text)
{
    int columns = 0;
    while (*text) {
        struct glyph g = glyph_at(text);
        columns += g.columns;
        text += g.bytes;
    }
    return columns;
}

static int word_width(const char *text)
{
    int columns = 0;
    while (*text && !is_blank(*text)) {
        struct glyph g = glyph_at(text);
        columns += g.columns;
        text += g.bytes;
    }
    return columns;
}

static void new_line(struct str *out, int indent, int *column)
{
    str_addf(out, "\n%*s", indent, "");
    *column = indent;
}

void layout_paragraph(struct str *out, const char *lead, int indent, const char *text)
{
    str_add(out, lead);
    layout_rest(out, layout_width(lead), indent, text);
}

void layout_rest(struct str *out, int column, int indent, const char *text)
{
    const char *start = text;
    int first = 1;
    while (*text) {
        while (is_blank(*text))
            text++;
        if (!*text)
            break;
        if ((size_t)(text - start) > most_paragraph_bytes) {
            str_add(out, " ...");
            break;
        }
        int width = word_width(text);
        int room = LAYOUT_COLUMNS - column - !first - 4; /* 4: for " ..." */
        if (width > room + 4 && column > indent && width <= LAYOUT_COLUMNS - indent) {
            new_line(out, indent, &column);
        } else if (!first) {
            str_add(out, " ");
            column++;
        }
        first = 0;
        while (*text && !is_blank(*text)) {
            struct glyph g = glyph_at(text);
            if (column + g.columns > LAYOUT_COLUMNS)
                new_line(out, indent, &column);
            put_glyph(out, text, g);
            column += g.columns;
            text += g.bytes;
            if ((size_t)(text - start) > most_paragraph_bytes) /* one very long word */
                break;
        }
    }
    str_add(out, "\n");
}

void layout_cut(struct str *out, const char *text, int columns)
{
    int whole = layout_width(text) <= columns;
    int left = whole ? columns : columns - 3;
    while (*text) {
        struct glyph g = glyph_at(text);
        if (g.columns > left)
            break;
        put_glyph(out, text, g);
        left -= g.columns;
        text += g.bytes;
    }
    if (!whole)
        str_add(out, "...");
}

void layout_style(struct str *out, int colour, enum layout_style style)
{
    static const char *const sequences[] = {[STYLE_PLAIN] = "\033[0m",
                                            [STYLE_TITLE] = "\033[1m",
                                            [STYLE_GOOD] = "\033[1;32m",
                                            [STYLE_WARNING] = "\033[1;33m",
                                            [STYLE_CRITICAL] = "\033[1;31m"};
    if (colour)
        str_add(out, sequences[style]);
}

void layout_part(struct str *line, const char *text)
{
    str_addf(line, "%s%s", line->length ? " | " : "", text);
}

void layout_title(struct str *out, int colour, const char *title)
{
    str_add(out, "\n");
    layout_style(out, colour, STYLE_TITLE);
    str_add(out, title);
    layout_style(out, colour, STYLE_PLAIN);
    str_add(out, "\n");
}
