/* cause_input.c: why the input is slow, from what the loader and its workers say of themselves.
 *
 * The causes are tried in the order in which they exclude each other: without workers nothing
 * overlaps, whatever else is true; waiting at the start of each epoch is not cured by more workers;
 * one slow worker holds up all, because batches come in order; and only then is the number of
 * workers in question. Where none is clear there is no cause, and the finding says what is known.
 *
 * The what-if model is deliberately small. A step that overlaps with n workers takes as long as the
 * slowest of three: the rest of the step, the making of a batch divided by n, and the CPU time of
 * both divided by the cores that other programs leave. It knows nothing of hand-over and
 * contention, so it promises no more than these three allow.
 */
#include "diagnose/rule.h"

#include "base/mem.h"
#include "base/stats.h"

#include <math.h>
#include <string.h>

#define STARTUP_SHARE  0.50 /* of the input time: more than all other waiting together */
#define BUSY_SHARE     0.90 /* verdicts.md: workers busy from here on are the limit */
#define UNEVEN_RATIO   2.0  /* one worker's batch against the median: beyond scatter of batches */
#define UNEVEN_BATCHES 5    /* with fewer, one slow batch makes a slow worker */
#define FREE_CORES     0.5  /* cores idle on average from which one more worker finds room */
#define IDLE_WORKER    0.25 /* cores a worker uses below which it mostly waits */
#define WORKERS_MOST   16   /* advised at the most: beyond it, measuring is better than guessing */
#define SATURATED      0.95 /* machine CPU use at which no core is free */

struct scene {
    const struct facts *facts;
    const struct rank_facts *rank;
    const struct loader_fact *loader;
    double input_ms, wall_ms, rest_ms; /* per step */
    double from_ms, to_ms;             /* kept steps */
    double cores, left;                /* that the run may use; that others leave to it */
    /* workers of this loader's process */
    size_t workers;
    double busy_ms, alive_ms, batches, worker_cpu; /* worker_cpu: cores one keeps busy; NaN */
    int mixed; /* other loaders of the process have workers too: whose is whose is not known */
};

static void look(struct scene *s)
{
    double cpu = 0;
    size_t sampled = 0;
    kept_interval(s->rank, &s->from_ms, &s->to_ms);
    s->left = cores_left(s->facts, s->from_ms, s->to_ms);
    for (size_t i = 0; i < s->facts->worker_count; i++) {
        const struct worker_fact *w = &s->facts->workers[i];
        if (w->parent_pid != s->loader->pid || !(w->alive_ms > 0) || w->batches <= 0)
            continue;
        s->workers++;
        s->busy_ms += w->busy_ms;
        s->alive_ms += w->alive_ms;
        s->batches += (double)w->batches;
        double used = process_cpu(s->facts, w->pid, s->from_ms, s->to_ms);
        if (!isnan(used)) {
            cpu += used;
            sampled++;
        }
    }
    for (size_t i = 0; i < s->facts->loader_count; i++) {
        const struct loader_fact *l = &s->facts->loaders[i];
        s->mixed |= l != s->loader && l->pid == s->loader->pid && l->num_workers > 0;
    }
    s->worker_cpu = sampled ? cpu / (double)sampled : NAN;
}

/* CPU time per step of making a batch in the main process: what the process used beyond the rest of
 * the step, which is taken to keep one core busy. Compute that uses several cores makes this too
 * large, and the prediction too modest: the safe side. Unknown counts as all CPU. */
