/* cause.h: why the input is slow: the scene that all causes look at, and the causes. Internal to
 * cause_*.c. */
#ifndef LEAT_DIAGNOSE_CAUSE_H
#define LEAT_DIAGNOSE_CAUSE_H

#include "diagnose/rule.h"
#include "predict/what_if.h"

#define BUSY_SHARE 0.90 /* verdicts.md: workers busy from here on are the limit */
/* A batch of two tensors in the process of the loader: an entry of the queue, and for each tensor a
 * connection to the worker that holds its memory. 0.7 to 2.5 ms on two machines; bytes hardly
 * matter, because they stay where they are. Assumed where it was not measured. */
#define HAND_OVER_MS 1.0
#define HAND_OVER_SLOW                                                                             \
    5.0                 /* beyond what a few tensors take on a busy machine, packing included      \
                         */
#define FEW_BYTES 65536 /* through the pipe: far more than the handles of some 100 tensors */
#define QUEUE_MS  0.1   /* of it the entry alone, where the connections were measured */
/* The most that a worker answers later because its Python computes: for each of two tensors its
 * other thread asks for the lock of the interpreter five times, and waits for 5 ms each time
 * (sys.getswitchinterval()). 25 ms were measured for one tensor, 33 to 37 for two. */
#define LATE_MS 50.0
/* Between the least and the most gain: their middle is then within 15 % of either. */
#define RANGE_MOST 1.32
/* Of the machine, used by other programs: from there on every turn that a hand-over takes between
 * two processes may have to be waited for, and nothing is foretold. */
#define FOREIGN_MOST 0.5

/* What is known of the loader that feeds a rank. Ratios are NaN where nothing was sampled. */
struct scene {
    const struct facts *facts;
    const struct rank_facts *rank;
    const struct loader_fact *loader;
    double input_ms, wall_ms, rest_ms; /* per step */
    double from_ms, to_ms;             /* kept steps */
    double batches_per_step;
    /* the machine */
    double cores, left, idle; /* cores of the run; those that others leave; idle ones (NaN) */
    double foreign_cores;     /* that other programs use */
    double foreign;           /* threads of theirs, running or ready to */
    double stolen;            /* share of CPU time that a hypervisor took for other machines */
    /* workers of this loader */
    size_t workers;              /* processes seen */
    double busy;                 /* share of their life in which they made batches */
    double worker_cpu;           /* cores that one keeps busy */
    double worker_delay;         /* share of time that its main thread was ready, without a core */
    double main_cpu, main_delay; /* the same of the training process */
    int mixed;                   /* other loaders' workers cannot be told from them */
    /* a batch */
    double make_ms; /* fetch and collate */
    struct part_stats sample, fetch, collate, pickle, unpickle, pin;
    /* lines: shares are of the time that sampling found making batches */
    struct line_fact *lines; /* owned */
    size_t line_count;
    double line_ms, read_share, decode_share, blocked_share; /* NaN: no line was seen */
    double sample_read, sample_decode;                       /* of the time at work on samples */
};

int scene_look(struct scene *s); /* facts, rank, loader and input_ms are set; 0 or -ENOMEM */
void scene_done(struct scene *s);

/* The loader as it is, for the what-if model. */
struct what_if scene_model(const struct scene *s);
void model_scale(struct what_if *w, double make_ms); /* the same spread around another mean */

/* How many workers, at the most `most`, keep up with the step and with the device, if it has a
 * clock. */
int scene_workers(const struct scene *s, const struct what_if *w, int most);

/* The costliest line of a part that stands for itself (a user's line, or a library's that no line
 * of the user called); NULL: none was seen. */
const struct line_fact *scene_top_line(const struct scene *s, enum leat_part part);
/* Its share of the making time; and whether it is a library's. */
double line_share(const struct scene *s, const struct line_fact *line);
/* Adds the line, and the costliest that it calls, to the places of the finding. */
void place_line(const struct scene *s, const struct line_fact *line, struct finding *f);
/* For causes cured by a setting: the costliest line of all, and where the loader was made. */
void place_loader(const struct scene *s, struct finding *f);

/* 1 when the workers are what limits: busy all the time; or so busy that their Python answers late
 * when a batch is handed over, which holds up the training and gives them a rest in turn. */
int workers_limit(const struct scene *s);
double pipe_bytes(const struct scene *s); /* a batch; NaN: not known */

/* Says what the change of a setting gives, by the model; where the model knows too little, between
 * which gains it lies, and predicts none. */
void predict_setting(const struct scene *s, struct finding *f, const struct what_if *then,
                     const char *setting_fmt, ...) __attribute__((format(printf, 4, 5)));
/* Says what a change gives: step_ms instead of the present step. A change of code is simulated as
 * if the part in question cost nothing, so its gain is an upper bound. */
enum change { CHANGE_OF_SETTING, CHANGE_OF_CODE };
void predict(const struct scene *s, struct finding *f, double step_ms, enum change change,
             const char *change_fmt, ...) __attribute__((format(printf, 5, 6)));
void prove_busy(const struct scene *s, struct finding *f);
void prove_part(const struct scene *s, struct finding *f, enum evidence_code code,
                enum leat_part part, double ms);

/* Causes: 1 when it is the one, with everything said. The order is that of cause_input.c. */
int per_sample_overhead(const struct scene *s, struct finding *f);
int slow_collate_alone(const struct scene *s, struct finding *f);
int no_overlap(const struct scene *s, struct finding *f);
int worker_startup(const struct scene *s, struct finding *f);
int cpu_oversubscribed(const struct scene *s, struct finding *f);
int slow_handover(const struct scene *s, struct finding *f);
int uneven_workers(const struct scene *s, struct finding *f);
int slow_storage(const struct scene *s, struct finding *f);
int slow_collate(const struct scene *s, struct finding *f);
int too_few_workers(const struct scene *s, struct finding *f);
int slow_sample(const struct scene *s, struct finding *f);

/* The same for a loader whose batches leat's own engine makes (cause_engine.c). */
int explain_engine(const struct scene *s, const struct engine_fact *engine, struct finding *f);

#endif
