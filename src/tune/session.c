/* session.c: see session.h. */
#include "tune/session.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If a rate is not known after this time, samples differ much in cost; the estimate so far is used.
 */
#define ROW_S 0.6
/* How many samples are timed one by one, and for how long at most. */
#define SAMPLES   512
#define SAMPLES_S 0.5
/* The rate with a cached batch is a bound: its order of magnitude is enough. */
#define CACHED_S    0.4
#define MODEL_S     3.0
#define MODEL_STEPS 200
/* An interrupted process ends its workers and answers; torch waits 5 s for each. */
#define ANSWER_S 15.0
/* Before its first step the model may compile, or load weights to a device. */
#define MODEL_HANG_S 120.0

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / NS_PER_S : 0;
}

void session_init(struct session *s, const struct tune_limits *limits, int has_model)
{
    memset(s, 0, sizeof *s);
    tune_result_init(&s->result);
    s->result.limits = *limits;
    s->has_model = has_model;
    s->row_memory = -1;
    rate_init(&s->rate, 0);
}

void session_done(struct session *s)
{
    tune_result_done(&s->result);
    rate_done(&s->rate);
    str_done(&s->output);
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static void send_request(struct session *s, json_t *request)
{
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    if (text)
        str_addf(&s->output, "%s\n", text);
    free(text); /* jansson's */
    json_decref(request);
}

static void begin(struct session *s, enum session_stage stage, uint64_t now_ns)
{
    s->stage = stage;
    s->stage_start_ns = s->last_line_ns = now_ns;
    s->stopping = s->interrupted_row = 0;
    s->row_memory = -1;
    s->row_error[0] = 0;
}

static void request_row(struct session *s, const struct tune_config *c, int cached)
{
    s->config = *c;
    rate_done(&s->rate);
    rate_init(&s->rate, c->workers);
    json_t *request = json_pack("{s:s,s:i,s:i,s:b,s:b,s:I,s:b,s:b}", "do", "measure", "num_workers",
                                c->workers, "prefetch_factor", c->prefetch, "pin_memory", c->pin,
                                "persistent_workers", c->persistent, "batch_size",
                                (json_int_t)c->batch_size, "cached", cached, "leat", c->leat);
    send_request(s, request);
}

static void end(struct session *s)
{
    s->stage = SESSION_END;
    send_request(s, json_pack("{s:s}", "do", "end"));
    s->action = SESSION_KILL;
}

static void begin_model(struct session *s, uint64_t now_ns)
{
    struct tune_config choice;
    if (s->result.elapsed_s <= 0)
        s->result.elapsed_s = seconds(s->start_ns, now_ns);
    if (!s->has_model || search_choice(&s->result, &choice) < 0) {
        end(s);
        return;
    }
    begin(s, SESSION_MODEL, now_ns);
    send_request(s, json_pack("{s:s,s:f,s:i,s:b}", "do", "model", "seconds", MODEL_S, "steps",
                              MODEL_STEPS, "pin_memory", choice.pin));
}

static void begin_cached(struct session *s, uint64_t now_ns)
{
    struct tune_config choice;
    if (search_choice(&s->result, &choice) < 0) {
        end(s);
        return;
    }
    if (choice.leat) { /* no worker processes: handing over is no bound */
        begin_model(s, now_ns);
        return;
    }
    choice.persistent = 0;
    begin(s, SESSION_CACHED, now_ns);
    request_row(s, &choice, 1);
}

static int is_out_of_time(struct session *s, uint64_t now_ns)
{
    if (seconds(s->start_ns, now_ns) < s->result.limits.time_s)
        return 0;
    s->result.out_of_time = 1;
    return 1;
}

static void begin_next_row(struct session *s, uint64_t now_ns)
{
    struct tune_config config;
    if (is_out_of_time(s, now_ns)) {
        begin_model(s, now_ns);
    } else if (search_next(&s->result, &config)) {
        begin(s, SESSION_ROW, now_ns);
        request_row(s, &config, 0);
    } else {
        s->result.elapsed_s = seconds(s->start_ns, now_ns);
        begin_cached(s, now_ns);
    }
}

static void request_stop(struct session *s)
{
    if (!s->stopping)
        send_request(s, json_pack("{s:s}", "do", "stop"));
    s->stopping = 1;
}

/* ---- answers --------------------------------------------------------------------------- */

static void copy_text(char *to, size_t bytes, const json_t *from, const char *member)
{
    snprintf(to, bytes, "%s", json_find_text(from, member, ""));
}

static int64_t whole(const json_t *from, const char *member, int64_t otherwise, int64_t most)
{
    double value = json_find_number(from, member, NAN);
    return value >= 0 && value <= (double)most ? (int64_t)value : otherwise;
}

static void take_copies(struct tune_facts *f, const json_t *m)
{
    copy_text(f->device, sizeof f->device, m, "device");
    f->accelerator = f->device[0] != 0;
    f->non_blocking = (int)whole(m, "non_blocking", -1, 1);
    f->copy_bytes = whole(m, "copy_bytes", -1, INT64_MAX / 2);
    f->can_leat = (int)whole(m, "can_leat", 0, 1);
}

static void begin_samples(struct session *s, uint64_t now_ns)
{
    begin(s, SESSION_SAMPLES, now_ns);
    send_request(
        s, json_pack("{s:s,s:i,s:f}", "do", "samples", "count", SAMPLES, "seconds", SAMPLES_S));
}

static void take_hello(struct session *s, const json_t *m, uint64_t now_ns)
{
    struct tune_facts *f = &s->result.facts;
    copy_text(f->dataset, sizeof f->dataset, m, "dataset");
    copy_text(f->where, sizeof f->where, m, "where");
    copy_text(f->torch, sizeof f->torch, m, "torch");
    copy_text(f->context, sizeof f->context, m, "context");
    copy_text(f->call_name, sizeof f->call_name, m, "call_name");
    f->now = (struct tune_config){
        .workers = (int)whole(m, "num_workers", 0, 4096),
        .pin = (int)whole(m, "pin_memory", 0, 1),
        .batch_size = whole(m, "batch_size", 0, INT32_MAX),
    };
    if (whole(m, "leat", 0, 1))
        f->now = (struct tune_config){.leat = 1, .batch_size = f->now.batch_size};
    if (f->now.workers) {
        f->now.prefetch = (int)whole(m, "prefetch_factor", TUNE_PREFETCH, 4096);
        f->now.persistent = (int)whole(m, "persistent_workers", 0, 1);
    }
    f->dataset_length = whole(m, "dataset_length", -1, INT64_MAX / 2);
    f->epoch_batches = whole(m, "epoch_batches", -1, INT64_MAX / 2);
    f->iterable = (int)whole(m, "iterable", 0, 1);
    f->can_batch = (int)whole(m, "can_batch", 0, 1);
    f->local_ranks = (int)whole(m, "local_ranks", 1, 4096);
    json_t *call = json_object_get(m, "call");
    if (json_is_array(call))
        f->call = json_incref(call);
    /* Ranks of one machine share its CPUs. */
    if (f->local_ranks > 1)
        s->result.limits.cpus /= f->local_ranks;
    s->start_ns = now_ns;
    take_copies(f, m);
    if (s->has_model && !f->accelerator && whole(m, "accelerator", 0, 1)) {
        begin(s, SESSION_STEP, now_ns);
        send_request(s, json_pack("{s:s}", "do", "step"));
    } else {
        begin_samples(s, now_ns);
    }
}

static void take_step(struct session *s, const json_t *m, uint64_t now_ns)
{
    take_copies(&s->result.facts, m);
    /* The time limit is for the search, not for the script's own step. */
    s->start_ns = now_ns;
    begin_samples(s, now_ns);
}

static void take_samples(struct session *s, const json_t *m, uint64_t now_ns)
{
    struct tune_facts *f = &s->result.facts;
    f->sample_count = whole(m, "count", 0, INT32_MAX);
    f->sample_mean_s = json_find_number(m, "mean_s", NAN);
    f->sample_p99_s = json_find_number(m, "p99_s", NAN);
    f->sample_calm_s = json_find_number(m, "calm_s", NAN);
    f->sample_cpu_s = json_find_number(m, "cpu_s", NAN);
    copy_text(f->sample_error, sizeof f->sample_error, m, "error");
    /* A slow batch is not a hang. */
    if (f->sample_mean_s > 0 && f->now.batch_size > 0)
        s->result.limits.hang_s =
            fmax(s->result.limits.hang_s, 4 * f->sample_mean_s * (double)f->now.batch_size);
    begin_next_row(s, now_ns);
}

/* Batches/s of the best row so far, at the current batch size. */
static double rate_to_beat(const struct session *s)
{
    int best = tune_best(&s->result);
    int64_t size = s->config.batch_size;
    return best >= 0 && size > 0 ? s->result.rows[best].rate / (double)size : 0;
}

static void judge_row(struct session *s, uint64_t now_ns)
{
    struct rate_estimate e;
    rate_estimate(&s->rate, &e);
    double most_s = s->stage == SESSION_CACHED ? CACHED_S : ROW_S;
    enum rate_advice advice = rate_judge(&e, rate_to_beat(s), most_s);
    /* The process starts a second epoch only when the row ends by itself (bench/agent.py). */
    if (advice != RATE_GO_ON || (s->stage == SESSION_ROW && is_out_of_time(s, now_ns)))
        request_stop(s);
}

static void take_batches(struct session *s, const json_t *m, uint64_t now_ns)
{
    const json_t *time;
    size_t i;
    json_array_foreach (json_object_get(m, "times"), i, time)
        rate_add(&s->rate, json_is_number(time) ? json_number_value(time) : NAN);
    if (s->stage == SESSION_ROW || s->stage == SESSION_CACHED)
        judge_row(s, now_ns);
}

/* Two measurements of one row: their mean, weighted by time. */
static void merge(struct tune_row *row, const struct tune_row *more)
{
    if (row->status != TUNE_OK || more->status != TUNE_OK) {
        double restart_s = row->restart_s;
        int times = row->times;
        if (more->status == TUNE_OK || row->times == 0)
            *row = *more;
        row->times = times + more->times;
        if (isnan(row->restart_s))
            row->restart_s = restart_s;
        return;
    }
    double a = (double)row->samples, b = (double)more->samples;
    double time = a / row->rate + b / more->rate;
    row->rate = time > 0 ? (a + b) / time : row->rate;
    row->spread_ratio = fmin(row->spread_ratio, more->spread_ratio);
    row->first_batch_s = fmin(row->first_batch_s, more->first_batch_s);
    row->first_round_s = fmin(row->first_round_s, more->first_round_s);
    row->restart_s = isnan(more->restart_s) ? row->restart_s : more->restart_s;
    row->seconds += more->seconds;
    row->batches += more->batches;
    row->samples += more->samples;
    row->times += more->times;
    if (more->memory_bytes > row->memory_bytes)
        row->memory_bytes = more->memory_bytes;
}

/* The rate in samples: batches/s times the mean size of a batch. */
static void fill_rate(const struct session *s, struct tune_row *row, int ended)
{
    struct rate_estimate e;
    rate_estimate(&s->rate, &e);
    double each = row->batches > 0 ? (double)row->samples / (double)row->batches : NAN;
    row->rate = e.batches_per_s * each;
    row->spread_ratio = isfinite(e.half_ratio) ? e.half_ratio : NAN;
    row->first_batch_s = e.first_s;
    row->first_round_s = e.round_s;
    /* A short stream may end within few rounds: then its whole time counts, start included. */
    if (!(row->rate > 0) && ended && row->batches > 0 && s->rate.count)
        row->rate = (double)row->samples / s->rate.at_s[s->rate.count - 1];
}

static void keep_row(struct session *s, const struct tune_row *row)
{
    struct tune_row *known = tune_find(&s->result, &row->config);
    if (!known && s->result.row_count < TUNE_ROWS) {
        known = &s->result.rows[s->result.row_count++];
        *known = *row;
    } else if (known) {
        merge(known, row);
    }
    if (known && tune_config_same(&known->config, &s->result.facts.now))
        s->result.now = (int)(known - s->result.rows);
    s->result.best = tune_best(&s->result);
}

static void fail_row(struct tune_row *row, const char *why)
{
    row->status = TUNE_FAILED;
    row->rate = row->spread_ratio = NAN;
    snprintf(row->error, sizeof row->error, "%s", why);
}

static void take_row(struct session *s, const json_t *m, uint64_t now_ns)
{
    struct tune_row row = {.config = s->config,
                           .times = 1,
                           .batches = whole(m, "batches", 0, INT64_MAX / 2),
                           .samples = whole(m, "samples", 0, INT64_MAX / 2),
                           .restart_s = json_find_number(m, "restart_s", NAN),
                           .memory_bytes = s->row_memory,
                           .threads = (int)whole(m, "threads", 0, 4096),
                           .ahead = (int)whole(m, "ahead", 0, 1 << 20),
                           .seconds = seconds(s->stage_start_ns, now_ns)};
    const char *error = json_find_text(m, "error", "");
    take_batches(s, m, now_ns);
    fill_rate(s, &row, (int)whole(m, "ended", 0, 1));
    /* An interrupted process may report a more precise reason. */
    if (s->row_error[0] && (!*error || strcmp(error, "abandoned") == 0))
        error = s->row_error;
    if (*error)
        fail_row(&row, error);
    else if (!(row.rate > 0))
        fail_row(&row, row.batches ? "too few batches to measure" : "no batch arrived");
    if (s->result.facts.batch_bytes < 0)
        s->result.facts.batch_bytes = whole(m, "batch_bytes", -1, INT64_MAX / 2);
    if (s->stage == SESSION_CACHED) {
        s->result.cached_rate = row.rate;
        begin_model(s, now_ns);
        return;
    }
    keep_row(s, &row);
    if (s->result.interrupted)
        end(s);
    else
        begin_next_row(s, now_ns);
}

static void take_model(struct session *s, const json_t *m)
{
    s->result.steps = whole(m, "steps", 0, INT32_MAX);
    s->result.step_s = json_find_number(m, "step_s", NAN);
    s->result.step_samples = json_find_number(m, "samples", NAN);
    copy_text(s->result.model_error, sizeof s->result.model_error, m, "error");
    if (s->result.steps == 0)
        s->result.step_s = NAN;
    end(s);
}

void session_take_line(struct session *s, const char *line, size_t bytes, uint64_t now_ns)
{
    json_t *message = NULL;
    if (s->stage == SESSION_END || json_parse(line, bytes, &message, NULL) < 0)
        return;
    const char *event = json_find_text(message, "event", "");
    int in_row = s->stage == SESSION_ROW || s->stage == SESSION_CACHED;
    s->last_line_ns = now_ns;
    if (strcmp(event, "hello") == 0 && s->stage == SESSION_HELLO)
        take_hello(s, message, now_ns);
    else if (strcmp(event, "first") == 0 && s->stage == SESSION_STEP)
        s->stepping = 1;
    else if (strcmp(event, "step") == 0 && s->stage == SESSION_STEP)
        take_step(s, message, now_ns);
    else if (strcmp(event, "samples") == 0 && s->stage == SESSION_SAMPLES)
        take_samples(s, message, now_ns);
    else if (strcmp(event, "batches") == 0 && in_row)
        take_batches(s, message, now_ns);
    else if (strcmp(event, "row") == 0 && in_row)
        take_row(s, message, now_ns);
    else if (strcmp(event, "model") == 0 && s->stage == SESSION_MODEL)
        take_model(s, message);
    json_decref(message);
}

/* ---- time, memory, the end ------------------------------------------------------------------- */

/* Interrupts the process; if that was done already, ends it. */
static void interrupt_or_kill(struct session *s, uint64_t now_ns, const char *why)
{
    if (s->interrupted_row) {
        session_process_ended(s, why, now_ns);
        return;
    }
    if (!s->row_error[0])
        snprintf(s->row_error, sizeof s->row_error, "%s", why);
    s->interrupted_row = 1;
    s->last_line_ns = now_ns;
    s->action = SESSION_INTERRUPT;
}

void session_tick(struct session *s, uint64_t now_ns)
{
    double silent_s = seconds(s->last_line_ns, now_ns);
    char why[64];
    if (s->stage == SESSION_HELLO || s->stage == SESSION_END)
        return;
    if (s->stage == SESSION_MODEL) {
        if (silent_s > MODEL_HANG_S) {
            snprintf(s->result.model_error, sizeof s->result.model_error,
                     "training on a cached batch did not end within %.0f s", MODEL_HANG_S);
            end(s);
        }
        return;
    }
    double hang_s =
        s->stage == SESSION_STEP && s->stepping ? MODEL_HANG_S : s->result.limits.hang_s;
    if (silent_s > (s->interrupted_row ? ANSWER_S : hang_s)) {
        snprintf(why, sizeof why, "hangs: no batch for %.0f s", hang_s);
        interrupt_or_kill(s, now_ns, s->row_error[0] ? s->row_error : why);
    }
}

void session_memory(struct session *s, int64_t tree_bytes)
{
    int64_t limit = s->result.limits.memory_bytes;
    if (s->stage != SESSION_ROW)
        return;
    if (tree_bytes > s->row_memory)
        s->row_memory = tree_bytes;
    if (limit >= 0 && tree_bytes > limit) {
        snprintf(s->row_error, sizeof s->row_error, "used %.0f MiB of memory, the limit is %.0f",
                 (double)tree_bytes / 0x1p20, (double)limit / 0x1p20);
        request_stop(s);
    }
}

/* An interrupted row is kept with its batches so far. */
static void keep_part(struct session *s, uint64_t now_ns)
{
    struct tune_row row = {.config = s->config,
                           .times = 1,
                           .batches = (int64_t)s->rate.count,
                           .samples = (int64_t)s->rate.count * s->config.batch_size,
                           .restart_s = NAN,
                           .memory_bytes = s->row_memory,
                           .seconds = seconds(s->stage_start_ns, now_ns)};
    fill_rate(s, &row, 0);
    if (row.rate > 0)
        keep_row(s, &row);
}

void session_stop(struct session *s, uint64_t now_ns)
{
    if (s->stage == SESSION_ROW && !s->row_error[0])
        keep_part(s, now_ns);
    s->result.interrupted = 1;
    s->result.elapsed_s = s->start_ns ? seconds(s->start_ns, now_ns) : 0;
    end(s);
}

void session_process_ended(struct session *s, const char *how, uint64_t now_ns)
{
    if (s->stage == SESSION_ROW) {
        struct tune_row row = {.config = s->config,
                               .times = 1,
                               .first_batch_s = NAN,
                               .first_round_s = NAN,
                               .restart_s = NAN,
                               .memory_bytes = s->row_memory};
        row.seconds = seconds(s->stage_start_ns, now_ns);
        fail_row(&row, s->row_error[0] ? s->row_error : how);
        keep_row(s, &row);
    } else if (s->stage == SESSION_SAMPLES) {
        snprintf(s->result.facts.sample_error, sizeof s->result.facts.sample_error, "%s", how);
    } else if (s->stage == SESSION_STEP) {
        snprintf(s->result.model_error, sizeof s->result.model_error,
                 "the script ended within its first steps: %.150s", how);
    } else if (s->stage == SESSION_MODEL && !s->result.model_error[0]) {
        snprintf(s->result.model_error, sizeof s->result.model_error, "%s", how);
    }
    if (s->start_ns && s->result.elapsed_s <= 0)
        s->result.elapsed_s = seconds(s->start_ns, now_ns);
    s->stage = SESSION_END;
    s->action = SESSION_KILL;
}

static double left_s(const struct session *s, uint64_t now_ns)
{
    double spent = seconds(s->start_ns, now_ns), rows = 0;
    for (size_t i = 0; i < s->result.row_count; i++)
        rows += s->result.rows[i].times;
    double each = rows > 0 ? spent / rows : ROW_S;
    double left = each * search_left(&s->result) + CACHED_S;
    return fmin(left, fmax(0, s->result.limits.time_s - spent)) + (s->has_model ? MODEL_S : 0);
}

void session_progress(const struct session *s, uint64_t now_ns, struct str *out)
{
    struct rate_estimate e;
    switch (s->stage) {
    case SESSION_HELLO: str_add(out, "waiting for the training loader"); return;
    case SESSION_STEP: str_add(out, "the script's first step"); return;
    case SESSION_SAMPLES: str_add(out, "timing single samples"); break;
    case SESSION_CACHED: str_add(out, "the loader with a cached batch"); break;
    case SESSION_MODEL: str_add(out, "the model on a cached batch"); return;
    case SESSION_END: return;
    case SESSION_ROW:
        rate_estimate(&s->rate, &e);
        if (s->config.leat)
            str_add(out, "leat.DataLoader");
        else
            str_addf(out, "num_workers=%d", s->config.workers);
        if (s->config.workers)
            str_addf(out, " prefetch_factor=%d", s->config.prefetch);
        if (e.batches_per_s > 0 && s->config.batch_size > 0)
            str_addf(out, ", %.0f samples/s", e.batches_per_s * (double)s->config.batch_size);
        break;
    }
    str_addf(out, "; about %.0fs left", left_s(s, now_ns));
}
