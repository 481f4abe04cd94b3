/* device_lines.c: the lines of the user's loop that copy to the device or wait for it, as the rules
 * need them. Every call was counted, none was sampled, so how often is exact; how long the host was
 * inside of them is not what they cost, since it may have waited for work that was due anyway. What
 * they cost says the clock of the device; these lines say where. */
#include "diagnose/rule.h"

#include <stdio.h>
#include <string.h>

/* What happens in less than half of the steps is no part of the loop: logging now and then, or the
 * model on its way to the device. */
int cuda_line_repeats(const struct cuda_line *line, const struct rank_facts *rank)
{
    return line->kind[0] && line->steps >= 2 && line->steps * 2 >= (double)rank->steps;
}

static int is_of(const struct cuda_line *line, enum device_lines_kind kind)
{
    return (strcmp(line->kind, "wait") == 0) == (kind == DEVICE_WAIT_LINES);
}

void device_lines_find(const struct facts *facts, const struct rank_facts *r,
                       enum device_lines_kind kind, struct device_lines *ret)
{
    *ret = (struct device_lines){0};
    for (size_t i = 0; i < facts->cuda_line_count; i++) {
        const struct cuda_line *l = &facts->cuda_lines[i];
        if (l->pid != r->pid || !cuda_line_repeats(l, r) || !is_of(l, kind))
            continue;
        ret->n += l->n / (double)r->steps;
        ret->ms += l->ms / (double)r->steps;
        ret->bytes += l->bytes / (double)r->steps;
        if (ret->count < DEVICE_LINES_MOST)
            ret->lines[ret->count++] = l; /* they come ordered by time */
    }
    if (ret->count > 0)
        snprintf(ret->at, sizeof ret->at, "%s:%lld", ret->lines[0]->file,
                 (long long)ret->lines[0]->line);
}

void device_lines_place(struct finding *f, const struct device_lines *found,
                        const struct rank_facts *r, const char *of)
{
    for (size_t i = 0; i < found->count; i++) {
        const struct cuda_line *l = found->lines[i];
        char at[sizeof found->at];
        snprintf(at, sizeof at, "%s:%lld", l->file, (long long)l->line);
        double ms = l->ms / (double)r->steps;
        finding_place(f, at, found->ms > 0 ? ms / found->ms : 0, of);
    }
}

double waits_of_copies(const struct facts *facts, const struct rank_facts *r)
{
    struct device_lines copies, waits;
    device_lines_find(facts, r, DEVICE_COPY_LINES, &copies);
    device_lines_find(facts, r, DEVICE_WAIT_LINES, &waits);
    return copies.n > 0 ? copies.n / (copies.n + waits.n) : 0;
}
