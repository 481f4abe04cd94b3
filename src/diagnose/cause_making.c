/* cause_making.c: causes in making a batch and handing it over. */
#include "diagnose/cause.h"

#include <math.h>
#include <stdio.h>

#define HALF 0.5 /* of the time in question: more than everything else together */
/* Collate time over fetch time. With workers, collate is the cause as soon as it is larger.
 * Without workers, workers would hide both; only a collate of three quarters of the time is a
 * problem by itself, which more processes would multiply. */
#define COLLATE_ALONE 3.0
/* A sample in memory costs a call, an index or two, and a tuple: 2 to 12 us were measured for
 * tensors and arrays, up to 20 us with a cheap transform. Reading, decoding or computing takes
 * longer. */
#define IN_MEMORY_MS    0.025
#define IN_MEMORY_READS 0.05 /* share of reads and decoding that counts as none */
#define IN_MEMORY_BATCH 16   /* samples per batch: with fewer, the batch itself is the overhead */
/* Major faults per second of one worker that may be what it waits for: at 100 us each (a fast
 * disk) they are 2 % of its time. FAULT_MS is the kernel's own time for one fault: at least this
 * was measured of the 34 us of CPU time per fault of a worker that did nothing else. */
#define FAULTS_LEAST 200
#define FAULT_MS     0.02
/* Fetching a batch with one index operation, as measured: a call of the sampler and of the
 * dataset, then one entry per sample for the index list and the copy. */
#define GATHER_MS      0.1
#define GATHER_ITEM_MS 0.0005

static double or_zero(double value)
{
    return isnan(value) ? 0 : value;
}

static void note_lines(const struct loader_view *view, struct finding *f, enum evidence_code code,
                       double share)
{
    if (!isnan(share))
        finding_prove(f, code, share,
                      "input_lines WHERE pid = %lld AND loader IN (%d, -1) AND below IS NULL",
                      (long long)view->loader->pid, view->loader->loader);
}

/* ---- one by one out of memory ---------------------------------------------------------------- */

/* Samples per batch: the loader's batch_size, or what the training received where batch_size is
 * unknown or only an upper limit. (The part `sample` counts only samples that were timed.) It is
 * only a limit when there are more short batches than one per epoch, or than one per worker and
 * epoch for a stream. */
static double samples_per_batch(const struct loader_view *view)
{
    const struct loader_fact *l = view->loader;
    double each = (double)l->batch_size, batches = (double)l->batches, all = (double)l->samples;
    if (l->samples <= 0 || l->batches <= 0)
        return each;
    double ends = (double)l->iterations *
                  (l->iterable == 1 && l->num_workers > 1 ? (double)l->num_workers : 1);
    int full = l->batch_size > 0 && all > (batches - ends) * each && all <= batches * each;
    return full ? each : all / batches;
}

/* The cost of a sample: the median, because a sample that lost its core for some ms distorts the
 * mean. */
static double usual_sample(const struct loader_view *view)
{
    return isnan(view->sample.median) ? view->sample.mean : view->sample.median;
}

/* Many samples per batch that cost almost nothing each, and the time is in fetching them rather
 * than in copying their bytes (which one index operation must do as well). */
static int is_in_memory(const struct loader_view *view)
{
    return usual_sample(view) <= IN_MEMORY_MS && samples_per_batch(view) >= IN_MEMORY_BATCH &&
           !(view->read_share + view->decode_share > IN_MEMORY_READS) &&
           view->fetch.mean >= 0.5 * or_zero(view->collate.mean);
}

static double hand_over_ms(const struct loader_view *view)
{
    return or_zero(view->pickle.mean) + or_zero(view->unpickle.mean) + or_zero(view->pin.mean);
}

/* Workers do not help: making a sample is cheaper than handing it over. So this is tried before
 * all causes that have to do with workers. */
