/* text.c: the text report, made from the summary alone.
 *
 * A reader with one minute reads it from the top: the verdict, why, and what to do come first, then
 * how the run went, then one short block per section, and what was not measured. The first screen
 * (24 lines) holds the most important; tables come after it (text_tables.c), and the last line is
 * the next command.
 *
 * The summary may be anything that summary_parse accepts: each figure is read with a default, and
 * an absent one is left out of its line.
 */
#include "report/text_parts.h"

#include "report/text_layout.h"
#include "report/report.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- helpers --------------------------------------------------------------------------------- */

static void add_duration(struct str *line, const char *name, double ms)
{
    char cell[LAYOUT_CELL], part[64];
    if (!isfinite(ms))
        return;
    snprintf(part, sizeof part, "%s %s", name, layout_duration(ms, cell));
    layout_part(line, part);
}

static enum layout_style style_of(const char *severity)
{
    return strcmp(severity, "critical") == 0  ? STYLE_CRITICAL
           : strcmp(severity, "warning") == 0 ? STYLE_WARNING
                                              : STYLE_GOOD;
}

static void put_diagnosis(struct str *out, int colour, const char *label, const char *severity)
{
    str_add(out, "- Diagnosis: ");
    layout_style(out, colour, style_of(severity));
    layout_cut(out, label, 50);
    layout_style(out, colour, STYLE_PLAIN);
    str_add(out, " (");
    layout_cut(out, severity, 12);
    str_add(out, ")\n");
}

static void put_stats(struct str *out, struct str *line)
{
    layout_paragraph(out, "- Stats: ", 2, line->length ? str_text(line) : "not measured");
    str_done(line);
}

/* ---- the head: verdict, why, next, the end of the run ---------------------------------------- */

static void put_verdict(const json_t *summary, int colour, struct str *out)
{
    const char *severity = json_find_text(summary, "verdict.severity", "info");
    str_add(out, "Verdict: ");
    layout_style(out, colour, style_of(severity));
    layout_cut(out, json_find_text(summary, "verdict.label", "?"), 50);
    layout_style(out, colour, STYLE_PLAIN);
    str_add(out, " (");
    layout_cut(out, severity, 12);
    str_add(out, ")\n");
    layout_paragraph(out, "Why:     ", 9, json_find_text(summary, "verdict.summary", "unknown"));
    struct str next = {0};
    str_add(&next, json_find_text(summary, "verdict.action", "No change is needed."));
    double gain = json_find_number(summary, "verdict.predicted_gain", NAN);
    char cell[LAYOUT_CELL];
    int at_most = json_is_true(json_find(summary, "verdict.predicted_at_most"));
    if (gain > 0)
        str_addf(&next, " Predicted: %s%s throughput.", at_most ? "up to " : "",
                 layout_change(gain, cell));
    const char *alternative = json_find_text(summary, "verdict.alternative", NULL);
    if (alternative)
        str_addf(&next, " %s", alternative);
    layout_paragraph(out, "Next:    ", 9, str_text(&next));
    str_done(&next);
}

static void add_signal(struct str *line, double number)
{
    const char *name = number > 0 && number < 65 ? sigabbrev_np((int)number) : NULL;
    if (name)
        str_addf(line, " by SIG%s", name);
    else if (isfinite(number))
        str_addf(line, " by signal %.3g", number);
}

static void add_end(const json_t *summary, struct str *line)
{
    const char *ended = json_find_text(summary, "run.ended", NULL);
    double seconds = json_find_number(summary, "run.duration_s", NAN);
    double status = json_find_number(summary, "run.exit_status", NAN);
    char cell[LAYOUT_CELL];
    if (!ended)
        str_add(line, "has no recorded end"); /* leat was killed */
    else if (strcmp(ended, "killed") == 0)
        add_signal((str_add(line, "was killed"), line),
                   json_find_number(summary, "run.signal", NAN));
    else
        str_addf(line, "%s%s", strcmp(ended, "interrupted") == 0 ? "was " : "", ended);
    if (ended && isfinite(seconds))
        str_addf(line, " after %s", layout_seconds(seconds, cell));
    if (status > 0)
        str_addf(line, " with exit status %s", layout_count(status, cell));
    const char *exception = json_find_text(summary, "run.exception", NULL);
    if (exception && (!ended || strcmp(ended, "completed") != 0))
        str_addf(line, ": %s", exception);
    str_add(line, ".");
    if (json_find_number(summary, "system.oom_kills", 0) > 0)
        str_addf(line, " The kernel's out-of-memory killer ended %s of its processes.",
                 layout_count(json_find_number(summary, "system.oom_kills", 0), cell));
}

