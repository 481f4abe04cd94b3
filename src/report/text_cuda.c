/* text_cuda.c: one line of the report on what a step asks of CUDA: of the first rank that was
 * counted, classes brought together into launches, copies by memory, waiting and allocation. */
#include "report/text_parts.h"

#include "report/text_layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct sum {
    double calls, ms, bytes;
};

/* Of the classes named, which are parted by spaces. */
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
}
