/* tune_text.c: the result as text: the table, other measurements, the verdict, the line to paste.
 */
#include "tune/tune.h"

#include "report/text_layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The call stays on one line of any length, so that it can be pasted. */
enum { MOST_LINE = 4096 };

static void put_heading(const struct tune_result *r, struct str *out)
{
    const struct tune_facts *f = &r->facts;
    struct str line = {0};
    char cell[LAYOUT_CELL];
    str_addf(&line, "%s at %s", f->dataset, f->where[0] ? f->where : "an unknown line");
    if (f->dataset_length >= 0)
        str_addf(&line, ", %lld samples", (long long)f->dataset_length);
    if (f->now.batch_size)
        str_addf(&line, " in batches of %lld", (long long)f->now.batch_size);
    str_addf(&line, "; %s CPUs", layout_count(r->limits.cpus, cell));
    if (r->limits.memory_bytes >= 0)
        str_addf(&line, ", %s", layout_bytes((double)r->limits.memory_bytes, cell));
    layout_paragraph(out, "Loader: ", 8, str_text(&line));
    str_done(&line);
}

static void add_row(const struct tune_result *r, size_t i, int sizes, int colour, struct str *out)
{
    const struct tune_row *row = &r->rows[i];
    const struct tune_config *c = &row->config;
    char prefetch[12] = "-", size[24] = "", mark[24] = "", rate[LAYOUT_CELL], first[LAYOUT_CELL],
         memory[LAYOUT_CELL], spread[LAYOUT_CELL];
    char workers[12] = "leat";
    if (!c->leat)
        snprintf(workers, sizeof workers, "%d", c->workers);
    if (c->workers || row->ahead)
        snprintf(prefetch, sizeof prefetch, "%d", c->workers ? c->prefetch : row->ahead);
    if (sizes)
        snprintf(size, sizeof size, "%7lld", (long long)c->batch_size);
    int best = (int)i == tune_best(r);
    snprintf(mark, sizeof mark, "%s%s%s", best ? " best" : "", best && (int)i == r->now ? "," : "",
             (int)i == r->now ? " now" : "");
    if (best)
        layout_style(out, colour, STYLE_GOOD);
    const char *pin = c->leat ? "-" : c->pin ? "yes" : "no";
    str_addf(out, "  %7s %9s %4s%s", workers, prefetch, pin, size);
    if (row->status == TUNE_OK) {
        snprintf(rate, sizeof rate, "%.0f", row->rate);
        if (row->rate < 100)
            snprintf(rate, sizeof rate, "%.1f", row->rate);
        spread[0] = 0;
        if (!isnan(row->spread_ratio))
            snprintf(spread, sizeof spread, "+-%.0f%%", fmax(1, row->spread_ratio * 100));
        str_addf(
            out, " %10s %-6s %8s %9s%s", rate, spread, layout_seconds(row->first_batch_s, first),
            layout_bytes(row->memory_bytes > 0 ? (double)row->memory_bytes : NAN, memory), mark);
    } else {
        struct str why = {0};
        str_addf(&why, "%s%s", row->status == TUNE_SKIPPED ? "skipped: " : "", row->error);
        str_add(out, "  ");
        layout_cut(out, str_text(&why), LAYOUT_COLUMNS - 26 - (int)(strlen(size) + strlen(mark)));
        str_add(out, mark);
        str_done(&why);
    }
    if (best)
        layout_style(out, colour, STYLE_PLAIN);
    str_add(out, "\n");
}

/* Rows are sorted by workers, then prefetch; not in the order of the search. */
static int comes_before(const struct tune_config *a, const struct tune_config *b)
{
    if (a->leat != b->leat)
        return a->leat < b->leat;
    if (a->workers != b->workers)
        return a->workers < b->workers;
    if (a->prefetch != b->prefetch)
        return a->prefetch < b->prefetch;
    if (a->pin != b->pin)
        return a->pin < b->pin;
    return a->batch_size < b->batch_size;
}

