/* summary_cuda.c: what each rank asked of CUDA during its steps, by class of call: system.cuda of
 * the summary. Only of the process that trains; what was counted before the first batch and after
 * the last step is in run.db. */
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
            "{so so so so so so}", "class", summary_text(c->class), "calls",
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

json_t *summary_cuda(const struct facts *facts)
{
    json_t *ranks = json_array();
    for (size_t i = 0; ranks && i < facts->rank_count; i++) {
        json_t *calls = calls_of_rank(facts, &facts->ranks[i]);
        if (calls && json_array_size(calls) == 0) {
            json_decref(calls);
            continue;
        }
        json_t *item = json_pack("{si so so}", "rank", facts->ranks[i].rank, "steps",
                                 summary_integer(facts->ranks[i].steps), "calls", calls);
        if (json_array_append_new(ranks, item) < 0) {
            json_decref(ranks);
            return NULL;
        }
    }
    return ranks;
}
