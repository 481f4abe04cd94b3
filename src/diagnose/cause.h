/* cause.h: why the input is slow: the scene that all causes look at, and the causes. Internal to
 * cause_*.c. */
#ifndef LEAT_DIAGNOSE_CAUSE_H
#define LEAT_DIAGNOSE_CAUSE_H

#include "diagnose/rule.h"
#include "predict/loader_model.h"

#define BUSY_SHARE 0.90 /* verdicts.md: workers busy from here on are the limit */
#define HAND_OVER_SLOW                                                                             \
    5.0                 /* beyond what a few tensors take on a busy machine, packing included      \
                         */
#define FEW_BYTES 65536 /* through the pipe: far more than the handles of some 100 tensors */
/* Between the least and the most gain: their middle is then within 15 % of either. */
#define RANGE_MOST 1.32
/* Of the machine, used by other programs: from there on every turn that a hand-over takes between
 * two processes may have to be waited for, and nothing is foretold. */
#define FOREIGN_MOST 0.5

/* Adds the line, and the costliest that it calls, to the places of the finding. */
void place_line(const struct loader_view *view, const struct line_fact *line, struct finding *f);
/* For causes cured by a setting: the costliest line of all, and where the loader was made. */
void place_loader(const struct loader_view *view, struct finding *f);

/* 1 when the workers are what limits: busy all the time; or so busy that their Python answers late
 * when a batch is handed over, which holds up the training and gives them a rest in turn. */
int workers_limit(const struct loader_view *view);

/* Says what the change of a setting gives, by the model; where the model knows too little, between
 * which gains it lies, and predicts none. */
void predict_setting(const struct loader_view *view, struct finding *f, const struct what_if *then,
                     const char *setting_fmt, ...) __attribute__((format(printf, 4, 5)));
/* Says what a change gives: step_ms instead of the present step. A change of code is simulated as
 * if the part in question cost nothing, so its gain is an upper bound. */
enum change { CHANGE_OF_SETTING, CHANGE_OF_CODE };
void predict(const struct loader_view *view, struct finding *f, double step_ms, enum change change,
             const char *change_fmt, ...) __attribute__((format(printf, 5, 6)));
void prove_busy(const struct loader_view *view, struct finding *f);
void prove_part(const struct loader_view *view, struct finding *f, enum evidence_code code,
                enum leat_part part, double ms);

/* Causes: 1 when it is the one, with everything said. The order is that of cause_input.c. */
int per_sample_overhead(const struct loader_view *view, struct finding *f);
int slow_collate_alone(const struct loader_view *view, struct finding *f);
int no_overlap(const struct loader_view *view, struct finding *f);
int worker_startup(const struct loader_view *view, struct finding *f);
int cpu_oversubscribed(const struct loader_view *view, struct finding *f);
int slow_handover(const struct loader_view *view, struct finding *f);
int uneven_workers(const struct loader_view *view, struct finding *f);
int slow_storage(const struct loader_view *view, struct finding *f);
int slow_collate(const struct loader_view *view, struct finding *f);
int too_few_workers(const struct loader_view *view, struct finding *f);
int slow_sample(const struct loader_view *view, struct finding *f);

/* The same for a loader whose batches leat's own engine makes (cause_engine.c). */
int explain_engine(const struct loader_view *view, const struct engine_fact *engine,
                   struct finding *f);

#endif
