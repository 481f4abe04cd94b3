/* cause.h: why the input is slow: the causes, and what they share. Internal to cause_*.c. */
#ifndef LEAT_DIAGNOSE_CAUSE_H
#define LEAT_DIAGNOSE_CAUSE_H

#include "diagnose/rule.h"
#include "predict/loader_model.h"

#define BUSY_SHARE     0.90 /* verdicts.md: workers that are busy for this share limit the training */
#define HAND_OVER_SLOW 5.0   /* more than a few tensors take on a busy machine, packing included */
#define FEW_BYTES      65536 /* through the pipe: far more than the handles of about 100 tensors */
/* Greatest over least possible gain: up to here their geometric middle is within 15 % of both. */
#define RANGE_MOST 1.32
/* Share of the machine's cores used by other programs from which no gain of a setting is
 * predicted: each switch between two processes during a hand-over may then have to wait for a
 * core. */
#define FOREIGN_MOST 0.5

/* Adds the line, and the costliest line that it calls, to the places of the finding. */
void place_line(const struct loader_view *view, const struct line_fact *line, struct finding *f);
/* Adds the costliest line of all, and the line that created the loader: for causes that a
 * setting removes. */
void place_loader(const struct loader_view *view, struct finding *f);

/* 1 when the workers limit the training: they are busy all the time, or so busy that their
 * Python answers late when a batch is handed over (the training then waits, and the workers idle
 * meanwhile). */
int workers_limit(const struct loader_view *view);

/* Predicts the gain of a setting with the model. Where too much is unknown, adds the range of
 * possible gains to the action and predicts nothing. */
void predict_setting(const struct loader_view *view, struct finding *f, const struct what_if *then,
                     const char *setting_fmt, ...) __attribute__((format(printf, 4, 5)));
/* Predicts a step of step_ms after a change. A change of code is simulated as if the part in
 * question cost nothing, so its gain is an upper bound. */
enum change { CHANGE_OF_SETTING, CHANGE_OF_CODE };
void predict(const struct loader_view *view, struct finding *f, double step_ms, enum change change,
             const char *change_fmt, ...) __attribute__((format(printf, 5, 6)));
void prove_busy(const struct loader_view *view, struct finding *f);
void prove_part(const struct loader_view *view, struct finding *f, enum evidence_code code,
                enum leat_part part, double ms);

/* Causes: each returns 1 and fills in the finding when it holds. cause_input.c has their order. */
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

/* The causes of leat's own loader (cause_engine.c). */
int explain_engine(const struct loader_view *view, const struct engine_fact *engine,
                   struct finding *f);

#endif
