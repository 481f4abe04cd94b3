/* collector_spans.c: spans with a name. All of them are summed; one by one only the longest
 * SPANS_KEPT of each name and process are kept, so that a run of any length ends with a bounded
 * list that still holds what stands out. When the list of a name is full, a longer span takes the
 * place of the shortest. Names beyond SPAN_NAMES share the last entry. */
#include "collect/collector_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static struct span_total *find_total(struct speaker *s, const char *name)
{
    for (size_t i = 0; i < s->span_count; i++)
        if (strcmp(s->spans[i].name, name) == 0)
            return &s->spans[i];
    if (s->span_count >= SPAN_NAMES)
        return &s->spans[s->span_count - 1];
    if (mem_reserve(&s->spans, &s->span_cap, s->span_count + 1, sizeof *s->spans) < 0)
        return NULL;
    struct span_total *t = &s->spans[s->span_count++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static uint64_t length(const struct kept_span *k)
{
    return k->end_ns - k->start_ns;
}

static void keep(struct span_total *t, struct kept_span span)
{
    if (t->kept_count < SPANS_KEPT) {
        if (mem_reserve(&t->kept, &t->kept_cap, t->kept_count + 1, sizeof *t->kept) < 0)
            return;
        t->kept[t->kept_count++] = span;
        t->shortest = t->kept_count; /* not known */
        return;
    }
    if (t->shortest >= t->kept_count) {
        t->shortest = 0;
        for (size_t i = 1; i < t->kept_count; i++)
            if (length(&t->kept[i]) < length(&t->kept[t->shortest]))
                t->shortest = i;
    }
    if (length(&span) <= length(&t->kept[t->shortest]))
        return;
    t->kept[t->shortest] = span;
    t->shortest = t->kept_count;
}

void spans_add(struct speaker *s, const char *name, int64_t step, uint64_t start_ns,
               uint64_t end_ns, uint64_t other_ns)
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
    keep(t, (struct kept_span){start_ns, end_ns, step});
}

void spans_write_totals(struct speaker *s, int rank)
{
    for (size_t i = 0; i < s->span_count; i++) {
        const struct span_total *t = &s->spans[i];
        store_add(s->collector->writer, "span_totals", "rank,name,n,total_ns,max_ns,other_ns",
                  "isiuuu", (int64_t)rank, t->name, t->n, t->total_ns, t->max_ns, t->other_ns);
    }
}

void spans_write_kept(struct speaker *s, int rank)
{
    for (size_t i = 0; i < s->span_count; i++)
        for (size_t k = 0; k < s->spans[i].kept_count; k++) {
            const struct kept_span *span = &s->spans[i].kept[k];
            store_add(s->collector->writer, "spans", "rank,name,step,start_ns,end_ns", "isiuu",
                      (int64_t)rank, s->spans[i].name, span->step, span->start_ns, span->end_ns);
        }
}

void spans_done(struct speaker *s)
{
    for (size_t i = 0; i < s->span_count; i++)
        mem_free(s->spans[i].kept);
    mem_free(s->spans);
    s->spans = NULL;
    s->span_count = s->span_cap = 0;
}
