/* compare_text.c: a comparison as text: first why the runs are not comparable, then the answer, the
 * two verdicts, the table, and the next command. */
#include "report/report.h"

#include "report/text_layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static enum layout_style style_of(const char *kind)
{
    return strcmp(kind, "REGRESSION") == 0                                       ? STYLE_CRITICAL
           : strcmp(kind, "IMPROVEMENT") == 0 || strcmp(kind, "EQUIVALENT") == 0 ? STYLE_GOOD
                                                                                 : STYLE_WARNING;
}

static void put_list(struct str *out, const char *title, const json_t *list)
{
    const json_t *item;
    size_t i;
    json_array_foreach (list, i, item) {
        if (i == 0)
            str_addf(out, "%s\n", title);
        layout_paragraph(out, "- ", 2, json_is_string(item) ? json_string_value(item) : "?");
    }
}

/* `text` in exactly `columns` columns. */
static void put_cell(struct str *out, const char *text, int columns)
{
    struct str cell = {0};
    layout_cut(&cell, text, columns);
    int pad = columns - layout_width(str_text(&cell));
    str_addf(out, "%s%*s", str_text(&cell), pad > 0 ? pad : 0, "");
    str_done(&cell);
}

static void put_side(struct str *out, const char *title, const json_t *side)
{
    char cell[LAYOUT_CELL];
    struct str verdict = {0};
    str_addf(out, "%-8s ", title);
    put_cell(out, json_find_text(side, "run", json_find_text(side, "name", "?")), 24);
    str_addf(&verdict, "%s (%s)", json_find_text(side, "label", "?"),
             json_find_text(side, "severity", "?"));
    str_add(out, "  ");
    put_cell(out, str_text(&verdict), 28);
    str_done(&verdict);
    str_addf(out, " %s steps\n", layout_count(json_find_number(side, "kept_steps", NAN), cell));
}

static char *value_text(double value, const char *unit, char cell[static LAYOUT_CELL])
{
    if (strcmp(unit, "ms") == 0)
        return layout_duration(value, cell);
    if (strcmp(unit, "bytes") == 0)
        return layout_bytes(value, cell);
    if (strcmp(unit, "ratio") == 0)
        return layout_percent(value, cell);
    return layout_count(value, cell);
}

static void put_row(struct str *out, const json_t *row, int colour)
{
    char before[LAYOUT_CELL], after[LAYOUT_CELL], change[LAYOUT_CELL];
    char low[LAYOUT_CELL], high[LAYOUT_CELL], interval[2 * LAYOUT_CELL + 8] = "";
    const char *unit = json_find_text(row, "unit", "");
    const char *judged = json_find_text(row, "judged", "");
    if (isfinite(json_find_number(row, "low", NAN)))
        snprintf(interval, sizeof interval, "%s to %s",
                 layout_change(json_find_number(row, "low", NAN), low),
                 layout_change(json_find_number(row, "high", NAN), high));
    str_add(out, "  ");
    put_cell(out, json_find_text(row, "name", "?"), 14);
    str_addf(out, " %10.10s %10.10s %9.9s  %-20.20s ",
             value_text(json_find_number(row, "before", NAN), unit, before),
             value_text(json_find_number(row, "after", NAN), unit, after),
             layout_change(json_find_number(row, "change", NAN), change), interval);
    layout_style(out, colour,
                 strcmp(judged, "worse") == 0    ? STYLE_CRITICAL
                 : strcmp(judged, "better") == 0 ? STYLE_GOOD
                                                 : STYLE_PLAIN);
    layout_cut(out, judged, 8);
    layout_style(out, colour, STYLE_PLAIN);
    while (out->length && out->text[out->length - 1] == ' ')
        out->text[--out->length] = 0;
    str_add(out, "\n");
}

static void put_basis(struct str *out, const json_t *result)
{
    struct str text = {0};
    char cells[3][LAYOUT_CELL];
    double before = json_find_number(result, "basis.block_before", NAN);
    double after = json_find_number(result, "basis.block_after", NAN);
    if (!isfinite(before) || !isfinite(after)) {
        str_add(&text, "There is no interval without the steps of both runs; only step times that "
                       "hardly overlap are told apart.");
    } else {
        str_addf(&text, "Bootstrap of %s and %s steps",
                 layout_count(json_find_number(result, "basis.values_before", NAN), cells[0]),
                 layout_count(json_find_number(result, "basis.values_after", NAN), cells[1]));
        if (before > 1 || after > 1)
            str_addf(&text, ", in blocks of %s and %s because neighbouring steps are correlated",
                     layout_count(before, cells[0]), layout_count(after, cells[1]));
        str_addf(&text, "; threshold %s. Differences between runs of the same code are not in it.",
                 layout_percent(json_find_number(result, "threshold", NAN), cells[2]));
    }
    layout_paragraph(out, "", 0, str_text(&text));
    str_done(&text);
}

static void put_next(struct str *out, const json_t *result)
{
    const char *kind = json_find_text(result, "verdict.kind", "");
    const char *before = json_find_text(result, "before.run", "BEFORE");
    const char *after = json_find_text(result, "after.run", "AFTER");
    struct str line = {0};
    if (strcmp(kind, "REGRESSION") == 0 || strcmp(kind, "MIXED") == 0)
        str_addf(&line, "Next: leat view %s", after);
    else if (json_is_false(json_find(result, "comparable")))
        str_addf(&line, "Next: leat run --run-name again ... (with the settings of %s)", before);
    else if (strcmp(kind, "INCONCLUSIVE") == 0)
        str_add(&line, "Next: leat run --run-name longer ... (more steps, the same settings)");
    else
        str_addf(&line, "Next: leat compare %s %s --fail-on regression", before, after);
    str_add(out, "\n");
    layout_cut(out, str_text(&line), LAYOUT_COLUMNS);
    str_add(out, "\n");
    str_done(&line);
}

void compare_text(const json_t *result, int colour, struct str *out)
{
    const char *kind = json_find_text(result, "verdict.kind", "?");
    const json_t *row;
    size_t i;
    const json_t *differences = json_object_get(result, "differences");
    put_list(out, "Not comparable:", differences);
    if (json_array_size(differences))
        str_add(out, "\n");
    layout_style(out, colour, style_of(kind));
    layout_cut(out, json_find_text(result, "verdict.label", "?"), 40);
    layout_style(out, colour, STYLE_PLAIN);
    str_add(out, "\n");
    layout_paragraph(out, "", 0, json_find_text(result, "verdict.summary", "unknown"));
    const char *action = json_find_text(result, "verdict.action", NULL);
    if (action)
        layout_paragraph(out, "", 0, action);
    str_add(out, "\n");
    put_side(out, "before", json_object_get(result, "before"));
    put_side(out, "after", json_object_get(result, "after"));
    str_addf(out, "\n  %-14s %10s %10s %9s  %s\n", "", "before", "after", "change",
             "95 % interval");
    json_array_foreach (json_object_get(result, "rows"), i, row)
        put_row(out, row, colour);
    str_add(out, "\n");
    put_basis(out, result);
    const char *prediction = json_find_text(result, "prediction.text", NULL);
    if (prediction) {
        str_add(out, "\n");
        layout_paragraph(out, "Prediction: ", 2, prediction);
    }
    const json_t *notes = json_object_get(result, "notes");
    if (json_array_size(notes))
        str_add(out, "\n");
    put_list(out, "Notes:", notes);
    put_next(out, result);
}