static double input_cpu_ms(const struct scene *s)
{
    double used = process_cpu(s->facts, s->rank->pid, s->from_ms, s->to_ms);
    if (isnan(used))
        return s->input_ms;
    double cpu = used * s->wall_ms - s->rest_ms;
    return cpu < 0 ? 0 : cpu > s->input_ms ? s->input_ms : cpu;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Without workers. The number advised covers the rest of the step if the cores suffice: workers
 * that only wait for storage may outnumber them, those that compute may not. */
static void no_overlap(const struct scene *s, struct finding *f)
{
    double cpu_ms = input_cpu_ms(s);
    double wanted = ceil(s->input_ms / larger(s->rest_ms, 0.05 * s->wall_ms));
    double room = s->left * s->input_ms / larger(cpu_ms, 0.05 * s->input_ms);
    double n = wanted < room ? wanted : floor(room);
    n = larger(2, n < WORKERS_MOST ? n : WORKERS_MOST); /* two: one prepares, one hands over */
    double new_ms = larger(larger(s->rest_ms, s->input_ms / n), (cpu_ms + s->rest_ms) / s->left);
    finding_cause(f, "NO_OVERLAP");
    finding_advise(f,
                   "Give the loader workers, so that batches are made while the model computes: "
                   "DataLoader(..., num_workers=%.0f, persistent_workers=True).",
                   n);
    finding_prove(f, "num_workers", 0, "workers", "loaders WHERE pid = %lld AND loader = %d",
                  (long long)s->loader->pid, s->loader->loader);
    f->predicted_gain = gain_of(s->wall_ms, new_ms);
}

/* Share of the kept input time that falls on the first batch of an epoch. */
static double startup_share(const struct scene *s)
{
    const struct rank_facts *r = s->rank;
    double first = 0, all = 0;
    for (size_t i = 0; r->phase_ms[PHASE_INPUT] && i < r->count; i++) {
        double input = r->weight[i] * r->phase_ms[PHASE_INPUT][i];
        all += input;
        if (r->weight[i] == 1 && (r->flags[i] & STEP_EPOCH_START))
            first += input;
    }
    return all > 0 ? first / all : 0;
}

static int worker_startup(const struct scene *s, struct finding *f)
{
    double share = startup_share(s);
    if (share < STARTUP_SHARE || s->loader->persistent_workers != 0 || s->loader->iterations < 2)
        return 0;
    double each = s->loader->first_wait_ms / (double)s->loader->iterations;
    finding_cause(f, "WORKER_STARTUP");
    finding_advise(f,
                   "Each of %lld epochs starts its workers anew and waits %.0f ms for the first "
                   "batch. Keep them: DataLoader(..., num_workers=%lld, persistent_workers=True).",
                   (long long)s->loader->iterations, each, (long long)s->loader->num_workers);
    finding_prove(f, "input time spent on the first batch of an epoch", share, "ratio",
                  "steps WHERE id>>40 = %d AND flags & 1", s->rank->rank);
    finding_prove(f, "first-batch wait per epoch", each, "ms",
                  "loaders WHERE pid = %lld AND loader = %d", (long long)s->loader->pid,
                  s->loader->loader);
    f->predicted_gain = gain_of(s->wall_ms, s->wall_ms - share * s->input_ms);
    return 1;
}

static int uneven_workers(const struct scene *s, struct finding *f)
{
    const struct worker_fact *slowest = NULL;
    double per_batch[256], slowest_ms = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->facts->worker_count; i++) {
        const struct worker_fact *w = &s->facts->workers[i];
        if (w->parent_pid != s->loader->pid || w->batches < UNEVEN_BATCHES)
            continue;
        double each = w->busy_ms / (double)w->batches;
        if (n < sizeof per_batch / sizeof *per_batch)
            per_batch[n++] = each;
        if (each > slowest_ms) {
            slowest_ms = each;
            slowest = w;
        }
    }
    if (n < 2 || s->mixed)
        return 0;
    /* With two workers their median is the mean of both, which hides the slow one: the lower of the
     * two in the middle stands for the usual worker. */
    double usual = stats_quantile(per_batch, n, (double)((n - 1) / 2) / (double)(n - 1));
    if (!(slowest_ms >= UNEVEN_RATIO * usual))
        return 0;
    finding_cause(f, "UNEVEN_WORKERS");
    finding_advise(
        f,
        "Worker %d takes %.1f ms a batch, the usual worker %.1f ms, and batches are "
        "given out in turn, so all wait for it. Spread its samples evenly (shuffle=True, "
        "or shards of equal size)%s.",
        slowest->worker_id, slowest_ms, usual,
        s->loader->iterable == 1 ? "; an IterableDataset splits by get_worker_info()" : "");
    finding_prove(f, "busy per batch of the slowest worker", slowest_ms, "ms",
                  "workers WHERE pid = %lld", (long long)slowest->pid);
    finding_prove(f, "busy per batch of the usual worker", usual, "ms",
                  "workers WHERE parent_pid = %lld", (long long)s->loader->pid);
    f->worker = slowest->worker_id;
    f->predicted_gain = gain_of(
        s->wall_ms, larger(s->rest_ms, usual / (double)larger(1, (double)s->loader->num_workers)));
    return 1;
}

static void prove_busy(const struct scene *s, struct finding *f, double busy)
{
    finding_prove(f, "share of time the workers were busy", busy, "ratio",
                  "workers WHERE parent_pid = %lld", (long long)s->loader->pid);
    finding_prove(f, "time to make a batch", s->busy_ms / s->batches, "ms",
                  "workers WHERE parent_pid = %lld", (long long)s->loader->pid);
}

/* Room for more workers: cores are idle, or workers hardly use theirs (they wait for storage or the
 * network). Where neither was sampled, in a short run, fewer workers than cores will do. */
static int has_room(const struct scene *s, double idle)
{
    if (isnan(idle) && isnan(s->worker_cpu))
        return (double)s->loader->num_workers < s->cores;
    return idle >= FREE_CORES || s->worker_cpu <= IDLE_WORKER;
}

/* How many workers there is room for. Those that compute need idle cores, at what one of them uses
 * now; those that wait need none. */
static double workers_most(const struct scene *s, double idle)
{
    double have = (double)s->loader->num_workers;
    double cpu = isnan(s->worker_cpu) ? 1 : s->worker_cpu;
    if (cpu <= IDLE_WORKER)
        return larger(have + 1, WORKERS_MOST);
    if (isnan(idle))
        return larger(have + 1, s->cores);
    return have + larger(1, floor(idle / cpu));
}

