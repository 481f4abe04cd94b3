/* text_tables.c: the lower half of the text report: memory, the tables of phases and ranks, what
 * was not measured, and the next command. */
#include "report/text_parts.h"

#include "report/text_layout.h"
#include "store/store.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

/* Free pieces below this share of the reserved memory are usual, and not shown. */
#define SHOWN_SPLIT_RATIO 0.1

struct peaks {
    double rss, workers, reserved, capacity, split, retries;
};

static double larger(double a, double b)
{
    return !isfinite(a) || b > a ? b : a;
}

/* The worst rank of each figure. */
static struct peaks memory_peaks(const json_t *summary)
{
    struct peaks worst = {NAN, NAN, NAN, NAN, NAN, NAN};
    json_t *ranks = (json_t *)json_find(summary, "memory.ranks"), *rank, *gpu;
    const char *name;
    size_t i;
    json_object_foreach (ranks, name, rank) {
        worst.rss = larger(worst.rss, json_find_number(rank, "rss_peak_bytes", NAN));
        worst.workers =
            larger(worst.workers, json_find_number(rank, "workers_rss_peak_bytes", NAN));
        json_array_foreach (json_object_get(rank, "gpus"), i, gpu) {
            worst.reserved =
                larger(worst.reserved, json_find_number(gpu, "reserved_peak_bytes", NAN));
            worst.capacity = larger(worst.capacity, json_find_number(gpu, "capacity_bytes", NAN));
            worst.split = larger(worst.split, json_find_number(gpu, "split_peak_bytes", NAN));
            worst.retries = larger(worst.retries, json_find_number(gpu, "allocation_retries", NAN));
        }
    }
    return worst;
}