int per_sample_overhead(const struct loader_view *view, struct finding *f)
{
    double making = or_zero(view->fetch.mean) + or_zero(view->collate.mean);
    if (!is_in_memory(view) || hand_over_ms(view) > HAND_OVER_SLOW)
        return 0;
    double wait = view->input_ms / view->batches_per_step;
    if (making < HALF * wait && view->loader->num_workers == 0)
        return 0;
    double items = samples_per_batch(view), gather = GATHER_MS + items * GATHER_ITEM_MS;
    finding_cause(f, CAUSE_PER_SAMPLE_OVERHEAD);
    finding_advise(
        f, ACTION_INDEX_BATCHES,
        "The data is in memory, but for each batch %.0f samples of %.1f us are fetched one by one: "
        "%.2f ms. Fetching them with one index operation takes about %.2f ms: DataLoader(ds, "
        "sampler=BatchSampler(RandomSampler(ds), %.0f, True), batch_size=None).",
        items, 1000 * usual_sample(view), making, gather, items);
    finding_argument(f, "batch_size=None");
    prove_part(view, f, EVIDENCE_SAMPLE_TIME, LEAT_PART_SAMPLE, usual_sample(view));
    prove_part(view, f, EVIDENCE_FETCH_TIME, LEAT_PART_FETCH, view->fetch.mean);
    prove_part(view, f, EVIDENCE_COLLATE_TIME, LEAT_PART_COLLATE, view->collate.mean);
    prove_part(view, f, EVIDENCE_UNPICKLE_TIME, LEAT_PART_UNPICKLE, view->unpickle.mean);
    finding_prove(f, EVIDENCE_SAMPLES_PER_BATCH, items, "loaders WHERE pid = %lld AND loader = %d",
                  (long long)view->loader->pid, view->loader->loader);
    place_line(view, loader_view_top_line(view, LEAT_PART_SAMPLE), f);
    predict(view, f, view->rest_ms + view->batches_per_step * gather, CHANGE_OF_SETTING,
            "batch_size=None,num_workers=0");
    return 1;
}

/* ---- collate --------------------------------------------------------------------------------- */

static void say_collate(const struct loader_view *view, struct finding *f)
{
    const struct line_fact *top = loader_view_top_line(view, LEAT_PART_COLLATE);
    char where[256] = "";
    if (top)
        snprintf(where, sizeof where, ", most of it in %s:%d (%.0f %% of making a batch)",
                 top->line->file, top->line->line, 100 * loader_view_line_share(view, top));
    finding_cause(f, CAUSE_SLOW_COLLATE);
    finding_advise(f, top && top->line->library ? ACTION_RETURN_TENSORS : ACTION_SPEED_UP_COLLATE,
                   "Collating a batch takes %.2f ms, fetching its samples %.2f ms%s. %s",
                   view->collate.mean, or_zero(view->fetch.mean), where,
                   top && top->line->library
                       ? "Return tensors or arrays of one shape from the dataset: Python numbers "
                         "and lists are collated item by item."
                       : "Let collate_fn stack once (torch.stack, or one copy into a new tensor), "
                         "and do the work on single samples in __getitem__.");
    prove_part(view, f, EVIDENCE_COLLATE_TIME, LEAT_PART_COLLATE, view->collate.mean);
    prove_part(view, f, EVIDENCE_FETCH_TIME, LEAT_PART_FETCH, view->fetch.mean);
    place_line(view, top, f);
    struct what_if w = loader_model(view);
    loader_model_scale(&w, what_if_make_ms(&w) - view->collate.mean);
    predict(view, f, what_if_step_ms(&w), CHANGE_OF_CODE, "collate_fn at no cost");
}

int slow_collate(const struct loader_view *view, struct finding *f)
{
    if (!workers_limit(view) || !(view->collate.mean >= view->fetch.mean))
        return 0;
    say_collate(view, f);
    return 1;
}

/* Without workers: only when the line profiler saw a line of the user's collate_fn. torch's own
 * collate of large samples is a copy, which workers overlap. */
int slow_collate_alone(const struct loader_view *view, struct finding *f)
{
    const struct line_fact *top = loader_view_top_line(view, LEAT_PART_COLLATE);
    if (!(view->collate.mean >= COLLATE_ALONE * view->fetch.mean) || !top || top->line->library)
        return 0;
    say_collate(view, f);
    return 1;
}