static int too_few_workers(const struct scene *s, struct finding *f, double busy, double machine)
{
    double idle = (1 - machine) * s->cores; /* NaN where the machine was not sampled */
    if (!(busy >= BUSY_SHARE) || !has_room(s, idle))
        return 0;
    double have = (double)s->loader->num_workers;
    double per_step = larger(1, (double)s->rank->micro_steps / (double)s->rank->kept);
    double batch_ms = s->busy_ms / s->batches;
    double needed = ceil(batch_ms * per_step / larger(s->rest_ms, 0.05 * s->wall_ms));
    double most = workers_most(s, idle);
    double n = needed < most ? needed : most;
    n = n <= have ? have + 1 : n;
    finding_cause(f, "TOO_FEW_WORKERS");
    finding_advise(f,
                   "The workers (%.0f) are busy %.0f %% of the time and there is room for more: "
                   "DataLoader(..., num_workers=%.0f, persistent_workers=True)%s.",
                   have, 100 * busy, n, needed > n ? "; beyond that, measure" : "");
    prove_busy(s, f, busy);
    finding_prove(f, "workers needed", needed, "workers", "workers WHERE parent_pid = %lld",
                  (long long)s->loader->pid);
    if (!isnan(idle))
        finding_prove(f, "idle cores", idle, "cores", "sys_samples");
    f->predicted_gain = gain_of(s->wall_ms, larger(s->rest_ms, batch_ms * per_step / n));
    return 1;
}

static int cpu_oversubscribed(const struct scene *s, struct finding *f, double busy, double machine)
{
    /* Clear only when the machine is full, the workers alone could fill it, and they are what it is
     * filled with. */
    double have = (double)s->loader->num_workers;
    if (!(busy >= BUSY_SHARE) || !(machine >= SATURATED) || have <= s->cores ||
        isnan(s->worker_cpu) || s->worker_cpu * have < 0.5 * s->cores)
        return 0;
    finding_cause(f, "CPU_OVERSUBSCRIBED");
    finding_advise(f,
                   "%.0f workers share %.0f cores, each getting %.2f of one. Use "
                   "DataLoader(..., num_workers=%.0f), and make a sample cheaper (smaller images, "
                   "decoded or cached data).",
                   have, s->cores, s->worker_cpu, s->cores);
    prove_busy(s, f, busy);
    finding_prove(f, "machine CPU use", machine, "ratio", "sys_samples");
    finding_prove(f, "cores one worker gets", s->worker_cpu, "cores",
                  "proc_samples WHERE pid IN (SELECT pid FROM workers WHERE parent_pid = %lld)",
                  (long long)s->loader->pid);
    return 1;
}

static void unclear(const struct scene *s, struct finding *f, double busy)
{
    if (isnan(busy)) {
        finding_advise(f,
                       "The wait is %.2f ms a step, in next() of the loader made at %s. Look at "
                       "what makes a batch there.",
                       s->input_ms, s->loader->where[0] ? s->loader->where : "an unknown place");
        return;
    }
    prove_busy(s, f, busy);
    finding_advise(
        f,
        "The wait is %.2f ms a step; a batch takes a worker %.2f ms, and the %zu workers "
        "are busy %.0f %% of the time. Make a sample cheaper, or try another num_workers "
        "(now %lld).",
        s->input_ms, s->busy_ms / s->batches, s->workers, 100 * busy,
        (long long)s->loader->num_workers);
}

void explain_input(const struct facts *facts, const struct rank_facts *rank, double input_ms,
                   struct finding *f)
{
    if (!f)
        return;
    const struct loader_fact *loader = feeding_loader(facts, rank->rank);
    if (!loader) {
        finding_advise(f, "The wait is in what the script marks as input; no DataLoader was seen. "
                          "Make batches ahead, in a DataLoader with workers.");
        return;
    }
    double wall_ms = rank->kept_ms / (double)rank->kept;
    struct scene s = {.facts = facts,
                      .rank = rank,
                      .loader = loader,
                      .input_ms = input_ms,
                      .wall_ms = wall_ms,
                      .rest_ms = wall_ms - phase_mean(rank, PHASE_INPUT),
                      .cores = facts->cpus > 0 ? (double)facts->cpus : 1};
    look(&s);
    finding_place(f, loader->where, input_ms / wall_ms);
    if (loader->batches > 0 && !isnan(loader->wait_ms))
        finding_prove(f, "wait per batch", loader->wait_ms / (double)loader->batches, "ms",
                      "loaders WHERE pid = %lld AND loader = %d", (long long)loader->pid,
                      loader->loader);
    double busy = s.alive_ms > 0 ? s.busy_ms / s.alive_ms : NAN;
    double machine = machine_cpu(facts, s.from_ms, s.to_ms);
    if (loader->num_workers == 0)
        no_overlap(&s, f);
    else if (loader->num_workers < 0 ||
             !(worker_startup(&s, f) || uneven_workers(&s, f) ||
               too_few_workers(&s, f, busy, machine) || cpu_oversubscribed(&s, f, busy, machine)))
        unclear(&s, f, busy);
}
