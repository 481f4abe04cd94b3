/* finding.c: builds a list of findings. A failed allocation is remembered in the list or the
 * finding, and every setter takes NULL, so that a rule needs no check on each line. */
#include "diagnose/finding.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *format(const char *fmt, va_list args)
{
    char *text = NULL;
    va_list again;
    va_copy(again, args);
    int need = vsnprintf(NULL, 0, fmt, args);
    if (need >= 0 && (text = mem_alloc((size_t)need + 1)))
        vsnprintf(text, (size_t)need + 1, fmt, again);
    va_end(again);
    return text;
}

struct finding *findings_add(struct findings *list, enum finding_kind kind, enum section section,
                             enum severity severity)
{
    if (mem_reserve(&list->items, &list->capacity, list->count + 1, sizeof *list->items) < 0) {
        list->failed = 1;
        return NULL;
    }
    struct finding *f = &list->items[list->count];
    *f = (struct finding){.kind = kind,
                          .severity = severity,
                          .section = section,
                          .rank = -1,
                          .worker = -1,
                          .pid = -1,
                          .predicted_gain = NAN,
                          .predicted_ms = NAN,
                          .confidence = 1};
    list->count++;
    return f;
}

void finding_say(struct finding *f, const char *fmt, ...)
{
    if (!f)
        return;
    va_list args;
    va_start(args, fmt);
    mem_free(f->summary);
    f->summary = format(fmt, args);
    va_end(args);
}

void finding_advise(struct finding *f, enum action action, const char *fmt, ...)
{
    if (!f)
        return;
    va_list args;
    va_start(args, fmt);
    mem_free(f->action);
    f->action_code = action;
    f->action = format(fmt, args);
    va_end(args);
}

/* Appends to a text, which may be NULL. Out of memory, the finding is marked as failed. */
static void append(struct finding *f, char **text, const char *between, const char *fmt,
                   va_list args)
{
    char *more = format(fmt, args);
    struct str whole = {0};
    if (*text)
        str_addf(&whole, "%s%s", *text, between);
    str_add(&whole, more ? more : "");
    int failed = !more || whole.failed;
    mem_free(more);
    if (failed) {
        str_done(&whole);
        f->failed = 1;
        return;
    }
    mem_free(*text);
    *text = whole.text;
}

void finding_argument(struct finding *f, const char *fmt, ...)
{
    if (!f)
        return;
    va_list args;
    va_start(args, fmt);
    append(f, &f->action_arguments, ",", fmt, args);
    va_end(args);
}

void finding_add_advice(struct finding *f, const char *fmt, ...)
{
    if (!f)
        return;
    va_list args;
    va_start(args, fmt);
    append(f, &f->action, " ", fmt, args);
    va_end(args);
}

void finding_offer(struct finding *f, enum action action, const char *fmt, ...)
{
    if (!f)
        return;
    va_list args;
    va_start(args, fmt);
    mem_free(f->alternative);
    f->alternative_code = action;
    f->alternative = format(fmt, args);
    va_end(args);
    if (!f->alternative)
        f->failed = 1;
}

void finding_cause(struct finding *f, enum cause cause)
{
    if (f)
        f->cause = cause;
}

static const struct {
    const char *code, *what, *unit;
} evidence_list[] = {
#define X(name, code, what, unit) {code, what, unit},
    EVIDENCE(X)
#undef X
};

static void prove(struct finding *f, enum evidence_code code, const char *what, double value,
                  const char *rows_fmt, va_list args)
{
    struct evidence *grown = mem_resize(f->evidence, f->evidence_count + 1, sizeof *grown);
    if (!grown) {
        f->failed = 1;
        return;
    }
    f->evidence = grown;
    grown[f->evidence_count++] = (struct evidence){.code = code,
                                                   .what = mem_strdup(what),
                                                   .unit = evidence_list[code].unit,
                                                   .rows = format(rows_fmt, args),
                                                   .value = value};
}

void finding_prove(struct finding *f, enum evidence_code code, double value, const char *rows_fmt,
                   ...)
{
    if (!f)
        return;
    va_list args;
    va_start(args, rows_fmt);
    prove(f, code, evidence_list[code].what, value, rows_fmt, args);
    va_end(args);
}

void finding_prove_named(struct finding *f, enum evidence_code code, const char *what, double value,
                         const char *rows_fmt, ...)
{
    if (!f)
        return;
    va_list args;
    va_start(args, rows_fmt);
    prove(f, code, what, value, rows_fmt, args);
    va_end(args);
}

void finding_place(struct finding *f, const char *where, double share, const char *of)
{
    const char *colon = where ? strrchr(where, ':') : NULL;
    int64_t line = -1;
    if (!f || !colon || colon == where || num_parse_i64(colon + 1, &line) < 0)
        return;
    struct place *grown = mem_resize(f->where, f->where_count + 1, sizeof *grown);
    if (!grown) {
        f->failed = 1;
        return;
    }
    f->where = grown;
    char *file = mem_alloc((size_t)(colon - where) + 1);
    if (file)
        memcpy(file, where, (size_t)(colon - where));
    grown[f->where_count++] =
        (struct place){.file = file, .line = (int)line, .share = share, .of = of};
}

void finding_predict(struct finding *f, const char *setting, double step_ms)
{
    if (!f)
        return;
    mem_free(f->setting);
    f->setting = mem_strdup(setting);
    f->predicted_ms = step_ms;
    if (!f->setting)
        f->failed = 1;
}

int finding_is_straggler(const struct finding *f)
{
    return f->kind == KIND_STRAGGLER || f->kind == KIND_INPUT_STRAGGLER ||
           f->kind == KIND_H2D_STRAGGLER || f->kind == KIND_COMPUTE_STRAGGLER;
}

void findings_done(struct findings *list)
{
    for (size_t i = 0; i < list->count; i++) {
        struct finding *f = &list->items[i];
        for (size_t j = 0; j < f->evidence_count; j++) {
            mem_free(f->evidence[j].what);
            mem_free(f->evidence[j].rows);
        }
        for (size_t j = 0; j < f->where_count; j++)
            mem_free(f->where[j].file);
        mem_free(f->evidence);
        mem_free(f->where);
        mem_free(f->summary);
        mem_free(f->action);
        mem_free(f->action_arguments);
        mem_free(f->alternative);
        mem_free(f->node);
        mem_free(f->setting);
    }
    mem_free(list->items);
    *list = (struct findings){0};
}

static const struct {
    const char *text, *label;
} kinds[] = {
#define X(name, label) {#name, label},
    FINDING_KINDS(X)
#undef X
};

const char *finding_kind_text(enum finding_kind kind)
{
    return kinds[kind].text;
}

const char *finding_kind_label(enum finding_kind kind)
{
    return kinds[kind].label;
}

const char *cause_text(enum cause cause)
{
    static const char *const texts[] = {NULL,
#define X(name) #name,
                                        CAUSES(X)
#undef X
    };
    return texts[cause];
}

const char *action_text(enum action action)
{
    static const char *const texts[] = {"",
#define X(name, code) code,
                                        ACTIONS(X)
#undef X
    };
    return texts[action];
}

const char *evidence_code_text(enum evidence_code code)
{
    return evidence_list[code].code;
}

const char *severity_text(enum severity severity)
{
    static const char *const texts[] = {"info", "warning", "critical"};
    return texts[severity];
}

const char *section_text(enum section section)
{
    static const char *const texts[] = {"step_time", "memory", "system", "process"};
    return texts[section];
}
