/* collector_spans.c: time with a name: checkpoints, evaluations, user phases. Summed by name; names
 * beyond MAX_SPAN_NAMES are added to the last entry. */
#include "collect/collector_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static struct span_total *find_total(struct recording_process *s, const char *name)
{
    for (size_t i = 0; i < s->span_count; i++)
        if (strcmp(s->spans[i].name, name) == 0)
            return &s->spans[i];
    if (s->span_count >= MAX_SPAN_NAMES)
        return &s->spans[s->span_count - 1];
    if (mem_reserve(&s->spans, &s->span_cap, s->span_count + 1, sizeof *s->spans) < 0)
        return NULL;
    struct span_total *t = &s->spans[s->span_count++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

void spans_add(struct recording_process *s, const char *name, uint64_t start_ns, uint64_t end_ns,
               uint64_t other_ns)
{
    struct span_total *t = find_total(s, name);
    if (!t || end_ns < start_ns)
        return;
    uint64_t ns = end_ns - start_ns;
    t->n++;
    t->total_ns += ns;
    t->other_ns += other_ns;
    if (ns > t->max_ns)
        t->max_ns = ns;
}

void spans_write_totals(struct recording_process *s, int rank)
{
    for (size_t i = 0; i < s->span_count; i++) {
        const struct span_total *t = &s->spans[i];
        struct span_total_row row = {
            .rank = rank,
            .name = t->name,
            .n = t->n,
            .total_ns = store_signed(t->total_ns),
            .max_ns = store_signed(t->max_ns),
            .other_ns = store_signed(t->other_ns),
        };
        store_add_span_total(s->collector->writer, &row);
    }
}

void spans_done(struct recording_process *s)
{
    mem_free(s->spans);
    s->spans = NULL;
    s->span_count = s->span_cap = 0;
}