void text_memory_stats(const json_t *summary, struct str *line)
{
    struct peaks peak = memory_peaks(summary);
    char cell[LAYOUT_CELL], more[LAYOUT_CELL], part[128];
    if (isfinite(peak.reserved)) {
        snprintf(part, sizeof part, "GPU reserved %s of %s", layout_bytes(peak.reserved, cell),
                 layout_bytes(peak.capacity, more));
        layout_part(line, part);
    }
    if (peak.split > SHOWN_SPLIT_RATIO * peak.reserved) {
        snprintf(part, sizeof part, "%s of it free in pieces", layout_bytes(peak.split, cell));
        layout_part(line, part);
    }
    if (peak.retries > 0) {
        snprintf(part, sizeof part, "%s allocations had to empty the cache",
                 layout_count(peak.retries, cell));
        layout_part(line, part);
    }
    if (isfinite(peak.rss)) {
        snprintf(part, sizeof part, "rank RSS peak %s", layout_bytes(peak.rss, cell));
        layout_part(line, part);
    }
    if (isfinite(peak.workers)) {
        snprintf(part, sizeof part, "its workers %s", layout_bytes(peak.workers, cell));
        layout_part(line, part);
    }
    double limit = json_find_number(summary, "memory.limit_bytes", NAN);
    if (isfinite(limit)) {
        snprintf(part, sizeof part, "limit %s", layout_bytes(limit, cell));
        layout_part(line, part);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void put_phases(const json_t *summary, int colour, struct str *out)
{
    char cells[4][LAYOUT_CELL], path[64];
    int any = 0;
    for (int i = 0; i < PHASES; i++) {
        snprintf(path, sizeof path, "step_time.phases.%s", leat_phase_names[i]);
        const json_t *phase = json_find(summary, path);
        if (!json_is_object(phase))
            continue;
        if (!any) {
            layout_title(out, colour, "Phases");
            str_addf(out, "  %-10s %10s %10s %10s %10s\n", "", "mean", "median", "p99", "share");
            any = 1;
        }
        str_addf(out, "  %-10s %10s %10s %10s %10s\n", leat_phase_names[i],
                 layout_duration(json_find_number(phase, "mean", NAN), cells[0]),
                 layout_duration(json_find_number(phase, "median", NAN), cells[1]),
                 layout_duration(json_find_number(phase, "p99", NAN), cells[2]),
                 layout_percent(json_find_number(phase, "share", NAN), cells[3]));
    }
}

/* Named spans of the typical rank: checkpoint, compile, the user's own phases. */
static void put_spans(const json_t *summary, int colour, struct str *out)
{
    const json_t *list = json_find(summary, "step_time.spans"), *span;
    double typical = json_find_number(summary, "step_time.rank", NAN);
    char cells[3][LAYOUT_CELL];
    size_t i;
    int shown = 0;
    json_array_foreach (list, i, span) {
        if (json_find_number(span, "rank", NAN) != typical || ++shown > 12)
            continue;
        if (shown == 1) {
            layout_title(out, colour, "Named spans");
            str_addf(out, "  %-24s %10s %10s %10s\n", "", "count", "total", "longest");
        }
        struct str name = {0};
        layout_cut(&name, json_find_text(span, "name", "?"), 24);
        int pad = 24 - layout_width(str_text(&name));
        str_addf(out, "  %s%*s %10s %10s %10s\n", str_text(&name), pad > 0 ? pad : 0, "",
                 layout_count(json_find_number(span, "n", NAN), cells[0]),
                 layout_duration(json_find_number(span, "total", NAN), cells[1]),
                 layout_duration(json_find_number(span, "max", NAN), cells[2]));
        str_done(&name);
    }
    if (shown > 12)
        str_addf(out, "  and %d more, see the JSON\n", shown - 12);
}

/* A table of the first ranks; the JSON has all. */
static void put_ranks(const json_t *summary, int colour, struct str *out)
{
    static const char *const columns[] = {"mean",
                                          "phases.input.mean",
                                          "phases.forward.mean",
                                          "phases.backward.mean",
                                          "phases.optimizer.mean",
                                          "phases.sync.mean"};
    enum { MOST_RANKS = 16 };
    json_t *ranks = (json_t *)json_find(summary, "step_time.ranks"), *rank;
    const char *name;
    size_t shown = 0;
    if (json_object_size(ranks) < 2)
        return;
    layout_title(out, colour, "Ranks");
    str_addf(out, "  %-6s %10s %10s %10s %10s %10s %10s\n", "rank", "total", "input", "forward",
             "backward", "optimizer", "sync");
    json_object_foreach (ranks, name, rank) {
        if (shown++ == MOST_RANKS)
            break;
        struct str line = {0};
        layout_cut(&line, name, 6);
        int pad = 6 - layout_width(str_text(&line));
        str_addf(out, "  %s%*s", str_text(&line), pad > 0 ? pad : 0, "");
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
            char cell[LAYOUT_CELL];
            str_addf(out, " %10s", layout_duration(json_find_number(rank, columns[i], NAN), cell));
        }
        str_add(out, "\n");
        str_done(&line);
    }
    if (json_object_size(ranks) > MOST_RANKS)
        str_addf(out, "  and %zu more, see the JSON\n", json_object_size(ranks) - MOST_RANKS);
}

void text_tables(const json_t *summary, int colour, struct str *out)
{
    put_phases(summary, colour, out);
    put_ranks(summary, colour, out);
    text_workers(summary, colour, out);
    put_spans(summary, colour, out);
}

/* ---- what was not measured --------------------------------------------------------------------
 */

/* A line that several processes have is printed once. */
static void put_once(struct str *out, struct str *printed, const char *text)
{
    struct str key = {0};
    str_addf(&key, "\n%s\n", text);
    if (!strstr(str_text(printed), str_text(&key))) {
        str_add(printed, str_text(&key));
        layout_paragraph(out, "- ", 2, text);
    }
    str_done(&key);
}

void text_not_seen(const json_t *summary, int colour, struct str *out)
{
    struct str lines = {0}, printed = {0};
    const json_t *list = json_find(summary, "lost.details"), *item;
    char cell[LAYOUT_CELL];
    size_t i;
    json_array_foreach (list, i, item) {
        struct str text = {0};
        double n = json_find_number(item, "n", NAN);
        str_addf(&text, "%s", json_find_text(item, "what", "?"));
        if (n > 0)
            str_addf(&text, " (%s)", layout_count(n, cell));
        str_addf(&text, ": %s", json_find_text(item, "why", "unknown reason"));
        if (i < 12)
            put_once(&lines, &printed, str_text(&text));
        str_done(&text);
    }
    json_array_foreach (json_object_get(summary, "processes"), i, item) {
        const char *missing = json_find_text(item, "missing", NULL);
        if (missing && printed.length < 4096)
            put_once(&lines, &printed, missing);
    }
    if (lines.length) {
        layout_title(out, colour, "Not seen");
        str_add(out, str_text(&lines));
    }
    str_done(&lines);
    str_done(&printed);
}

/* ---- the next command ------------------------------------------------------------------------ */

/* Adds a word, quoted for a shell where necessary. */
static void add_word(struct str *line, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        str_addf(line, " %s", word);
        return;
    }
    str_add(line, " '");
    for (const char *p = word; *p; p++)
        if (*p == '\'')
            str_add(line, "'\\''");
        else
            str_add_bytes(line, p, 1);
    str_add(line, "'");
}

