/* machine_use.c: see machine_use.h. */
#include "facts/machine_use.h"

#include <math.h>

/* The growth of a counter per ms, between the first and the last sample that have it. */
static double counter_rate(const struct facts *facts, int64_t pid, double from_ms, double to_ms,
                           double (*counter)(const struct proc_sample *))
{
    const struct proc_sample *first = NULL, *last = NULL;
    size_t count;
    const struct proc_sample *samples = facts_samples(facts, pid, &count);
    for (size_t i = 0; i < count; i++) {
        const struct proc_sample *s = &samples[i];
        if (s->t_ms < from_ms || s->t_ms > to_ms || isnan(counter(s)))
            continue;
        if (!first)
            first = s;
        last = s;
    }
    if (!first || last->t_ms <= first->t_ms)
        return NAN;
    return (counter(last) - counter(first)) / (last->t_ms - first->t_ms);
}

static double cpu_counter(const struct proc_sample *s)
{
    return s->cpu_ms;
}

static double delay_counter(const struct proc_sample *s)
{
    return s->run_delay_ms;
}

double process_cpu(const struct facts *facts, int64_t pid, double from_ms, double to_ms)
{
    return counter_rate(facts, pid, from_ms, to_ms, cpu_counter);
}

double process_delay(const struct facts *facts, int64_t pid, double from_ms, double to_ms)
{
    return counter_rate(facts, pid, from_ms, to_ms, delay_counter);
}

static double mean_of_samples(const struct facts *facts, double from_ms, double to_ms,
                              double (*value)(const struct sys_sample *))
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < facts->sys_sample_count; i++) {
        const struct sys_sample *s = &facts->sys_samples[i];
        if (s->t_ms < from_ms || s->t_ms > to_ms || isnan(value(s)))
            continue;
        sum += value(s);
        n++;
    }
    return n ? sum / (double)n : NAN;
}

static double all_cpu(const struct sys_sample *s)
{
    return s->cpu_ratio;
}

static double foreign_cpu(const struct sys_sample *s)
{
    return s->cpu_ratio - s->run_cpu_ratio;
}

double machine_cpu(const struct facts *facts, double from_ms, double to_ms)
{
    return mean_of_samples(facts, from_ms, to_ms, all_cpu);
}

double cores_left(const struct facts *facts, double from_ms, double to_ms)
{
    double cores = facts->cpus > 0 ? (double)facts->cpus : 1;
    double foreign = mean_of_samples(facts, from_ms, to_ms, foreign_cpu);
    double left = foreign > 0 ? cores * (1 - foreign) : cores;
    return left > 1 ? left : 1; /* the scheduler gives a process about one core's share even on a
                                   full machine */
}

static double smaller_known(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    return a < b ? a : b;
}

double device_capacity(const struct facts *facts)
{
    double least = NAN;
    for (size_t i = 0; i < facts->gpu_sample_count; i++)
        least = smaller_known(least, facts->gpu_samples[i].memory_total);
    return least;
}

double host_capacity(const struct facts *facts)
{
    double least = facts->memory_limit_bytes > 0 ? (double)facts->memory_limit_bytes : NAN;
    for (size_t i = 0; i < facts->sys_sample_count; i++)
        least = smaller_known(least, facts->sys_samples[i].memory_total);
    return least;
}

double private_bytes(const struct proc_sample *s)
{
    return isnan(s->shared_bytes) ? s->rss_bytes : s->rss_bytes - s->shared_bytes;
}