static void put_table(const struct tune_result *r, int colour, struct str *out)
{
    size_t order[TUNE_ROWS];
    int sizes = r->limits.size_count > 0;
    for (size_t i = 0; i < r->row_count; i++) {
        size_t at = i;
        for (; at > 0 && comes_before(&r->rows[i].config, &r->rows[order[at - 1]].config); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    str_addf(out, "\n  %7s %9s %4s%s %10s %-6s %8s %9s\n", "workers", "prefetch", "pin",
             sizes ? "  batch" : "", "samples/s", "", "first", "memory");
    for (size_t i = 0; i < r->row_count; i++)
        add_row(r, order[i], sizes, colour, out);
}

static void put_sample(const struct tune_facts *f, struct str *out)
{
    char mean[LAYOUT_CELL], p99[LAYOUT_CELL], cpu[LAYOUT_CELL];
    struct str line = {0};
    if (f->sample_count > 0)
        str_addf(&line, "mean %s, p99 %s, %s of it CPU time (%lld samples)",
                 layout_seconds(f->sample_mean_s, mean), layout_seconds(f->sample_p99_s, p99),
                 layout_percent(fmin(1, f->sample_cpu_s / f->sample_calm_s), cpu),
                 (long long)f->sample_count);
    if (f->sample_error[0])
        str_addf(&line, "%s%s", f->sample_count > 0 ? "; then: " : "", f->sample_error);
    if (line.length)
        layout_paragraph(out, "  one sample     ", 17, str_text(&line));
    str_done(&line);
}

/* How batches are copied to the device. A pinned batch is copied asynchronously only with
 * non_blocking=True. */
static void put_copies(const struct tune_facts *f, const struct tune_config *choice,
                       struct str *out)
{
    char bytes[LAYOUT_CELL];
    struct str line = {0};
    if (!f->device[0] || choice->leat)
        return;
    str_addf(&line, "to %s", f->device);
    if (f->copy_bytes > 0)
        str_addf(&line, ", %s per batch", layout_bytes((double)f->copy_bytes, bytes));
    if (f->non_blocking >= 0)
        str_addf(&line, ", %s non_blocking=True, as in the script",
                 f->non_blocking ? "with" : "without");
    if (choice->pin && f->non_blocking == 0)
        str_add(&line, ": with it, the script would not wait for copies of pinned batches");
    layout_paragraph(out, "  copies         ", 17, str_text(&line));
    str_done(&line);
}

static void put_start(const struct tune_result *r, const struct tune_config *choice,
                      struct str *out)
{
    const struct tune_row *row = &r->rows[tune_best(r)];
    char first[LAYOUT_CELL], restart[LAYOUT_CELL];
    struct str line = {0};
    if (choice->workers == 0)
        return;
    str_addf(&line, "first batch after %s", layout_seconds(row->first_batch_s, first));
    if (row->restart_s >= 0)
        str_addf(&line, "; after %s with persistent_workers",
                 layout_seconds(row->restart_s, restart));
    layout_paragraph(out, "  epoch start    ", 17, str_text(&line));
    str_done(&line);
}

static void put_model(const struct tune_result *r, struct str *out)
{
    char step[LAYOUT_CELL];
    struct str line = {0};
    if (r->step_s > 0)
        str_addf(&line, "%s per step on a cached batch: %.0f samples/s (%lld steps)",
                 layout_seconds(r->step_s, step), r->step_samples / r->step_s, (long long)r->steps);
    else if (r->model_error[0])
        str_addf(&line, "not measured: %s", r->model_error);
    if (line.length)
        layout_paragraph(out, "  model          ", 17, str_text(&line));
    str_done(&line);
}

static void put_line(const struct tune_result *r, const struct tune_config *choice, struct str *out)
{
    struct str line = {0};
    tune_call_line(&r->facts, choice, &line);
    str_add(out, r->facts.where[0] ? "\nPaste at " : "\nPaste");
    layout_cut(out, r->facts.where, MOST_LINE);
    str_add(out, choice->leat && !r->facts.now.leat ? ", with import leat:\n  " : ":\n  ");
    layout_cut(out, str_text(&line), MOST_LINE);
    str_add(out, "\n");
    str_done(&line);
}

void tune_text(const struct tune_result *r, int colour, struct str *out)
{
    struct tune_verdict verdict;
    struct tune_config choice;
    char cell[LAYOUT_CELL];
    int chosen = search_choice(r, &choice) == 0;
    put_heading(r, out);
    put_table(r, colour, out);
    str_add(out, "\n");
    put_sample(&r->facts, out);
    if (chosen) {
        put_copies(&r->facts, &choice, out);
        put_start(r, &choice, out);
    }
    if (r->cached_rate > 0) {
        struct str line = {0};
        str_addf(&line, "%.0f samples/s: the limit of handing over batches, at no cost per sample",
                 r->cached_rate);
        layout_paragraph(out, "  cached batch   ", 17, str_text(&line));
        str_done(&line);
    }
    put_model(r, out);
    str_addf(out, "  search         %s%s\n", layout_seconds(r->elapsed_s, cell),
             r->interrupted   ? ", interrupted before its end"
             : r->out_of_time ? ", ended by --time"
                              : "");
    if (tune_disturbed(r)) {
        struct str line = {0};
        str_addf(&line, "used %.1f of %.0f CPUs meanwhile: rates and choice are uncertain",
                 r->others_cpus, r->all_cpus);
        layout_paragraph(out, "  other programs ", 17, str_text(&line));
        str_done(&line);
    }
    tune_judge(r, &verdict);
    str_add(out, "\n");
    layout_paragraph(out, "Verdict: ", 9, verdict.sentence);
    if (chosen)
        put_line(r, &choice, out);
}