/* ---- hand-over ------------------------------------------------------------------------------- */

/* The hand-over is the cause in three cases:
 *   - The training would take as long if batches were always ready, because it unpacks them itself;
 *     or workers have pauses and unpacking is most of the wait (the rest is the pipe, which is not
 *     measured separately).
 *   - The pin thread, which unpacks and pins one batch after the other, has no pause.
 *   - Workers have no pause, and pack a batch for longer than they make it.
 * Workers that are always busy are the cause themselves, and answer late because of it: then a slow
 * hand-over of few bytes is no cause. */
int slow_handover(const struct loader_view *view, struct finding *f)
{
    double per_step = view->batches_per_step, wall = view->wall_ms;
    double unpack = or_zero(view->unpickle.mean), pin = or_zero(view->pin.mean);
    double pack = or_zero(view->pickle.mean), making = or_zero(view->make_ms);
    int pinned = view->loader->pin_memory == 1 && view->pin.n > 0;
    double room = view->worker_busy * (1 + pack / making);
    int rested = room < BUSY_SHARE && unpack * per_step >= HALF * view->input_ms;
    int training = !pinned && (rested || unpack * per_step + view->rest_ms >= BUSY_SHARE * wall);
    int thread = pinned && (unpack + pin) * per_step >= BUSY_SHARE * wall;
    int packing = pack >= making && room >= BUSY_SHARE;
    double bytes = loader_view_pipe_bytes(view);
    if (!(unpack + pack + pin > 0) || !(training || thread || packing) ||
        (workers_limit(view) && bytes < FEW_BYTES))
        return 0;
    finding_cause(f, CAUSE_SLOW_HANDOVER);
    finding_advise(f, !(bytes < FEW_BYTES) ? ACTION_SHRINK_BATCHES : ACTION_USE_FEWER_TENSORS,
                   "Handing over a batch takes %.2f ms (packing %.2f ms in the worker, unpacking "
                   "%.2f ms %s%s), making it %.2f ms. %s%s",
                   pack + unpack + pin, pack, unpack,
                   pinned ? "and pinning in the pin thread" : "in the training process",
                   pinned ? "" : ", which waits for it", making,
                   !(bytes < FEW_BYTES)
                       ? "Return batches of a few large tensors: no Python lists, dicts or arrays "
                         "of many items, and nothing that the training does not use."
                       : "Each tensor needs its own connection to the worker, even if it has few "
                         "bytes: return fewer tensors per batch, or call "
                         "torch.multiprocessing.set_sharing_strategy('file_system').",
                   pinned && pin > unpack ? " Try pin_memory=False." : "");
    if (pinned && pin > unpack)
        finding_argument(f, "pin_memory=False");
    prove_part(view, f, EVIDENCE_PICKLE_TIME, LEAT_PART_PICKLE, view->pickle.mean);
    prove_part(view, f, EVIDENCE_UNPICKLE_TIME, LEAT_PART_UNPICKLE, view->unpickle.mean);
    prove_part(view, f, EVIDENCE_PIN_TIME, LEAT_PART_PIN, view->pin.mean);
    if (!isnan(making))
        prove_part(view, f, EVIDENCE_FETCH_TIME, LEAT_PART_FETCH, view->fetch.mean);
    if (bytes > 0)
        finding_prove(f, EVIDENCE_PIPE_BYTES, bytes,
                      "input_parts WHERE pid = %lld AND part = 'pickle'",
                      (long long)view->loader->pid);
    struct what_if w = loader_model(view);
    w.busy_extra_ms = w.pin_ms = 0;
    loader_model_scale(&w, making);
    predict(view, f, what_if_step_ms(&w), CHANGE_OF_CODE, "batches of a few tensors");
    return 1;
}

/* ---- storage --------------------------------------------------------------------------------- */

struct reading {
    double mb_s, calls_s, faults_s; /* of all workers together; NaN: not known */
};

