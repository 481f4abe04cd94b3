/* cause_engine.c: why batches of leat's own loader come late.
 *
 * The engine counts the time of its threads by stage, and the training counts its waits, so the
 * cause can be read from the figures. Tried in this order:
 *
 *     SLOW_SAMPLER      the wait is outside the engine: indices are drawn in Python for each batch
 *     SLOW_HANDOVER     the same, but the order is the engine's: batches are pinned or copied
 *
 * with threads that are busy
 *
 *     TOO_FEW_THREADS   cores are free for more threads
 *     SLOW_READ         no core is free, and reading is the largest stage
 *     SLOW_LAYOUT       ... padding and joining samples of several lengths
 *     SLOW_ORDER        ... choosing the next sample
 *
 * with threads that have pauses
 *
 *     TOO_FEW_AHEAD     the time per batch varies, and too few batches are made ahead
 *
 * The model is in predict/engine_model.h. */
#include "diagnose/cause.h"
#include "predict/engine_model.h"

#include <math.h>
#include <stdio.h>

#define ENGINE_WAIT 0.5 /* of the wait in next(): below it the engine is not the cause */
#define FREE_CORES  0.5 /* idle on average: enough for one more thread */
#define WAITS       0.5 /* cores per busy thread below which threads mostly wait */
#define THREADS_MOST                                                                               \
    16                  /* advised at most: with more, a measurement is better than a prediction   \
                         */
#define FULL_BUDGET 0.5 /* of the memory budget: twice as many batches ahead would fill it */

/* ---- saying it ------------------------------------------------------------------------------- */

