/* text_input.c: the Input section of the text report and its table of workers: the loader that
 * feeds the steps, why it is slow if it is, and what the time to make a batch is spent on. */
#include "report/text_parts.h"

#include "report/summary_parts.h"
#include "diagnose/codes.h"
#include "report/text_layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The finding that explains why the input is slow; NULL when there is none. */
static const json_t *input_finding(const json_t *summary)
{
    const json_t *list = json_object_get(summary, "findings"), *item;
    size_t i;
    json_array_foreach (list, i, item)
        if (strncmp(json_find_text(item, "kind", ""), "INPUT_", 6) == 0)
            return item;
    return NULL;
}

/* How busy the workers of this loader were, on average; NaN without workers. */
static double workers_busy(const json_t *summary, const json_t *loader)
{
    const json_t *list = json_find(summary, "input.workers"), *item;
    double pid = json_find_number(loader, "pid", NAN);
    double number = json_find_number(loader, "loader", NAN), sum = 0;
    size_t i, n = 0;
    json_array_foreach (list, i, item) {
        double share = json_find_number(item, "busy_share", NAN);
        if (!isfinite(share) || json_find_number(item, "parent_pid", pid) != pid ||
            json_find_number(item, "loader", number) != number)
            continue;
        sum += share;
        n++;
    }
    return n ? sum / (double)n : NAN;
}

static void input_stats(const json_t *summary, const json_t *loader, struct str *line)
{
    char cell[LAYOUT_CELL], part[128];
    double share = json_find_number(summary, "step_time.phases.input.share", NAN);
    if (isfinite(share)) {
        snprintf(part, sizeof part, "%s of the step", layout_percent(share, cell));
        layout_part(line, part);
    }
    static const struct {
        const char *key, *name;
    } counts[] = {
        {"batch_size",     "batch_size"     },
        {"num_workers",    "num_workers"    },
        {"engine.threads", "threads of leat"}
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        double n = json_find_number(loader, counts[i].key, NAN);
        if (!isfinite(n))
            continue;
        snprintf(part, sizeof part, "%s %s", counts[i].name, layout_count(n, cell));
        layout_part(line, part);
    }
    double busy = workers_busy(summary, loader);
    if (isfinite(busy)) {
        snprintf(part, sizeof part, "workers %s busy", layout_percent(busy, cell));
        layout_part(line, part);
    }
}

/* Each cause in one sentence; the finding's action has the numbers. */
const char *text_cause_meaning(const char *cause)
{
    static const char *const meanings[] = {
        [CAUSE_TOO_FEW_WORKERS] = "all workers are busy, and there are idle cores for more",
        [CAUSE_SLOW_SAMPLE] = "making one sample takes long",
        [CAUSE_SLOW_COLLATE] = "joining samples to a batch takes long",
        [CAUSE_SLOW_HANDOVER] = "moving finished batches to the training process takes long",
        [CAUSE_SLOW_STORAGE] = "the workers wait for the storage",
        [CAUSE_CPU_OVERSUBSCRIBED] = "workers and training compete for too few cores",
        [CAUSE_UNEVEN_WORKERS] = "one worker is slower than the others, and all wait for it",
        [CAUSE_WORKER_STARTUP] = "every epoch starts its workers again",
        [CAUSE_NO_OVERLAP] = "num_workers=0: batches are made while the model waits",
        [CAUSE_PER_SAMPLE_OVERHEAD] = "data in memory is fetched sample by sample",
        [CAUSE_TOO_FEW_THREADS] = "all threads of leat's loader are busy, and there are idle cores",
        [CAUSE_SLOW_READ] = "leat's threads are busy reading, and no core is idle",
        [CAUSE_SLOW_LAYOUT] = "padding samples of different length takes long",
        [CAUSE_SLOW_ORDER] = "computing which sample comes next takes long",
        [CAUSE_SLOW_SAMPLER] = "a Python sampler draws indices, and leat's threads wait for it",
        [CAUSE_TOO_FEW_AHEAD] = "the time per batch varies, and too few batches are made ahead",
    };
    for (size_t i = CAUSE_NONE + 1; i < sizeof meanings / sizeof *meanings; i++)
        if (strcmp(cause_text((enum cause)i), cause) == 0)
            return meanings[i];
    return NULL;
}