static double rate(double from, double to, double ms)
{
    return from >= 0 && to >= from && ms > 0 ? (to - from) / ms * 1000 : NAN;
}

static void add_rate(double *sum, double value)
{
    if (!isnan(value))
        *sum = or_zero(*sum) + value;
}

static struct reading reading_of(const struct loader_view *view)
{
    struct reading r = {NAN, NAN, NAN};
    const struct facts *facts = view->facts;
    for (size_t i = 0; i < facts->worker_count; i++) {
        const struct proc_sample *first = NULL, *last = NULL;
        if (facts->workers[i].parent_pid != view->loader->pid)
            continue;
        size_t count;
        const struct proc_sample *p = facts_samples(facts, facts->workers[i].pid, &count);
        for (size_t j = 0; j < count; j++) {
            if (p[j].t_ms < view->from_ms || p[j].t_ms > view->to_ms)
                continue;
            first = first ? first : &p[j];
            last = &p[j];
        }
        if (!first)
            continue;
        double ms = last->t_ms - first->t_ms;
        add_rate(&r.mb_s, rate((double)first->read_bytes, (double)last->read_bytes, ms) / 1e6);
        add_rate(&r.calls_s, rate((double)first->read_calls, (double)last->read_calls, ms));
        add_rate(&r.faults_s, rate((double)first->major_faults, (double)last->major_faults, ms));
    }
    return r;
}

/* Share of reads in the time in which a worker worked or waited for something. Stack samples
 * count a thread that queues for a core as working; that time is not part of making a batch. */
static double reads_unqueued(const struct loader_view *view)
{
    const double most = 0.5; /* beyond it too little time is left for a share */
    double queued = view->worker_busy > 0 ? or_zero(view->worker_delay) / view->worker_busy : 0;
    double share = view->read_share / (1 - (queued < most ? queued : most));
    return share > 1 ? 1 : share; /* NaN stays NaN */
}

/* The same for pages of mapped files, which are read by page faults. Stack samples see a thread
 * that waits for a page only where the kernel reports why it is blocked, and never the kernel's
 * own work. So the share is the time in which a busy worker neither ran nor queued, less what
 * lines show it slept, plus the kernel's time for each fault; and only when there were major
 * faults. */
static double faults_unqueued(const struct loader_view *view, const struct reading *r)
{
    double each = r->faults_s / (double)(view->worker_count > 0 ? view->worker_count : 1);
    double at_work = view->worker_busy - or_zero(view->worker_delay);
    if (!(each >= FAULTS_LEAST) || !(at_work > 0))
        return NAN;
    double waited = (at_work - view->worker_cpu) / at_work - or_zero(view->blocked_share);
    double share = (waited > 0 ? waited : 0) + each * FAULT_MS / 1000 / at_work;
    return share > 1 ? 1 : share;
}

/* Storage is tried before the number of workers: more workers overlap reads only as far as the
 * storage is fast enough, which is not known here. The advice names both. */
