/* text_layout.h: numbers with adaptive units, and paragraphs of lines below 80 columns.
 *
 * Texts come from untrusted files, so characters that control a terminal (control bytes,
 * bidirectional overrides) are printed as '?'.
 */
#ifndef LEAT_REPORT_TEXT_LAYOUT_H
#define LEAT_REPORT_TEXT_LAYOUT_H

#include "base/str.h"

#define LAYOUT_COLUMNS 79 /* most columns of a line */
#define LAYOUT_CELL    24 /* bytes for any formatted number */

enum layout_style { STYLE_PLAIN, STYLE_TITLE, STYLE_GOOD, STYLE_WARNING, STYLE_CRITICAL };

/* Each writes into `cell` and returns it; "-" for NaN and infinity. */
char *layout_duration(double ms, char cell[static LAYOUT_CELL]); /* 812us, 254.5ms, 1.23s, 2m05s */
char *layout_seconds(double s, char cell[static LAYOUT_CELL]);
char *layout_percent(double ratio, char cell[static LAYOUT_CELL]); /* 84 %, 3.4 %, < 0.1 % */
char *layout_change(double ratio, char cell[static LAYOUT_CELL]);  /* +5.2 %, -31 %, 2.4x */
char *layout_bytes(double bytes, char cell[static LAYOUT_CELL]);   /* 512 MiB, 1.4 GiB */
char *layout_count(double n, char cell[static LAYOUT_CELL]);       /* 105, 1.23, 38421 */
const char *layout_file(const char *file); /* without the folder of its package: PIL/ImageFile.py */

/* `lead`, then `text` broken at blanks, with continuation lines indented by `indent` columns, and a
 * line end. A word longer than a line is broken. Very long text ends in "...". */
void layout_paragraph(struct str *out, const char *lead, int indent, const char *text);

/* The same after a lead of `column` columns that is already in `out`. */
void layout_rest(struct str *out, int column, int indent, const char *text);

/* The same text on one line, cut to `columns`. Does not end the line. */
void layout_cut(struct str *out, const char *text, int columns);
int layout_width(const char *text); /* columns that `text` takes */

/* Adds a part to a line, after " | " if it is not the first. */
void layout_part(struct str *line, const char *text);
/* A blank line and a heading. */
void layout_title(struct str *out, int colour, const char *title);

/* Terminal sequences around what follows; nothing when `colour` is 0. */
void layout_style(struct str *out, int colour, enum layout_style style);

#endif
