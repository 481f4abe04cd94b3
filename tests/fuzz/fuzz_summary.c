/* fuzz_summary.c: any bytes as a summary. What the parser lets through is then printed and compared
 * with itself: whatever types the JSON has inside, the report must be text below 80 columns. */
#include "report/compare.h"
#include "report/text_layout.h"
#include "report/report.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void stop(const char *why, const char *line)
{
    fprintf(stderr, "%s: %s\n", why, line);
    abort();
}

static void check_lines(const struct str *text)
{
    struct str line = {0};
    for (const char *p = str_text(text); *p; p++) {
        if (*p == '\n') {
            if (layout_width(str_text(&line)) > LAYOUT_COLUMNS)
                stop("a line is too long", str_text(&line));
            str_done(&line);
            line = (struct str){0};
            continue;
        }
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            stop("a byte could steer the terminal", str_text(&line));
        str_add_bytes(&line, p, 1);
    }
    str_done(&line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *summary = NULL, *result = NULL;
    struct leat_err err = {""};
    if (summary_parse((const char *)data, size, &summary, &err) < 0) {
        if (!*err.text)
            stop("a refusal has no sentence", "");
        return 0;
    }
    struct str text = {0};
    report_text(summary, 0, &text);
    check_lines(&text);
    str_done(&text);
    static const struct step_series no_steps;
    text = (struct str){0};
    if (compare_summaries("a", summary, &no_steps, "b", summary, &no_steps, 0.03, &result, &err) ==
        0) {
        compare_text(result, 0, &text);
        check_lines(&text);
    }
    str_done(&text);
    json_decref(result);
    json_decref(summary);
    return 0;
}