int slow_storage(const struct loader_view *view, struct finding *f)
{
    struct reading r = reading_of(view);
    double faults = faults_unqueued(view, &r), reads = reads_unqueued(view);
    int mapped = faults >= HALF && !(reads >= HALF);
    if (!workers_limit(view) || !(mapped || reads >= HALF))
        return 0;
    double share = mapped ? faults : view->read_share;
    const struct line_fact *top = loader_view_top_line(view, LEAT_PART_SAMPLE);
    const char *rows =
        "proc_samples WHERE pid IN (SELECT pid FROM workers WHERE parent_pid = %lld)";
    char reached[96] = "";
    if (mapped)
        snprintf(reached, sizeof reached, " (%.1f MB/s, %.0f major faults/s)", or_zero(r.mb_s),
                 r.faults_s);
    else if (!isnan(r.calls_s))
        snprintf(reached, sizeof reached, " (%.1f MB/s, %.0f reads/s)", or_zero(r.mb_s), r.calls_s);
    finding_cause(f, CAUSE_SLOW_STORAGE);
    finding_advise(f, ACTION_MOVE_DATA,
                   "The workers spend %.0f %% of the time to make a batch %s%s. Copy the data to a "
                   "local disk or into memory, or pack it into a few large files. Waiting reads "
                   "need no core, so also try num_workers=%lld.",
                   100 * share, mapped ? "waiting for pages of mapped files" : "blocked in reads",
                   reached, 2 * (long long)view->loader->num_workers);
    finding_argument(f, "num_workers=%lld", 2 * (long long)view->loader->num_workers);
    if (mapped)
        finding_prove(f, EVIDENCE_FAULT_SHARE, share, rows, (long long)view->loader->pid);
    else
        note_lines(view, f, EVIDENCE_READ_SHARE, share);
    prove_busy(view, f);
    long long pid = (long long)view->loader->pid;
    if (!isnan(r.mb_s))
        finding_prove(f, EVIDENCE_STORAGE_RATE, r.mb_s, rows, pid);
    if (!isnan(r.calls_s))
        finding_prove(f, EVIDENCE_READ_CALLS, r.calls_s, rows, pid);
    if (!isnan(r.faults_s))
        finding_prove(f, EVIDENCE_MAJOR_FAULTS, r.faults_s, rows, pid);
    place_line(view, top, f);
    struct what_if w = loader_model(view);
    double cpu_ms = w.make_cpu_ms;
    loader_model_scale(&w, what_if_make_ms(&w) * (1 - share));
    w.make_cpu_ms = cpu_ms;
    predict(view, f, what_if_step_ms(&w), CHANGE_OF_CODE, "reads at no cost");
    return 1;
}

/* ---- the sample itself ----------------------------------------------------------------------- */

int slow_sample(const struct loader_view *view, struct finding *f)
{
    const struct line_fact *top = loader_view_top_line(view, LEAT_PART_SAMPLE);
    if (!workers_limit(view) || isnan(view->fetch.mean) ||
        !(view->fetch.mean > or_zero(view->collate.mean)))
        return 0;
    double share = loader_view_line_share(view, top),
           other = 1 - view->sample_read - view->sample_decode;
    double each =
        view->sample.n > 0 ? view->sample.mean : view->fetch.mean / samples_per_batch(view);
    char parts[96] = "", where[256] = "";
    if (!isnan(other))
        snprintf(parts, sizeof parts, " (read %.0f %%, decode %.0f %%, other %.0f %%)",
                 100 * view->sample_read, 100 * view->sample_decode, 100 * other);
    if (top)
        snprintf(where, sizeof where, " %s:%d takes %.0f %% of making a batch.", top->line->file,
                 top->line->line, 100 * share);
    finding_cause(f, CAUSE_SLOW_SAMPLE);
    finding_advise(f, view->sample_decode >= HALF ? ACTION_DECODE_LESS : ACTION_SPEED_UP_SAMPLE,
                   "A sample takes %.2f ms%s, and no core is free for more than %lld workers.%s %s",
                   each, parts, (long long)view->loader->num_workers, where,
                   view->sample_decode >= HALF ? "Decode less: store the images at the size that "
                                                 "the model needs, or store them decoded."
                                               : "Make that line cheaper, or do its work once "
                                                 "before the training and store the result.");
    prove_part(view, f, EVIDENCE_SAMPLE_TIME, LEAT_PART_SAMPLE, view->sample.mean);
    prove_part(view, f, EVIDENCE_FETCH_TIME, LEAT_PART_FETCH, view->fetch.mean);
    note_lines(view, f, EVIDENCE_SAMPLE_READ_SHARE, view->sample_read);
    note_lines(view, f, EVIDENCE_SAMPLE_DECODE_SHARE, view->sample_decode);
    prove_busy(view, f);
    place_line(view, top, f);
    struct what_if w = loader_model(view);
    if (share > 0 && share < 1) {
        loader_model_scale(&w, what_if_make_ms(&w) * (1 - share));
        predict(view, f, what_if_step_ms(&w), CHANGE_OF_CODE, "%s:%d at no cost", top->line->file,
                top->line->line);
    }
    return 1;
}