static void add_steps(const json_t *summary, struct str *line)
{
    double steps = json_find_number(summary, "step_time.steps", NAN);
    double kept = json_find_number(summary, "step_time.kept_steps", NAN);
    double warmup = json_find_number(summary, "step_time.warmup_steps", 0);
    double compile = json_find_number(summary, "step_time.compile_steps", 0);
    char cell[LAYOUT_CELL], more[LAYOUT_CELL];
    if (!isfinite(steps)) {
        str_add(line, " No step was seen.");
        return;
    }
    str_addf(line, " %s %s", layout_count(steps, cell),
             strcmp(json_find_text(summary, "step_time.kind", ""), "inference") == 0
                 ? "inference steps (batches)"
                 : "steps");
    if (isfinite(kept) && kept != steps)
        str_addf(line, ", %s kept", layout_count(kept, cell));
    if (warmup > 0)
        str_addf(line, ", %s warm-up excluded", layout_count(warmup, cell));
    if (compile > 0)
        str_addf(line, ", %s compile (%s) excluded", layout_count(compile, cell),
                 layout_duration(json_find_number(summary, "step_time.compile_ms", NAN), more));
    str_add(line, ".");
    double world = json_find_number(summary, "run.world_size", NAN);
    if (world > 1)
        str_addf(line, " %s ranks; the figures are of rank %s, the typical one.",
                 layout_count(world, cell),
                 layout_count(json_find_number(summary, "step_time.rank", NAN), more));
    double eval = json_find_number(summary, "step_time.eval.share", NAN);
    if (eval > 0)
        str_addf(line, " Evaluation took %s of the run and is not part of any step.",
                 layout_percent(eval, cell));
    double limit = json_find_number(summary, "run.max_steps", NAN);
    if (limit > 0)
        str_addf(line, " Recording stopped after %s steps (--max-steps).",
                 layout_count(limit, cell));
}

static void put_run(const json_t *summary, struct str *out)
{
    struct str line = {0};
    str_addf(&line, "%s ", json_find_text(summary, "run.name", "it"));
    add_end(summary, &line);
    add_steps(summary, &line);
    layout_paragraph(out, "Run:     ", 9, str_text(&line));
    str_done(&line);
}

/* ---- the sections ---------------------------------------------------------------------------- */

static int in_section(const json_t *finding, const char *section)
{
    const char *name = json_find_text(finding, "section", "");
    return strcmp(name, section) == 0 ||
           (strcmp(section, "system") == 0 && strcmp(name, "process") == 0);
}

/* 1 when `text` holds the number at the start of `value` ("3.57ms", "84 %"), not as part of a
 * longer number. */
static int has_number(const char *text, const char *value)
{
    size_t length = strspn(value, "0123456789.");
    for (; length && *text; text++) {
        size_t number = strspn(text, "0123456789.");
        while (number > length && text[number - 1] == '.') /* the end of a sentence */
            number--;
        if (number == length && strncmp(text, value, length) == 0)
            return 1;
        text += number ? number - 1 : 0;
    }
    return 0;
}

/* "84 %", "3.57ms", "5 workers"; without the unit where the name has it: "num_workers 0". */
static void add_value(struct str *text, const json_t *item)
{
    double value = json_find_number(item, "value", NAN);
    const char *unit = json_find_text(item, "unit", ""), *what = json_find_text(item, "what", "");
    char cell[LAYOUT_CELL];
    if (strcmp(unit, "ratio") == 0)
        str_add(text, layout_percent(value, cell));
    else if (strcmp(unit, "ms") == 0)
        str_add(text, layout_duration(value, cell));
    else if (strcmp(unit, "bytes") == 0)
        str_add(text, layout_bytes(value, cell));
    else if (!*unit || strcmp(unit, "count") == 0 || strcmp(unit, "flag") == 0 ||
             strstr(what, unit))
        str_add(text, layout_count(value, cell));
    else
        str_addf(text, "%s %s", layout_count(value, cell), unit);
}

