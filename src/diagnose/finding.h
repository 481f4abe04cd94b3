/* finding.h: what a rule found. A finding carries its values with the query that selects their
 * rows in run.db; diagnose() refuses a finding without evidence. */
#ifndef LEAT_DIAGNOSE_FINDING_H
#define LEAT_DIAGNOSE_FINDING_H

#include "diagnose/codes.h"

#include <stddef.h>
#include <stdint.h>

enum severity { SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_CRITICAL };
enum section { SECTION_STEP_TIME, SECTION_MEMORY, SECTION_SYSTEM, SECTION_PROCESS };

struct evidence {
    enum evidence_code code;
    char *what, *rows; /* owned; rows: "table WHERE ..." */
    const char *unit;
    double value;
};
struct place {
    char *file; /* owned */
    int line;
    double share;
    const char *of; /* the whole of which the share is a part: "making a batch"; a constant */
};

struct finding {
    enum finding_kind kind;
    enum cause cause;
    char *summary, *action; /* owned, as all strings here */
    enum action action_code;
    char *action_arguments; /* "num_workers=4"; NULL: none */
    char *alternative;      /* another action, without a prediction; NULL: none */
    enum action alternative_code;
    enum severity severity;
    enum section section;
    int rank, worker;      /* -1: the whole run */
    char *node;            /* NULL: the whole run */
    int64_t pid;           /* -1 */
    double from_ms, to_ms; /* the time that the finding covers */
    double share;          /* of kept step time that it would give back; 0: it is not about time */
    double predicted_gain; /* ratio: new throughput / old - 1; NaN when not predicted */
    int at_most; /* predicted_gain is an upper bound: the part in question would cost nothing */
    double predicted_ms; /* step time after `setting`; NaN when not predicted */
    char *setting;       /* the predicted change: "num_workers=4,persistent_workers=True" */
    double confidence;   /* 0..1 */
    int stops_run;       /* it stopped or slowed the whole run: memory, OOM, throttling */
    int failed;          /* an allocation failed: the finding is incomplete */
    int remark;          /* the user can change nothing about it: never the verdict */
    struct evidence *evidence;
    size_t evidence_count;
    struct place *where;
    size_t where_count;
};

struct findings {
    struct finding *items;
    size_t count, capacity;
    int failed; /* an allocation failed: the list is incomplete and is not shown */
};

/* Returns NULL when out of memory. All setters take NULL, so a rule needs no checks. */
struct finding *findings_add(struct findings *list, enum finding_kind kind, enum section section,
                             enum severity severity);
void finding_say(struct finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void finding_advise(struct finding *f, enum action action, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "name=value" of the action; a further call adds ",name=value". */
void finding_argument(struct finding *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds a sentence to the text of the action. */
void finding_add_advice(struct finding *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Another action, whose gain is not known. */
void finding_offer(struct finding *f, enum action action, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void finding_cause(struct finding *f, enum cause cause);
void finding_prove(struct finding *f, enum evidence_code code, double value, const char *rows_fmt,
                   ...) __attribute__((format(printf, 4, 5)));
/* The same with another name than that of the list, such as a phase. */
void finding_prove_named(struct finding *f, enum evidence_code code, const char *what, double value,
                         const char *rows_fmt, ...) __attribute__((format(printf, 5, 6)));
/* `where` is "file:line", `of` a constant: "making a batch". */
void finding_place(struct finding *f, const char *where, double share, const char *of);
void finding_predict(struct finding *f, const char *setting, double step_ms);
int finding_is_straggler(const struct finding *f);
void findings_done(struct findings *list);

const char *severity_text(enum severity severity); /* info, warning, critical */
const char *section_text(enum section section);    /* step_time, memory, system, process */

#endif