/* The command of the run; "..." when it is not known or too long for the line. */
static void add_command(struct str *line, const json_t *summary)
{
    const json_t *words = json_find(summary, "run.command"), *word;
    struct str command = {0};
    size_t i;
    json_array_foreach (words, i, word)
        if (command.length < 200)
            add_word(&command, json_is_string(word) ? json_string_value(word) : "?");
    const char *first = json_string_value(json_array_get(words, 0));
    const char *same = " ... (the same command)";
    if (command.length == 0 || line->length + command.length > LAYOUT_COLUMNS)
        str_add(line, line->length + strlen(same) <= LAYOUT_COLUMNS && first ? same : " ...");
    else
        str_add(line, str_text(&command));
    str_done(&command);
}

void text_next_command(const json_t *summary, struct str *out)
{
    const char *name = json_find_text(summary, "run.name", "");
    const char *severity = json_find_text(summary, "verdict.severity", "info");
    const char *kind = json_find_text(summary, "verdict.kind", "");
    struct str line = {0};
    int shown = *name && strlen(name) <= 24;
    /* A run outside of ./logs is named by its folder, if that fits the line. */
    const char *logs = json_find_text(summary, "run.logs_dir", "logs");
    int elsewhere = strcmp(logs, "logs") != 0 && strlen(logs) + strlen(name) <= 28;
    if (strcmp(severity, "info") != 0 && shown) {
        str_add(out, "\nMake the change, then:\n");
        str_add(&line, "  leat run");
        if (elsewhere)
            add_word((str_add(&line, " --logs-dir"), &line), logs);
        str_addf(&line, " --run-name %s-2", name);
        add_command(&line, summary);
        str_add(&line, "\n  leat compare");
        for (int i = 0; i < 2; i++) {
            struct str run = {0};
            str_addf(&run, "%s%s%s%s", elsewhere ? logs : "", elsewhere ? "/" : "", name,
                     i ? "-2" : "");
            add_word(&line, str_text(&run));
            str_done(&run);
        }
    } else if (strcmp(kind, "INSUFFICIENT_DATA") == 0) {
        str_add(out, "\nWhat leat can measure on this machine:\n");
        str_add(&line, "  leat check");
    } else {
        str_add(out, "\nAll figures:\n");
        str_addf(&line, "  leat view %s%s--json", shown ? name : "", shown ? " " : "");
    }
    for (const char *p = str_text(&line); *p;) { /* line by line, without control bytes */
        size_t length = strcspn(p, "\n");
        struct str one = {0};
        str_add_bytes(&one, p, length);
        layout_cut(out, str_text(&one), LAYOUT_COLUMNS);
        str_add(out, "\n");
        str_done(&one);
        p += length + (p[length] == '\n');
    }
    str_done(&line);
}