static void add_evidence(struct str *line, const json_t *item)
{
    struct str part = {0};
    str_addf(&part, "%s ", json_find_text(item, "what", "?"));
    add_value(&part, item);
    layout_part(line, str_text(&part));
    str_done(&part);
}

/* The values that the finding is based on, in one line: "input share 84 % | num_workers 0". Of more
 * than MAX_EVIDENCE values the first stays, which triggered the rule, and every number that the
 * action uses. Then those at the end, which belong to the cause: the general ones before them are
 * in the Stats line too. */
static void put_evidence(struct str *out, const json_t *finding)
{
    enum { MAX_EVIDENCE = 6, MAX_LISTED = 64 };
    const json_t *items[MAX_LISTED], *item;
    int keep[MAX_LISTED] = {0}, count = 0, kept = 0;
    const char *action = json_find_text(finding, "action", "");
    struct str line = {0};
    size_t i;
    json_array_foreach (json_object_get(finding, "evidence"), i, item) {
        struct str value = {0};
        if (count == MAX_LISTED || !isfinite(json_find_number(item, "value", NAN)))
            continue;
        add_value(&value, item);
        keep[count] = count == 0 || has_number(action, str_text(&value));
        str_done(&value);
        kept += keep[count];
        items[count++] = item;
    }
    for (int k = count - 1; k >= 0 && kept < MAX_EVIDENCE; k--) {
        kept += !keep[k];
        keep[k] = 1;
    }
    for (int k = 0; k < count; k++)
        if (keep[k])
            add_evidence(&line, items[k]);
    if (line.length)
        layout_paragraph(out, "- Evidence: ", 2, str_text(&line));
    str_done(&line);
}

static void put_where(struct str *out, const json_t *finding)
{
    size_t i;
    const json_t *place;
    const json_t *list = json_object_get(finding, "where");
    json_array_foreach (list, i, place) {
        struct str line = {0};
        char cell[LAYOUT_CELL];
        if (i == 5)
            break;
        str_addf(&line, "%s:%s", layout_file(json_find_text(place, "file", "?")),
                 layout_count(json_find_number(place, "line", NAN), cell));
        double share = json_find_number(place, "share", NAN);
        const char *of = json_find_text(place, "of", NULL);
        if (isfinite(share))
            str_addf(&line, " (%s%s%s)", layout_percent(share, cell), of ? " of " : "",
                     of ? of : "");
        layout_paragraph(out, "- Where: ", 2, str_text(&line));
        str_done(&line);
    }
}

/* The diagnosis of a section: its first finding, or `healthy` when it has none. `stats` writes the
 * line of figures. */
static void put_section(const json_t *summary, int colour, const char *section, const char *healthy,
                        void (*stats)(const json_t *, struct str *), struct str *out)
{
    const json_t *first = NULL, *item;
    const json_t *list = json_object_get(summary, "findings");
    size_t i;
    json_array_foreach (list, i, item)
        if (!first && in_section(item, section))
            first = item;
    struct str line = {0};
    stats(summary, &line);
    if (first)
        put_diagnosis(out, colour, json_find_text(first, "label", "?"),
                      json_find_text(first, "severity", "info"));
    else
        str_addf(out, "- Diagnosis: %s\n", line.length ? healthy : "not measured");
    put_stats(out, &line);
    if (!first)
        return;
    layout_paragraph(out, "- Why: ", 2, json_find_text(first, "summary", "unknown"));
    put_where(out, first);
    put_evidence(out, first);
    int more = 0;
    json_array_foreach (list, i, item) {
        if (item == first || !in_section(item, section) || ++more > 8)
            continue;
        struct str text = {0};
        str_addf(&text, "%s (%s): %s", json_find_text(item, "label", "?"),
                 json_find_text(item, "severity", "info"), json_find_text(item, "summary", ""));
        layout_paragraph(out, "- Also: ", 2, str_text(&text));
        str_done(&text);
    }
    if (more > 8)
        str_addf(out, "- Also: %d more, see the JSON\n", more - 8);
}

static double phase(const json_t *summary, const char *name, const char *figure)
{
    char path[96];
    snprintf(path, sizeof path, "step_time.phases.%s.%s", name, figure);
    return json_find_number(summary, path, NAN);
}

