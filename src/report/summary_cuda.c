/* summary_cuda.c: system.cuda of the summary: the CUDA calls of each rank during its steps, by
 * class, and the lines of its loop that copy or wait. Calls before the first batch and after the
 * last step are in run.db only. */
#include "report/summary_parts.h"

static json_t *calls_of_rank(const struct facts *facts, const struct rank_facts *rank)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < facts->cuda_call_count; i++) {
        const struct cuda_call *c = &facts->cuda_calls[i];
        if (c->pid != rank->pid || rank->steps <= 0)
            continue;
        double steps = (double)rank->steps;
        json_t *item = json_pack(
            "{so so so so so so}", "class", summary_text(cuda_class_names[c->class]), "calls",
            json_number_or_null(c->n), "calls_per_step", json_number_or_null(c->n / steps),
            "time_per_step", json_number_or_null(c->ms / steps), "bytes",
            json_number_or_null(c->bytes), "bytes_per_step", json_number_or_null(c->bytes / steps));
        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *lines_of_rank(const struct facts *facts, const struct rank_facts *rank)
{
    enum { MOST = 16 };
    json_t *list = json_array();
    for (size_t i = 0; list && i < facts->cuda_line_count && json_array_size(list) < MOST; i++) {
        const struct cuda_line *l = &facts->cuda_lines[i];
        if (l->pid != rank->pid || rank->steps <= 0 || !cuda_line_repeats(l, rank))
            continue;
        double steps = (double)rank->steps;
        json_t *item = json_pack(
            "{so so so so so so so}", "kind", summary_text(cuda_line_kind_names[l->kind]), "file",
            summary_text(l->file), "line", summary_integer(l->line), "function",
            summary_text(l->function), "calls_per_step", json_number_or_null(l->n / steps),
            "time_per_step", json_number_or_null(l->ms / steps), "bytes_per_step",
            json_number_or_null(l->bytes / steps));
        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *summary_cuda(const struct facts *facts)
{
    json_t *ranks = json_array();
    for (size_t i = 0; ranks && i < facts->rank_count; i++) {
        json_t *calls = calls_of_rank(facts, &facts->ranks[i]);
        if (calls && json_array_size(calls) == 0) {
            json_decref(calls);
            continue;
        }
        json_t *item = json_pack("{si so so so}", "rank", facts->ranks[i].rank, "steps",
                                 summary_integer(facts->ranks[i].steps), "calls", calls, "lines",
                                 lines_of_rank(facts, &facts->ranks[i]));
        if (json_array_append_new(ranks, item) < 0) {
            json_decref(ranks);
            return NULL;
        }
    }
    return ranks;
}
