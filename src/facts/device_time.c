/* device_time.c: see device_time.h. */
#include "facts/device_time.h"

#include "facts/phase_shares.h"

#include <stdio.h>

/* A line that runs in less than half of the steps is not part of the loop: for example, it writes a
 * log every 100 steps, or moves the model to the device. */
int cuda_line_repeats(const struct cuda_line *line, const struct rank_facts *rank)
{
    return line->kind != CUDA_LINE_NEITHER && line->steps >= 2 &&
           line->steps * 2 >= (double)rank->steps;
}

static int has_kind(const struct cuda_line *line, enum device_lines_kind kind)
{
    return (line->kind == CUDA_LINE_WAIT) == (kind == DEVICE_WAIT_LINES);
}

void device_lines_find(const struct facts *facts, const struct rank_facts *r,
                       enum device_lines_kind kind, struct device_lines *ret)
{
    *ret = (struct device_lines){0};
    for (size_t i = 0; i < facts->cuda_line_count; i++) {
        const struct cuda_line *l = &facts->cuda_lines[i];
        if (l->pid != r->pid || !cuda_line_repeats(l, r) || !has_kind(l, kind))
            continue;
        ret->n += l->n / (double)r->steps;
        ret->ms += l->ms / (double)r->steps;
        ret->bytes += l->bytes / (double)r->steps;
        if (ret->count < DEVICE_LINES_MOST)
            ret->lines[ret->count++] = l; /* facts->cuda_lines is ordered by time */
    }
    if (ret->count > 0)
        snprintf(ret->at, sizeof ret->at, "%s:%lld", ret->lines[0]->file,
                 (long long)ret->lines[0]->line);
}

double waits_of_copies(const struct facts *facts, const struct rank_facts *r)
{
    struct device_lines copies, waits;
    device_lines_find(facts, r, DEVICE_COPY_LINES, &copies);
    device_lines_find(facts, r, DEVICE_WAIT_LINES, &waits);
    return copies.n > 0 ? copies.n / (copies.n + waits.n) : 0;
}

/* Device time per step in these phases, ms: the idle part, or the busy part. 0 when too few steps
 * were measured. */
static double measured_ms(const struct facts *facts, const struct rank_facts *r,
                          clock_phases phases, int idle)
{
    double all = 0, sum = 0;
    for (size_t i = 0; i < facts->gpu_phase_count; i++) {
        const struct gpu_phase *p = &facts->gpu_phases[i];
        if (p->pid != r->pid)
            continue;
        all += p->device_ms;
        if (phases >> p->phase & 1)
            sum += idle ? p->idle_ms : p->device_ms - p->idle_ms;
    }
    double wall = step_mean(r);
    return all > 0 && all >= CLOCK_STEPS * wall ? sum / all * wall : 0;
}

double device_work_ms(const struct facts *facts, const struct rank_facts *r)
{
    return measured_ms(facts, r, ALL_CLOCK_PHASES, 0);
}

/* The host's time per step without waits. It is not known how much of a copy is a wait: when lines
 * of the loop copy, all of the h2d phase counts as a wait. */
static double host_ms(const struct facts *facts, const struct rank_facts *r)
{
    struct device_lines copies;
    device_lines_find(facts, r, DEVICE_COPY_LINES, &copies);
    double waits = phase_mean(r, PHASE_SYNC) + (copies.count ? phase_mean(r, PHASE_H2D) : 0);
    return step_mean(r) - waits;
}

double step_without_waits(const struct facts *facts, const struct rank_facts *r)
{
    double host = host_ms(facts, r), device = device_work_ms(facts, r);
    return host > device ? host : device;
}

double launches_after_waits(const struct facts *facts, const struct rank_facts *r)
{
    struct device_lines copies, waits;
    device_lines_find(facts, r, DEVICE_COPY_LINES, &copies);
    device_lines_find(facts, r, DEVICE_WAIT_LINES, &waits);
    double idle = measured_ms(facts, r, CLOCK_PHASE(LAUNCH), 1);
    if ((copies.count == 0 && waits.count == 0) || !(idle > 0))
        return 0;
    /* Idle time that remains without waits: the host needs longer than the device. */
    double remaining = host_ms(facts, r) - device_work_ms(facts, r);
    return remaining <= 0 ? 1 : remaining < idle ? 1 - remaining / idle : 0;
}

int gpu_share_of(const struct facts *facts, const struct rank_facts *r, clock_phases phases,
                 struct gpu_share *ret)
{
    /* Of all waits, those of copies; of idle time in launches, that caused by waits. */
    double copy_share = waits_of_copies(facts, r), late_share = launches_after_waits(facts, r);
    int has_sync = (phases & CLOCK_PHASE(SYNC)) != 0, has_h2d = (phases & CLOCK_PHASE(H2D)) != 0;
    double all_ms = 0;
    struct gpu_share sum = {0};
    for (size_t i = 0; i < facts->gpu_phase_count; i++) {
        const struct gpu_phase *p = &facts->gpu_phases[i];
        if (p->pid != r->pid)
            continue;
        all_ms += p->device_ms;
        double wait_share = p->phase == LEAT_CLOCK_SYNC     ? 1
                            : p->phase == LEAT_CLOCK_LAUNCH ? late_share
                                                            : 0;
        /* Time caused by waits is charged to h2d and sync, the rest to its own phase. */
        double charged = (double)(phases >> p->phase & 1) * (1 - wait_share) +
                         (has_h2d * copy_share + has_sync * (1 - copy_share)) * wait_share;
        sum.device += charged * p->device_ms;
        sum.idle += charged * p->idle_ms;
    }
    if (!(all_ms > 0) || all_ms < CLOCK_STEPS * step_mean(r))
        return 0;
    *ret = (struct gpu_share){sum.device / all_ms, sum.idle / all_ms};
    return 1;
}