/* The sum of what is known; NaN when nothing is. */
static double sum_of(const json_t *summary, const char *const *names)
{
    double sum = NAN;
    for (; *names; names++) {
        double value = phase(summary, *names, "mean");
        if (isfinite(value))
            sum = isfinite(sum) ? sum + value : value;
    }
    return sum;
}

/* Means, which add up to the step; the line below has the median and its tail. */
static void step_stats_line(const json_t *summary, struct str *line)
{
    static const char *const compute[] = {"forward", "backward", "optimizer", NULL};
    static const char *const wait[] = {"sync", "other", NULL};
    add_duration(line, "total", json_find_number(summary, "step_time.mean", NAN));
    add_duration(line, "input", phase(summary, "input", "mean"));
    double h2d = phase(summary, "h2d", "mean");
    add_duration(line, "h2d", h2d > 0 ? h2d : NAN);
    add_duration(line, "compute", sum_of(summary, compute));
    add_duration(line, "wait", sum_of(summary, wait));
}

static void put_spread(const json_t *summary, struct str *out)
{
    struct str line = {0};
    char cell[LAYOUT_CELL], part[64];
    add_duration(&line, "median", json_find_number(summary, "step_time.median", NAN));
    add_duration(&line, "p90", json_find_number(summary, "step_time.p90", NAN));
    add_duration(&line, "p99", json_find_number(summary, "step_time.p99", NAN));
    double rate = json_find_number(summary, "step_time.samples_per_s", NAN);
    if (isfinite(rate)) {
        snprintf(part, sizeof part, "%s samples/s", layout_count(rate, cell));
        layout_part(&line, part);
    }
    if (line.length)
        layout_paragraph(out, "- Steps: ", 2, str_text(&line));
    str_done(&line);
}

static void system_stats(const json_t *summary, struct str *line)
{
    char cell[LAYOUT_CELL], more[LAYOUT_CELL], part[160];
    double cpu = json_find_number(summary, "system.cpu.mean", NAN);
    if (isfinite(cpu)) {
        snprintf(part, sizeof part, "CPU %s of %s cores", layout_percent(cpu, cell),
                 layout_count(json_find_number(summary, "system.cpus", NAN), more));
        layout_part(line, part);
    }
    double own = json_find_number(summary, "system.run_cpu.mean", NAN);
    if (isfinite(own)) {
        snprintf(part, sizeof part, "this run %s", layout_percent(own, cell));
        layout_part(line, part);
    }
    double left = json_find_number(summary, "system.memory_available_least_bytes", NAN);
    if (isfinite(left)) {
        snprintf(part, sizeof part, "RAM free %s of %s", layout_bytes(left, cell),
                 layout_bytes(json_find_number(summary, "system.memory_total_bytes", NAN), more));
        layout_part(line, part);
    }
    const json_t *gpus = json_find(summary, "system.gpus"), *gpu;
    size_t i;
    json_array_foreach (gpus, i, gpu) {
        if (i == 8)
            break;
        snprintf(part, sizeof part, "GPU %zu %s", i,
                 layout_percent(json_find_number(gpu, "utilization.mean", NAN), cell));
        layout_part(line, part);
    }
    if (json_is_array(gpus) && json_array_size(gpus) == 0)
        layout_part(line, "no GPU");
}

/* ---- the whole report ------------------------------------------------------------------------ */

void report_text(const json_t *summary, int colour, struct str *out)
{
    put_verdict(summary, colour, out);
    put_run(summary, out);
    layout_title(out, colour, "Step Time");
    put_section(summary, colour, "step_time", "no problem found", step_stats_line, out);
    put_spread(summary, out);
    layout_title(out, colour, "Input");
    text_input(summary, out);
    layout_title(out, colour, "Memory");
    put_section(summary, colour, "memory", "no problem found", text_memory_stats, out);
    layout_title(out, colour, "System");
    put_section(summary, colour, "system", "no problem found", system_stats, out);
    text_gpu(summary, out);
    text_clock(summary, out);
    text_cuda(summary, out);
    text_tables(summary, colour, out);
    text_not_seen(summary, colour, out);
    text_next_command(summary, out);
}
