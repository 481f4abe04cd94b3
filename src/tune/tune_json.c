/* tune_json.c: the result as JSON. Times in seconds, rates in samples/s, absent = null. */
#include "tune/tune.h"

#include <math.h>

static json_t *config_json(const struct tune_config *c)
{
    return json_pack("{s:b,s:i,s:o,s:b,s:b,s:o}", "leat", c->leat, "num_workers", c->workers,
                     "prefetch_factor", c->workers ? json_integer(c->prefetch) : json_null(),
                     "pin_memory", c->pin, "persistent_workers", c->persistent, "batch_size",
                     c->batch_size ? json_integer(c->batch_size) : json_null());
}

static json_t *count_or_null(int64_t n)
{
    return n >= 0 ? json_integer(n) : json_null();
}

static json_t *row_json(const struct tune_result *r, size_t i)
{
    static const char *const names[] = {"ok", "failed", "skipped"};
    const struct tune_row *row = &r->rows[i];
    return json_pack(
        "{s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:o,s:o,s:o,s:o,s:b,s:b}", "settings",
        config_json(&row->config), "status", names[row->status], "samples_per_s",
        json_number_or_null(row->rate), "spread", json_number_or_null(row->spread_ratio),
        "first_batch_s", json_number_or_null(row->first_batch_s), "first_round_s",
        json_number_or_null(row->first_round_s), "restart_s", json_number_or_null(row->restart_s),
        "seconds", json_number_or_null(row->seconds), "batches", (json_int_t)row->batches,
        "samples", (json_int_t)row->samples, "memory_bytes", count_or_null(row->memory_bytes),
        "threads", count_or_null(row->threads ? row->threads : -1), "ahead",
        count_or_null(row->config.leat ? row->ahead : -1), "error",
        row->error[0] ? json_text_or_null(row->error) : json_null(), "now", (int)i == r->now,
        "best", (int)i == tune_best(r));
}

static json_t *loader_json(const struct tune_facts *f)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b,s:o,s:o,s:o}", "dataset",
                     json_text_or_null(f->dataset), "where", json_text_or_null(f->where), "torch",
                     json_text_or_null(f->torch), "settings", config_json(&f->now),
                     "dataset_length", count_or_null(f->dataset_length), "epoch_batches",
                     count_or_null(f->epoch_batches), "batch_bytes", count_or_null(f->batch_bytes),
                     "iterable", f->iterable, "accelerator", f->accelerator, "device",
                     f->device[0] ? json_text_or_null(f->device) : json_null(), "non_blocking",
                     f->non_blocking < 0 ? json_null() : json_boolean(f->non_blocking),
                     "copy_bytes", count_or_null(f->copy_bytes));
}

static json_t *choice_json(const struct tune_result *r)
{
    struct tune_config choice;
    if (search_choice(r, &choice) < 0)
        return json_null();
    struct str line = {0};
    tune_call_line(&r->facts, &choice, &line);
    json_t *made = json_pack(
        "{s:o,s:o,s:o}", "settings", config_json(&choice), "samples_per_s",
        json_number_or_null(tune_score(&r->facts, &r->rows[tune_best(r)], choice.persistent)),
        "line", json_text_or_null(str_text(&line)));
    str_done(&line);
    return made;
}

static json_t *sample_json(const struct tune_facts *f)
{
    return json_pack("{s:I,s:o,s:o,s:o,s:o,s:o}", "count", (json_int_t)f->sample_count, "mean_s",
                     json_number_or_null(f->sample_mean_s), "p99_s",
                     json_number_or_null(f->sample_p99_s), "calm_s",
                     json_number_or_null(f->sample_calm_s), "cpu_s",
                     json_number_or_null(f->sample_cpu_s), "error",
                     f->sample_error[0] ? json_text_or_null(f->sample_error) : json_null());
}

static json_t *model_json(const struct tune_result *r)
{
    return json_pack("{s:I,s:o,s:o,s:o}", "steps", (json_int_t)r->steps, "step_s",
                     json_number_or_null(r->step_s), "samples_per_s",
                     json_number_or_null(r->step_samples / r->step_s), "error",
                     r->model_error[0] ? json_text_or_null(r->model_error) : json_null());
}

json_t *tune_json(const struct tune_result *r)
{
    static const char *const bottlenecks[] = {NULL, "loader", "model"};
    struct tune_verdict v;
    tune_judge(r, &v);
    json_t *rows = json_array();
    for (size_t i = 0; i < r->row_count; i++)
        json_array_append_new(rows, row_json(r, i));
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b,s:b}", "schema_version",
                     "1.0", "loader", loader_json(&r->facts), "limits",
                     json_pack("{s:f,s:o,s:i,s:f}", "cpus", r->limits.cpus, "memory_bytes",
                               count_or_null(r->limits.memory_bytes), "most_workers",
                               r->limits.most_workers, "time_s", r->limits.time_s),
                     "sample", sample_json(&r->facts), "rows", rows, "cached_samples_per_s",
                     json_number_or_null(r->cached_rate), "model", model_json(r), "choice",
                     choice_json(r), "verdict",
                     json_pack("{s:o,s:o,s:o,s:s}", "bottleneck",
                               json_text_or_null(bottlenecks[v.bottleneck]), "factor",
                               json_number_or_null(v.factor), "gain", json_number_or_null(v.gain),
                               "sentence", v.sentence),
                     "search_s", json_number_or_null(r->elapsed_s), "others_cpus",
                     json_number_or_null(r->others_cpus), "disturbed", tune_disturbed(r),
                     "interrupted", r->interrupted, "out_of_time", r->out_of_time);
}