/* "sample 3.41ms": the mean, with the p99 if there is one. */
static void add_time(struct str *line, const json_t *input, const char *path, const char *name)
{
    char mean[LAYOUT_CELL], tail[LAYOUT_CELL], key[64], part[128];
    snprintf(key, sizeof key, "%s.mean", path);
    double value = json_find_number(input, key, NAN);
    snprintf(key, sizeof key, "%s.p99", path);
    double p99 = json_find_number(input, key, NAN);
    if (!isfinite(value))
        return;
    snprintf(part, sizeof part, "%s %s", name, layout_duration(value, mean));
    if (isfinite(p99))
        snprintf(part, sizeof part, "%s %s (p99 %s)", name, mean, layout_duration(p99, tail));
    layout_part(line, part);
}

/* The time of one sample, and its parts. */
static void put_sample(const json_t *input, struct str *out)
{
    static const char *const kinds[] = {"read", "decode", "other"};
    struct str line = {0};
    add_time(&line, input, "per_sample", "mean");
    for (size_t i = 0; line.length && i < 3; i++) {
        char cell[LAYOUT_CELL], key[32], part[64];
        snprintf(key, sizeof key, "per_sample.%s", kinds[i]);
        double share = json_find_number(input, key, NAN);
        snprintf(part, sizeof part, "%s %s", kinds[i], layout_percent(share, cell));
        if (isfinite(share))
            layout_part(&line, part);
    }
    if (line.length)
        layout_paragraph(out, "- Sample: ", 2, str_text(&line));
    str_done(&line);
}

/* The stages of a batch, from its samples to the training. */
static void put_batch(const json_t *input, struct str *out)
{
    struct str line = {0};
    char cell[LAYOUT_CELL], part[64];
    add_time(&line, input, "per_batch.fetch", "fetch");
    add_time(&line, input, "per_batch.collate", "collate");
    add_time(&line, input, "hand_over.pickle", "pack");
    add_time(&line, input, "hand_over.unpickle", "unpack");
    add_time(&line, input, "hand_over.pin", "pin");
    double none = json_find_number(input, "ready.none_share", NAN);
    if (isfinite(none)) {
        snprintf(part, sizeof part, "none ready at %s of requests", layout_percent(none, cell));
        layout_part(&line, part);
    }
    if (line.length)
        layout_paragraph(out, "- Batch: ", 2, str_text(&line));
    str_done(&line);
}

/* The time of leat.DataLoader's threads, by stage. */
static void put_stages(const json_t *loader, struct str *out)
{
    static const struct {
        const char *key, *name;
    } stages[] = {
        {"engine.order_time",  "order" },
        {"engine.read_time",   "read"  },
        {"engine.layout_time", "layout"},
        {"engine.idle_time",   "idle"  }
    };
    enum { STAGES = sizeof stages / sizeof *stages };
    double all = 0, ms[STAGES];
    struct str line = {0};
    for (size_t i = 0; i < STAGES; i++) {
        ms[i] = json_find_number(loader, stages[i].key, 0);
        all += ms[i];
    }
    for (size_t i = 0; all > 0 && i < STAGES; i++) {
        char cell[LAYOUT_CELL], part[64];
        if (!(ms[i] > 0))
            continue;
        snprintf(part, sizeof part, "%s %s", stages[i].name, layout_percent(ms[i] / all, cell));
        layout_part(&line, part);
    }
    if (line.length)
        layout_paragraph(out, "- Stages: ", 2, str_text(&line));
    str_done(&line);
}

