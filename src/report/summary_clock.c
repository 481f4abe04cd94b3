/* summary_clock.c: system.gpu_clock of the summary: how long the GPU of each rank was idle, by what
 * its host did meanwhile. Shares are of the measured GPU time. */
#include "report/summary_parts.h"

static double device_ms(const struct facts *facts, int64_t pid)
{
    double sum = 0;
    for (size_t i = 0; i < facts->gpu_phase_count; i++)
        if (facts->gpu_phases[i].pid == pid)
            sum += facts->gpu_phases[i].device_ms;
    return sum;
}

/* Phases without idle or hidden time are listed too: they were measured. */
static json_t *phases_of(const struct facts *facts, int64_t pid, double all_ms, double *ret_idle_ms)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < facts->gpu_phase_count; i++) {
        const struct gpu_phase *p = &facts->gpu_phases[i];
        if (p->pid != pid)
            continue;
        *ret_idle_ms += p->idle_ms;
        json_t *item =
            json_pack("{so so so so so}", "phase", summary_text(clock_phase_names[p->phase]),
                      "share", json_number_or_null(p->device_ms / all_ms), "idle_share",
                      json_number_or_null(p->idle_ms / all_ms), "idle",
                      json_number_or_null(p->idle_ms), "hidden", json_number_or_null(p->hidden_ms));
        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *summary_clock(const struct facts *facts)
{
    json_t *ranks = json_array();
    for (size_t i = 0; ranks && i < facts->rank_count; i++) {
        const struct rank_facts *rank = &facts->ranks[i];
        double all_ms = device_ms(facts, rank->pid), idle_ms = 0;
        if (!(all_ms > 0))
            continue;
        json_t *phases = phases_of(facts, rank->pid, all_ms, &idle_ms);
        json_t *item =
            json_pack("{si so so so}", "rank", rank->rank, "measured", json_number_or_null(all_ms),
                      "idle_share", json_number_or_null(idle_ms / all_ms), "phases", phases);
        if (json_array_append_new(ranks, item) < 0) {
            json_decref(ranks);
            return NULL;
        }
    }
    return ranks;
}
