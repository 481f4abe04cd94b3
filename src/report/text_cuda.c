/* text_cuda.c: one line of the report on the CUDA calls of a step, of the first rank that has them:
 * launches, copies by kind of memory, waits and allocations. Then the lines of code that copy or
 * wait in every step, and what to do about them. */
#include "report/text_parts.h"

#include "report/text_layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct sum {
    double calls, ms, bytes;
};

/* The sum over the space-separated classes. */
static struct sum sum_of(const json_t *calls, const char *classes)
{
    struct sum sum = {0};
    const json_t *call;
    size_t i;
    json_array_foreach (calls, i, call) {
        const char *name = json_string_value(json_object_get(call, "class"));
        const char *at = name && *name ? strstr(classes, name) : NULL;
        size_t length = name ? strlen(name) : 0;
        if (!at || (at > classes && at[-1] != ' ') || (at[length] && at[length] != ' '))
            continue;
        sum.calls += fmax(0, json_find_number(call, "calls_per_step", 0));
        sum.ms += fmax(0, json_find_number(call, "time_per_step", 0));
        sum.bytes += fmax(0, json_find_number(call, "bytes_per_step", 0));
    }
    return sum;
}

static void add_calls(struct str *line, const char *what, struct sum sum, int with_bytes)
{
    char count[LAYOUT_CELL], time[LAYOUT_CELL], size[LAYOUT_CELL], part[160];
    if (!(sum.calls > 0))
        return;
    layout_count(sum.calls, count);
    layout_duration(sum.ms, time);
    if (with_bytes)
        snprintf(part, sizeof part, "%s %s, %s", count, what, layout_bytes(sum.bytes, size));
    else
        snprintf(part, sizeof part, "%s %s, %s", count, what, time);
    layout_part(line, part);
}

static const struct {
    const char *kind, *lead, *advice;
} kinds[] = {
    {"pageable_copy", "- Copies of pageable memory: ",
     ": with pin_memory=True in the DataLoader and non_blocking=True they overlap with the GPU's"
     " work"                                                                           },
    {"blocking_copy", "- Copies that block Python: ",  ": non_blocking=True is missing"},
    {"wait",          "- Waits for the GPU: ",
     ": .item(), .cpu(), print() and synchronize() block Python until the GPU is done" },
};

/* "train.py:41 (2 a step, 0.8ms)" */
static void add_place(struct str *text, const json_t *line)
{
    char count[LAYOUT_CELL], time[LAYOUT_CELL];
    const char *file = json_string_value(json_object_get(line, "file"));
    layout_count(json_find_number(line, "calls_per_step", 0), count);
    layout_duration(json_find_number(line, "time_per_step", 0), time);
    str_addf(text, "%s%s:%d (%s a step, %s)", text->length ? ", " : "",
             layout_file(file ? file : "?"), (int)json_find_number(line, "line", 0), count, time);
}

static void add_lines(const json_t *lines, size_t kind, struct str *out)
{
    enum { MOST = 3 };
    struct str text = {0};
    const json_t *line;
    size_t i;
    int n = 0;
    json_array_foreach (lines, i, line) {
        const char *name = json_string_value(json_object_get(line, "kind"));
        if (name && strcmp(name, kinds[kind].kind) == 0 && n++ < MOST)
            add_place(&text, line);
    }
    if (n > MOST)
        str_addf(&text, " and %d more", n - MOST);
    if (n)
        str_add(&text, kinds[kind].advice);
    if (text.length)
        layout_paragraph(out, kinds[kind].lead, 2, str_text(&text));
    str_done(&text);
}

void text_cuda(const json_t *summary, struct str *out)
{
    const json_t *calls =
        json_object_get(json_array_get(json_find(summary, "system.cuda"), 0), "calls");
    struct str line = {0};
    add_calls(&line, "launches", sum_of(calls, "launch graph_launch"), 0);
    add_calls(&line, "copies of pinned memory", sum_of(calls, "h2d_pinned d2h_pinned"), 1);
    add_calls(&line, "copies of pageable memory", sum_of(calls, "h2d_pageable d2h_pageable"), 1);
    add_calls(&line, "waits", sum_of(calls, "sync event_sync"), 0);
    add_calls(&line, "allocations", sum_of(calls, "alloc alloc_async alloc_host"), 0);
    if (line.length)
        layout_paragraph(out, "- CUDA, a step: ", 2, str_text(&line));
    str_done(&line);
    const json_t *lines =
        json_object_get(json_array_get(json_find(summary, "system.cuda"), 0), "lines");
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        add_lines(lines, kind, out);
}
