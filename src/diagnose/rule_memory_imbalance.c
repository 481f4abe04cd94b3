/* rule_memory_imbalance.c: IMBALANCE: one rank needs much more memory than the others, so it
 * alone limits the batch. That matters only from 30 % of the capacity on. Checked for device
 * memory and for the private memory of the rank's process. */
#include "diagnose/rule.h"

#include "base/mem.h"
#include "base/stats.h"

#include <math.h>

#define GIB             (1024.0 * 1024.0 * 1024.0)
#define IMBALANCE_RATIO 0.20 /* verdicts.md */
#define IMBALANCE_LEAST 0.30

struct subject {
    const char *where, *rows, *advice;
    double capacity;
};

/* `peaks` has the peak of each rank, 0 where unknown; `sorted` is scratch of the same size. */
static void judge(const struct facts *facts, const struct subject *subject, const double *peaks,
                  double *sorted, struct findings *found)
{
    size_t n = 0, worst = 0;
    for (size_t r = 0; r < facts_world_ranks(facts); r++) {
        if (peaks[r] > 0)
            sorted[n++] = peaks[r];
        if (peaks[r] > peaks[worst])
            worst = r;
    }
    if (n < 2)
        return;
    /* The lower of the two in the middle, so that with two ranks the other one is the median. */
    double median = stats_quantile(sorted, n, (double)((n - 1) / 2) / (double)(n - 1));
    double excess = (peaks[worst] - median) / median;
    if (excess < IMBALANCE_RATIO || !(peaks[worst] >= IMBALANCE_LEAST * subject->capacity))
        return;
    int rank = facts->ranks[worst].rank;
    struct finding *f = findings_add(found, KIND_IMBALANCE, SECTION_MEMORY, SEVERITY_WARNING);
    if (!f)
        return;
    f->rank = rank;
    f->pid = facts->ranks[worst].pid;
    finding_say(f, "Rank %d used up to %.1f GiB %s, the median rank %.1f GiB: %.0f %% more.", rank,
                peaks[worst] / GIB, subject->where, median / GIB, 100 * excess);
    finding_advise(f, ACTION_INSPECT_RANK, "Look for data that only rank %d keeps there: %s.", rank,
                   subject->advice);
    finding_prove(f, EVIDENCE_PEAK, peaks[worst], "%s", subject->rows);
    finding_prove(f, EVIDENCE_PEAK_OF_MEDIAN_RANK, median, "%s", subject->rows);
    finding_prove(f, EVIDENCE_CAPACITY, subject->capacity, "%s",
                  subject->rows[0] == 'm' ? "gpu_samples" : "sys_samples");
}

static void device_peaks(const struct facts *facts, double *peaks)
{
    for (size_t i = 0; i < facts->memory_sample_count; i++)
        for (size_t r = 0; r < facts_world_ranks(facts); r++)
            if (facts->ranks[r].rank == facts->memory_samples[i].rank &&
                facts->memory_samples[i].allocated > peaks[r])
                peaks[r] = facts->memory_samples[i].allocated;
}

static void host_peaks(const struct facts *facts, double *peaks)
{
    for (size_t i = 0; i < facts->proc_sample_count; i++)
        for (size_t r = 0; r < facts_world_ranks(facts); r++)
            if (facts->ranks[r].pid == facts->proc_samples[i].pid &&
                private_bytes(&facts->proc_samples[i]) > peaks[r])
                peaks[r] = private_bytes(&facts->proc_samples[i]);
}

void rule_memory_imbalance(const struct facts *facts, struct findings *found)
{
    size_t n = facts_world_ranks(facts);
    if (n < 2)
        return;
    double *peaks = mem_alloc_array(3 * n, sizeof *peaks);
    if (!peaks) {
        found->failed = 1;
        return;
    }
    const struct subject device = {
        "of its device", "memory_samples",
        "checkpoints loaded without map_location, gathered outputs, or longer samples in its share "
        "of the data",
        device_capacity(facts)};
    const struct subject host = {
        "of host memory",
        "proc_samples WHERE pid IN (SELECT pid FROM processes WHERE role = 'main')",
        "a whole dataset, gathered outputs, or logs that one rank collects for all",
        host_capacity(facts)};
    device_peaks(facts, peaks);
    host_peaks(facts, peaks + n);
    judge(facts, &device, peaks, peaks + 2 * n, found);
    judge(facts, &host, peaks + n, peaks + 2 * n, found);
    mem_free(peaks);
}