static void prove_stages(const struct engine_view *v, struct finding *f)
{
    const struct engine_fact *e = v->e;
    const struct {
        enum evidence_code code;
        double value;
    } rows[] = {
        {EVIDENCE_THREADS_BUSY,       v->busy                  },
        {EVIDENCE_ENGINE_READ_TIME,   e->read_ms / e->batches  },
        {EVIDENCE_ENGINE_LAYOUT_TIME, e->layout_ms / e->batches},
        {EVIDENCE_ENGINE_ORDER_TIME,  e->order_ms / e->batches },
        {EVIDENCE_ENGINE_THREADS,     (double)e->threads       },
        {EVIDENCE_REQUESTS_NOT_READY, e->waits / e->batches    }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (isfinite(rows[i].value) && rows[i].value > 0)
            finding_prove(f, rows[i].code, rows[i].value,
                          "engines WHERE pid = %lld AND loader = %d", (long long)e->pid, e->loader);
    if (!isnan(v->idle))
        finding_prove(f, EVIDENCE_IDLE_CORES, v->idle, "sys_samples");
}

/* "leat's loader: reading takes 92 % of its threads' time. 1 thread on 2 cores." */
static void say_stage(const struct engine_view *v, char *text, size_t bytes)
{
    long long threads = (long long)v->e->threads;
    snprintf(text, bytes,
             "leat's loader: %s takes %.0f %% of its threads' time. %lld thread%s on %.0f core%s.",
             v->stage, 100 * v->busy * v->stage_share, threads, threads == 1 ? "" : "s",
             v->view->cores, v->view->cores > 1 ? "s" : "");
}

/* ---- not the engine's ------------------------------------------------------------------------ */

static int outside_the_engine(const struct engine_view *v, struct finding *f)
{
    const struct engine_fact *e = v->e;
    const struct loader_fact *l = v->view->loader;
    if (!(l->wait_ms > 0) || e->wait_ms >= ENGINE_WAIT * l->wait_ms)
        return 0;
    int given = e->order == ENGINE_GIVEN;
    double share = 1 - e->wait_ms / l->wait_ms;
    finding_cause(f, given ? CAUSE_SLOW_SAMPLER : CAUSE_SLOW_HANDOVER);
    if (given) {
        finding_advise(f, ACTION_SHUFFLE_IN_LEAT,
                       "The batches are ready, but %.0f %% of the wait is spent drawing indices in "
                       "Python. Let leat draw them: pass no sampler, but shuffle=True%s.",
                       100 * share, " or order=\"quasi\"");
        finding_argument(f, "shuffle=True");
    } else
        finding_advise(f, l->pin_memory == 1 ? ACTION_SET_LOADER : ACTION_RELEASE_BATCHES,
                       "The batches are ready, but %.0f %% of the wait is spent handing them over "
                       "in Python%s.",
                       100 * share,
                       l->pin_memory == 1
                           ? ": try pin_memory=False"
                           : ": release each batch before you take the next (a batch that you keep "
                             "is copied), or use larger batches");
    if (!given && l->pin_memory == 1)
        finding_argument(f, "pin_memory=False");
    prove_stages(v, f);
    finding_prove(f, EVIDENCE_WAIT_OUTSIDE_ENGINE, share,
                  "engines WHERE pid = %lld AND loader = %d", (long long)e->pid, e->loader);
    double input = v->view->input_ms * (1 - share);
    predict(v->view, f, v->view->rest_ms + input, CHANGE_OF_CODE,
            given ? "indices at no cost" : "hand-over at no cost");
    return 1;
}

/* ---- the threads ----------------------------------------------------------------------------- */

static int mostly_waits(const struct engine_view *v)
{
    return v->cpu < WAITS; /* 0 when it is NaN */
}

static int too_few_threads(const struct engine_view *v, struct finding *f)
{
    const struct engine_fact *e = v->e;
    int has_free_cores =
        isnan(v->idle) ? (double)e->threads + 1 < v->view->cores : v->idle >= FREE_CORES;
    if (!has_free_cores)
        return 0;
    double each = fmax(isnan(v->cpu) ? 1 : v->cpu, 0.25);
    double more = mostly_waits(v) ? THREADS_MOST : floor(fmax(v->idle, 1) / each);
    int most = (int)fmax((double)e->threads + 1, fmin((double)e->threads + more, THREADS_MOST));
    int threads = engine_threads_for(v, most);
    char stage[256];
    say_stage(v, stage, sizeof stage);
    finding_cause(f, CAUSE_TOO_FEW_THREADS);
    finding_advise(
        f, ACTION_SET_LOADER, "%s%s Use more threads: leat.DataLoader(..., num_threads=%d).", stage,
        mostly_waits(v) ? " They wait for storage more than they compute." : "", threads);
    finding_argument(f, "num_threads=%d", threads);
    prove_stages(v, f);
    predict(v->view, f, engine_step_ms(v, engine_step_work(v), threads), CHANGE_OF_SETTING,
            "num_threads=%d", threads);
    return 1;
}

/* A full shuffle reads every sample from another place of the file. An order of neighbours helps
 * where several of them are in one chunk, shard or block. */
static void advise_reading(const struct engine_view *v, struct finding *f, const char *stage)
{
    const char
        *order = NULL,
        *advice =
            "Store fewer bytes per sample (float16, uint8, smaller images), next to each other.";
    enum engine_source source = v->e->source_kind;
    int shuffled = v->e->order == ENGINE_FULL || v->e->order == ENGINE_GIVEN;
    if (shuffled && source == ENGINE_HDF5) {
        order = "window";
        advice = "A full shuffle reads a whole chunk of the file for each sample. order=\"window\" "
                 "shuffles among neighbours, which share chunks. Or rechunk the file to one sample "
                 "per chunk.";
    } else if (shuffled && source == ENGINE_TAR) {
        order = "window";
        advice = "A full shuffle reads another shard for every sample. order=\"window\" shuffles "
                 "among neighbours, which are in one shard.";
    } else if (shuffled &&
               (source == ENGINE_NPY || source == ENGINE_TOKENS || source == ENGINE_LMDB)) {
        order = "quasi";
        advice = "A full shuffle reads another place of the file for every sample. order=\"quasi\" "
                 "reads blocks of neighbours. Samples are also faster to read when their bytes are "
                 "next to each other (C order) and fewer (float16, uint8).";
    }
    finding_advise(f, order ? ACTION_READ_NEIGHBOURS : ACTION_STORE_LESS,
                   "%s No core is free for more threads. %s", stage, advice);
    if (order)
        finding_argument(f, "order=%s", order);
}

static int slow_stage(const struct engine_view *v, struct finding *f)
{
    const struct engine_fact *e = v->e;
    char stage[256];
    say_stage(v, stage, sizeof stage);
    double rate = e->read_ms > 0 ? e->bytes / e->read_ms / 1e3 : NAN;
    if (e->read_ms >= e->layout_ms && e->read_ms >= e->order_ms) {
        finding_cause(f, CAUSE_SLOW_READ);
        advise_reading(v, f, stage);
        if (!isnan(rate))
            finding_prove(f, EVIDENCE_THREAD_READ_RATE, rate,
                          "engines WHERE pid = %lld AND loader = %d", (long long)e->pid, e->loader);
        prove_stages(v, f);
        return 1;
    }
    int layout = e->layout_ms >= e->order_ms;
    double without = layout ? e->read_ms + e->order_ms : e->read_ms + e->layout_ms;
    finding_cause(f, layout ? CAUSE_SLOW_LAYOUT : CAUSE_SLOW_ORDER);
    finding_advise(f, layout ? ACTION_PAD_LESS : ACTION_ORDER_CHEAPLY, "%s %s", stage,
                   layout ? "Put samples of similar length into one batch, so that less padding is "
                            "needed: sort or bucket them by length, or truncate the longest."
                          : "Use larger batches, or order=\"quasi\", which needs fewer random "
                            "numbers per sample.");
    prove_stages(v, f);
    predict(v->view, f,
            engine_step_ms(v, engine_step_work(v) * without / v->work_ms, (double)e->threads),
            CHANGE_OF_CODE, layout ? "padding at no cost" : "order at no cost");
    return 1;
}

/* The threads are fast enough on average; too few batches are made ahead. */
static int too_few_ahead(const struct engine_view *v, struct finding *f)
{
    const struct engine_fact *e = v->e;
    double batch = e->batches > 0 ? e->bytes / e->batches : NAN;
    int by_memory = batch * (double)(e->ahead + 2) > FULL_BUDGET * e->memory_bytes;
    if (!(e->waits > 0) || isnan(v->busy))
        return 0;
    finding_cause(f, CAUSE_TOO_FEW_AHEAD);
    finding_advise(f, by_memory ? ACTION_RAISE_BUDGET : ACTION_ADAPT_AHEAD,
                   "leat's threads are idle %.0f %% of the time, but %.0f %% of requests find no "
                   "batch ready: the time per batch varies, and only %lld %s made ahead. %s",
                   100 * (1 - v->busy), 100 * fmin(1, e->waits / e->batches), (long long)e->ahead,
                   e->ahead == 1 ? "is" : "are",
                   by_memory ? "Allow more memory with leat.DataLoader(..., memory_budget=...), or "
                               "use smaller batches."
                             : "Do not pass num_threads, so that leat adapts how many batches are "
                               "made ahead (autotune=True), or use smaller batches.");
    prove_stages(v, f);
    finding_prove(f, EVIDENCE_BATCHES_AHEAD, (double)e->ahead,
                  "engines WHERE pid = %lld AND loader = %d", (long long)e->pid, e->loader);
    return 1;
}

int explain_engine(const struct loader_view *view, const struct engine_fact *engine,
                   struct finding *f)
{
    struct engine_view v = engine_look(view, engine);
    if (!(engine->batches > 0) || !(v.work_ms > 0))
        return 0;
    if (outside_the_engine(&v, f))
        return 1;
    if (!(v.busy < BUSY_SHARE))
        return too_few_threads(&v, f) || slow_stage(&v, f);
    return too_few_ahead(&v, f);
}