/* The user's lines that take most of the time. */
static void put_lines(const json_t *input, struct str *out)
{
    enum { MOST_LINES = 4 };
    const json_t *list = json_find(input, "lines"), *item;
    char cell[LAYOUT_CELL], number[LAYOUT_CELL];
    size_t i, shown = 0;
    json_array_foreach (list, i, item) {
        struct str line = {0};
        if (json_is_object(json_find(item, "below")) || shown++ == MOST_LINES)
            continue;
        const char *file = json_find_text(item, "file", "?");
        str_addf(&line, "%s:%s %s", layout_file(file),
                 layout_count(json_find_number(item, "line", NAN), number),
                 json_find_text(item, "function", ""));
        str_addf(&line, " (%s, %s)", json_find_text(item, "part", "?"),
                 layout_percent(json_find_number(item, "share", NAN), cell));
        layout_paragraph(out, "- Line: ", 2, str_text(&line));
        str_done(&line);
        if (shown == MOST_LINES)
            break;
    }
}

void text_input(const json_t *summary, struct str *out)
{
    const json_t *finding = input_finding(summary), *loader = summary_main_loader(summary);
    const char *cause = json_find_text(finding, "cause", NULL);
    const char *meaning = cause ? text_cause_meaning(cause) : NULL;
    struct str line = {0};
    str_add(out, "- Diagnosis: ");
    if (cause)
        layout_cut(out, cause, 60);
    else if (finding)
        str_add(out, "slow, cause unknown");
    else if (!loader)
        str_add(out, "no DataLoader was seen");
    else
        str_add(out, "no problem found");
    str_add(out, "\n");
    input_stats(summary, loader, &line);
    layout_paragraph(out, "- Stats: ", 2, line.length ? str_text(&line) : "not measured");
    str_done(&line);
    if (finding)
        layout_paragraph(out, "- Why: ", 2,
                         meaning ? meaning : json_find_text(finding, "summary", "unknown"));
    const char *dataset = json_find_text(loader, "dataset", NULL);
    const char *where = json_find_text(loader, "where", NULL);
    if (dataset || where) {
        struct str text = {0};
        str_addf(&text, "%s%s%s", dataset ? dataset : "a DataLoader", where ? ", made at " : "",
                 where ? where : "");
        layout_paragraph(out, "- Loader: ", 2, str_text(&text));
        str_done(&text);
    }
    const json_t *input = json_object_get(summary, "input");
    put_sample(input, out);
    put_batch(input, out);
    put_stages(loader, out);
    put_lines(input, out);
}

/* A table of the first workers; the JSON has all. */
void text_workers(const json_t *summary, int colour, struct str *out)
{
    enum { MOST_WORKERS = 16 };
    const json_t *list = json_find(summary, "input.workers"), *item;
    char cells[8][LAYOUT_CELL];
    size_t i, n = json_array_size(list);
    json_array_foreach (list, i, item) {
        if (i == 0) {
            layout_title(out, colour, "Workers");
            str_addf(out, "  %-6s %8s %8s %8s %9s %9s %9s %9s\n", "worker", "batches", "busy",
                     "idle", "sample", "p99", "collate", "pack");
        }
        if (i == MOST_WORKERS)
            break;
        str_addf(out, "  %-6s %8s %8s %8s %9s %9s %9s %9s\n",
                 layout_count(json_find_number(item, "worker", NAN), cells[0]),
                 layout_count(json_find_number(item, "batches", NAN), cells[1]),
                 layout_percent(json_find_number(item, "busy_share", NAN), cells[2]),
                 layout_percent(json_find_number(item, "idle_share", NAN), cells[3]),
                 layout_duration(json_find_number(item, "sample.median", NAN), cells[4]),
                 layout_duration(json_find_number(item, "sample.p99", NAN), cells[5]),
                 layout_duration(json_find_number(item, "collate.median", NAN), cells[6]),
                 layout_duration(json_find_number(item, "pickle.median", NAN), cells[7]));
    }
    if (n > MOST_WORKERS)
        str_addf(out, "  and %zu more, see the JSON\n", n - MOST_WORKERS);
}
