/* summary.c: facts and findings -> final_summary.json.
 *
 * Other tools read the summary, and the text report is made from it. Every key is always present,
 * what was not measured is null and never 0, times are milliseconds, shares are 0 to 1, sizes are
 * bytes. docs/final_summary.schema.json is the contract.
 *
 *     summary.c          schema_version, run, verdict, findings, lost
 *     summary_steps.c    step_time
 *     summary_input.c    input
 *     summary_system.c   memory, system, processes
 *     summary_cuda.c     system.cuda
 *     summary_clock.c    system.gpu_clock
 */
#include "report/report.h"

#include "base/mem.h"
#include "report/summary_parts.h"

#include <math.h>
#include <string.h>

json_t *summary_integer(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

json_t *summary_flag(int64_t value)
{
    return value < 0 ? json_null() : json_boolean(value);
}

json_t *summary_text(const char *text)
{
    if (!text || !*text)
        return json_null();
    json_t *value = json_string(text);
    if (value)
        return value;
    /* Not UTF-8: the ASCII part is enough to recognise a path or a message. */
    char *copy = mem_strdup(text);
    if (!copy)
        return NULL;
    for (char *p = copy; *p; p++)
        if (*p & 0x80)
            *p = '?';
    value = json_string(copy);
    mem_free(copy);
    return value;
}

/* meta.command is a JSON array; a database that leat did not write may have plain text. */
static json_t *command_words(const char *command)
{
    if (!command || !*command)
        return json_null();
    json_t *words = json_loads(command, 0, NULL);
    size_t i;
    json_t *word;
    int good = json_is_array(words);
    json_array_foreach (words, i, word)
        good = good && json_is_string(word);
    if (good)
        return words;
    json_decref(words);
    return json_pack("[o]", summary_text(command));
}

/* The GPUs of this run, each once, in the order they were first sampled. */
static json_t *devices(const struct facts *facts)
{
    json_t *names = json_array();
    for (size_t i = 0; i < facts->gpu_sample_count; i++) {
        const char *gpu = facts->gpu_samples[i].gpu;
        size_t k = 0;
        if (!*gpu)
            continue;
        while (k < json_array_size(names) &&
               strcmp(json_string_value(json_array_get(names, k)), gpu) != 0)
            k++;
        if (k == json_array_size(names) && json_array_append_new(names, summary_text(gpu)) < 0) {
            json_decref(names);
            return NULL;
        }
    }
    return names;
}

/* The exception that ended the run: that of the lowest rank. The others are in `processes`. */
static const char *exception(const struct facts *facts)
{
    const struct proc_fact *found = NULL;
    for (size_t i = 0; i < facts->proc_count; i++) {
        const struct proc_fact *proc = &facts->procs[i];
        if (!*proc->exception || proc->role == ROLE_WORKER)
            continue;
        if (!found || (unsigned)proc->rank < (unsigned)found->rank)
            found = proc;
    }
    return found ? found->exception : NULL;
}

static json_t *run_part(const struct facts *facts)
{
    return json_pack(
        "{so so so so so so so so si so so so so so so so so}", "name",
        summary_text(facts->run_name), "command", command_words(facts->command), "started_at",
        summary_text(facts->started_at), "duration_s",
        json_number_or_null(facts->duration_ms > 0 ? facts->duration_ms / 1000 : (double)NAN),
        "ended", summary_text(facts->ended), "exit_status", summary_integer(facts->exit_status),
        "signal", facts->signal > 0 ? json_integer(facts->signal) : json_null(), "exception",
        summary_text(exception(facts)), "nodes", 1, "node", summary_text(facts->node), "world_size",
        facts->world_size > 0 ? json_integer(facts->world_size) : json_null(), "devices",
        devices(facts), "logs_dir", summary_text(facts->logs_dir), "max_steps",
        facts->max_steps > 0 ? json_integer(facts->max_steps) : json_null(), "torch",
        summary_text(facts->torch), "python", summary_text(facts->python), "leat",
        summary_text(facts->leat));
}

static json_t *verdict_part(const struct finding *f)
{
    return json_pack("{ss ss ss so so so sb so}", "kind", finding_kind_text(f->kind), "label",
                     finding_kind_label(f->kind), "severity", severity_text(f->severity), "summary",
                     summary_text(f->summary), "action", summary_text(f->action), "predicted_gain",
                     json_number_or_null(f->predicted_gain), "predicted_at_most", f->at_most,
                     "alternative", summary_text(f->alternative));
}

static json_t *evidence_part(const struct finding *f)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < f->evidence_count; i++) {
        const struct evidence *e = &f->evidence[i];
        json_t *item = json_pack("{so so so so}", "what", summary_text(e->what), "value",
                                 json_number_or_null(e->value), "unit", summary_text(e->unit),
                                 "rows", summary_text(e->rows));
        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *where_part(const struct finding *f)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < f->where_count; i++) {
        const struct place *place = &f->where[i];
        json_t *item = json_pack("{so so so so}", "file", summary_text(place->file), "line",
                                 summary_integer(place->line), "share",
                                 json_number_or_null(place->share), "of", summary_text(place->of));
        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *predicted_part(const struct finding *f)
{
    if (!f->setting)
        return json_null();
    return json_pack("{so so so}", "setting", summary_text(f->setting), "step_ms",
                     json_number_or_null(f->predicted_ms), "gain",
                     json_number_or_null(f->predicted_gain));
}

static json_t *finding_part(const struct finding *f)
{
    json_t *scope =
        json_pack("{so so so so}", "rank", summary_integer(f->rank), "node", summary_text(f->node),
                  "worker", summary_integer(f->worker), "pid", summary_integer(f->pid));
    json_t *interval = json_pack("{so so}", "from", json_number_or_null(f->from_ms), "to",
                                 json_number_or_null(f->to_ms));
    return json_pack(
        "{ss ss ss ss so so so so so so so so so so sb so so}", "kind", finding_kind_text(f->kind),
        "label", finding_kind_label(f->kind), "severity", severity_text(f->severity), "section",
        section_text(f->section), "scope", scope, "interval", interval, "cause",
        summary_text(cause_text(f->cause)), "summary", summary_text(f->summary), "where",
        where_part(f), "evidence", evidence_part(f), "action", summary_text(f->action),
        "alternative", summary_text(f->alternative), "share", json_number_or_null(f->share),
        "predicted_gain", json_number_or_null(f->predicted_gain), "predicted_at_most", f->at_most,
        "predicted", predicted_part(f), "confidence", json_number_or_null(f->confidence));
}

static json_t *findings_part(const struct findings *findings)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < findings->count; i++)
        if (json_array_append_new(list, finding_part(&findings->items[i])) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static int64_t lost_total(const struct facts *facts, const char *what)
{
    int64_t total = 0;
    for (size_t i = 0; i < facts->lost_count; i++)
        if (strcmp(facts->lost[i].what, what) == 0)
            total += facts->lost[i].n > 0 ? facts->lost[i].n : 1;
    return total;
}

/* Here 0 is a measurement: leat counts what it loses. */
static json_t *lost_part(const struct facts *facts)
{
    json_t *details = json_array();
    for (size_t i = 0; details && i < facts->lost_count; i++) {
        const struct lost_fact *lost = &facts->lost[i];
        json_t *item = json_pack("{so so so}", "what", summary_text(lost->what), "n",
                                 summary_integer(lost->n), "why", summary_text(lost->why));
        if (json_array_append_new(details, item) < 0) {
            json_decref(details);
            return NULL;
        }
    }
    return json_pack("{sI sI sI sI so}", "records", (json_int_t)lost_total(facts, "records"),
                     "ranks", (json_int_t)lost_total(facts, "ranks"), "probes",
                     (json_int_t)lost_total(facts, "probes"), "samples",
                     (json_int_t)lost_total(facts, "samples"), "details", details);
}

int summary_from_database(struct store_reader *reader, json_t **ret_summary, struct leat_err *err)
{
    struct facts *facts = NULL;
    struct findings findings = {0};
    int result = facts_load(reader, &facts, err);
    if (result == 0)
        result = diagnose(facts, &findings, err);
    if (result == 0)
        result = summary_build(facts, &findings, ret_summary, err);
    findings_done(&findings);
    facts_free(facts);
    return result;
}

int summary_build(const struct facts *facts, const struct findings *findings, json_t **ret_summary,
                  struct leat_err *err)
{
    if (findings->failed)
        return err_set(err, -ENOMEM, "Out of memory while diagnosing: there is no summary.");
    if (findings->count == 0)
        return err_set(err, -LEAT_E_MISSING, "The diagnosis gave no finding: there is no summary.");
    json_t *summary = json_pack(
        "{ss so so so so so so so so so}", "schema_version", SUMMARY_SCHEMA, "run", run_part(facts),
        "verdict", verdict_part(&findings->items[0]), "findings", findings_part(findings),
        "step_time", summary_step_time(facts), "input", summary_input(facts), "memory",
        summary_memory(facts), "system", summary_system(facts), "processes",
        summary_processes(facts), "lost", lost_part(facts));
    if (!summary)
        return err_set(err, -ENOMEM, "Out of memory while writing the summary.");
    *ret_summary = summary;
    return 0;
}
