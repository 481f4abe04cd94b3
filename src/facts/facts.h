/* facts.h: the run database as the rules see it: loaded once into plain arrays, without any
 * judgement.
 *
 * facts_load is the only function of src/facts that reads the store; a rule is a pure function of
 * `struct facts`, so every verdict has a golden test. Ratios are 0..1, times are in the unit of the
 * name, an unknown double is NaN, an unknown integer is -1.
 */
#ifndef LEAT_FACTS_FACTS_H
#define LEAT_FACTS_FACTS_H

#include "base/err.h"
#include "facts/names.h"
#include "record/probe_abi.h"
#include "store/store.h"

#include <leat/recorder.h>

#include <stdint.h>

/* Step times of one rank, kept steps only (warm-up and compile steps are counted, not kept). One
 * array per phase, each of `count` entries; NULL when the phase was not measured. Where old steps
 * were folded, an entry stands for `weight` steps and holds their mean. */
struct step_stats { /* distribution of a phase, or of the whole step, over kept steps; ms */
    double mean, median, p90, p99; /* NaN when not measured */
    double share;                  /* of total kept time */
};

struct rank_facts {
    int rank, local_rank;
    int64_t pid;
    int64_t steps;        /* all steps of this rank */
    int64_t warmup_steps; /* left out at the start */
    int64_t compile_steps;
    double compile_ms; /* wall time of the compile steps */
    size_t count;      /* entries in the arrays */
    int64_t kept;      /* steps they stand for */
    int64_t *step;     /* step number of each entry */
    double *end_ms;
    double *wall_ms;
    double *phase_ms[PHASES];
    double *weight;
    uint32_t *flags;
    double kept_ms;                    /* sum of wall over kept steps */
    int64_t samples;                   /* of kept steps; -1 unknown */
    int64_t micro_steps;               /* batches in kept steps */
    double cost_ms;                    /* leat's own cost per step: records x measured cost */
    double eval_ms;                    /* evaluation, all of the run */
    uint32_t signals;                  /* enum leat_signal */
    int inference;                     /* its steps are batches: no optimizer was seen */
    int folded;                        /* some entries stand for several steps */
    uint64_t *folded_bins[PHASES + 1]; /* histogram of the folded steps, or NULL; the last: wall */
    struct step_stats
        *stats; /* PHASES + 1 of them, the last for the wall; NULL: not yet computed */
};

struct span_fact {
    int rank;
    enum span_kind kind;
    char name[64];
    int64_t n;
    double total_ms, max_ms, other_ms;
};

/* `row` of a fact is the row of run.db without its texts (STORE_NULL, NaN: not known): a new column
 * needs no change of this file. What rules use has a member of its own, in their units.
 */
struct loader_fact {
    struct loader_row row;
    int64_t pid;
    int loader, rank;
    enum loader_use use;
    char dataset[96], where[160];
    int64_t dataset_length, batch_size, num_workers, prefetch_factor, pin_memory;
    int64_t persistent_workers, iterable, iterations, batches, samples;
    int64_t own;             /* 1: leat's DataLoader; through torch where it has no engine */
    int64_t engine_readable; /* 1: leat.DataLoader with these arguments makes the batches in C */
    double wait_ms, first_wait_ms, background_ms;
};

/* Of a loader whose batches leat's own engine makes: what its stages took, summed over threads. */
struct engine_fact {
    struct engine_row row;
    int64_t pid, threads, cores, ahead;
    int loader;
    enum engine_source source_kind;
    enum engine_order order;
    char source[96];
    double memory_bytes, batches, samples, bytes, waits;
    double wait_ms, help_ms, order_ms, read_ms, layout_ms, idle_ms;
};

struct worker_fact {
    struct worker_row row; /* of one process; summary_input.c sums the other members */
    int64_t pid, parent_pid, batches, samples;
    int rank, worker_id;
    int loader;                       /* of its parent; -1: unknown */
    double busy_ms, alive_ms, max_ms; /* alive: from its first record to its last */
};

/* What making a batch and handing it over took, by part (run-db.md, input_parts). `worker` is the
 * worker's number, -1 the process of the loader itself, -2 workers without a number. */
struct input_part {
    int64_t pid, n;
    int loader, worker; /* loader -1: unknown */
    enum leat_part part;
    double total_ms, max_ms, bytes;
};
struct input_bin { /* their distribution */
    int64_t pid;
    int loader, worker;
    uint32_t bucket;
    enum leat_part part;
    int64_t n;
};
struct input_ready { /* requests that found so many batches ready */
    int64_t pid, batches, n;
    int loader, worker;
};
struct input_line { /* where the time goes, by sampling */
    int64_t pid, samples;
    int loader, worker, id, below; /* below: id of the user's line that called it; -1: none */
    enum leat_part part;           /* SAMPLE or COLLATE */
    int line;
    int library; /* 1: code of an installed package or of Python; 0: the user's own */
    char file[160], function[64];
    double ms, read_ms, decode_ms, blocked_ms; /* ms includes the three, and lines below */
};

struct proc_fact {
    struct process_row row;
    int64_t pid, ppid, lost_records;
    int rank, worker_id, recorded;
    enum process_role role;
    char comm[32], missing[256], exception[256], command[256];
    double started_ms, ended_ms; /* NaN: running at the end */
};

/* Samples over time, one array per table, ordered by pid then time (procs) or time. */
struct proc_sample {
    double t_ms, cpu_ms, rss_bytes, shared_bytes;
    double run_delay_ms; /* its main thread, ready to run but without a CPU, so far */
    int64_t pid, threads, fds, fd_limit, voluntary, involuntary, minor_faults, major_faults,
        read_bytes, write_bytes, read_calls;
};
struct sys_sample {
    double t_ms, cpu_ratio, run_cpu_ratio, iowait_ratio, memory_total, memory_available,
        swap_in_bytes, swap_out_bytes, swap_used_bytes, cpu_pressure, memory_pressure, io_pressure,
        shm_total, shm_used, steal_ratio;
};
struct gpu_sample {
    double t_ms, utilization, memory_used, memory_total, temperature_c, temperature_limit_c,
        power_w, power_limit_w, sm_clock_mhz, pcie_tx_bytes_s, pcie_rx_bytes_s;
    char gpu[64], throttle[64];
};
struct cuda_call { /* of a process during its steps, one row per class of calls (probe_abi.h) */
    int64_t pid;
    enum leat_cuda_class class; /* LEAT_CUDA_CLASSES_COUNT: one that this leat does not know */
    double n, ms, bytes;
};
struct cuda_line { /* of a process: a line that copies between host and GPU, or waits for it */
    int64_t pid, line;
    char file[160], function[64];
    enum cuda_line_kind kind;
    double n; /* copies to the device, or waits, by its kind */
    double ms, bytes, steps;
    double wait_ms;      /* of all waits at that line */
    double rare_wait_ms; /* of those that it makes in few of its steps: not in `n` and `ms` */
};
struct gpu_phase { /* device time of a process by what its host did (gpu_clock in run-db.md) */
    int64_t pid;
    enum leat_clock_phase phase; /* LEAT_CLOCK_PHASES_COUNT: one that this leat does not know */
    double device_ms, idle_ms, hidden_ms;
};
struct memory_sample {
    double t_ms, allocated, reserved, split; /* bytes */
    double retries;                          /* so far */
    int rank, device;
    int64_t step;
};
struct lost_fact {
    char what[16], why[256];
    int64_t n;
};

struct facts {
    /* meta */
    char *run_name, *command, *started_at, *node, *leat, *ended; /* owned; "" when absent */
    char *python, *torch, *logs_dir;
    double duration_ms;
    int exit_status, signal; /* -1: none */
    int64_t oom_kills, cpus, memory_limit_bytes, max_steps;

    struct rank_facts *ranks; /* ordered by rank; only ranks that made at least one step */
    size_t rank_count;
    int world_size; /* as the ranks declare it; 1 without ranks */
    int typical;    /* index of the typical rank (see facts_steps.c); -1: no steps */
    int training;   /* 1: steps are optimizer rounds; 0: inference; -1: no steps at all */

    struct span_fact *spans;
    size_t span_count;
    struct loader_fact *loaders;
    size_t loader_count;
    struct engine_fact *engines;
    size_t engine_count;
    struct worker_fact *workers;
    size_t worker_count;
    struct input_part *input_parts; /* ordered by pid, loader, worker */
    size_t input_part_count;
    struct input_bin *input_bins; /* the same */
    size_t input_bin_count;
    struct input_ready *input_ready; /* ordered by pid, loader, worker */
    size_t input_ready_count;
    struct input_line *input_lines; /* by pid, loader, worker and id */
    size_t input_line_count;
    struct proc_fact *procs;
    size_t proc_count;
    struct proc_sample *proc_samples;
    size_t proc_sample_count;
    struct sys_sample *sys_samples;
    size_t sys_sample_count;
    struct gpu_sample *gpu_samples;
    size_t gpu_sample_count;
    struct cuda_call *cuda_calls; /* ordered by pid, then by time */
    size_t cuda_call_count;
    struct cuda_line *cuda_lines; /* the same */
    size_t cuda_line_count;
    struct gpu_phase *gpu_phases; /* ordered by pid, then by idle time */
    size_t gpu_phase_count;
    struct memory_sample *memory_samples;
    size_t memory_sample_count;
    struct lost_fact *lost;
    size_t lost_count;
};

/* How many of `ranks` make up the run: those below world_size. What comes after them are processes
 * that trained under a rank already taken (a script that trains twice): they are shown, but never
 * compared with the ranks. */
size_t facts_world_ranks(const struct facts *facts);

enum run_end facts_run_end(const struct facts *facts);

/* The samples of one process, in the order of time. NULL and 0 when it was never sampled. */
const struct proc_sample *facts_samples(const struct facts *facts, int64_t pid, size_t *ret_count);

/* The engine of a loader; NULL: torch's machinery makes its batches. */
const struct engine_fact *facts_engine(const struct facts *facts, int64_t pid, int loader);

/* ---- inside the input path (facts_input.c) --------------------------------------------------- */

/* Which rows: of the loader `loader` of process `pid`, and of one worker, of the process itself
 * (FACTS_PROCESS), of all its workers (FACTS_WORKERS) or of both (FACTS_ALL). */
enum { FACTS_PROCESS = -1, FACTS_WORKERS = -2, FACTS_ALL = -3 };
struct part_stats { /* of one occurrence, ms; NaN when it never happened */
    double n, total, mean, median, p90, p99, max, bytes;
};
/* Returns how many rows it read. */
size_t facts_part(const struct facts *facts, int64_t pid, int loader, int worker,
                  enum leat_part part, struct part_stats *ret_stats);
/* The quantiles 0.5/n, 1.5/n ...: `n` equally likely values. 0 when there are none. */
int facts_part_quantiles(const struct facts *facts, int64_t pid, int loader, int worker,
                         enum leat_part part, size_t n, double *ret_values);
/* Batches that were ready when one was asked for; NaN without a request. */
struct ready_stats {
    double requests, mean, median, none_share; /* none_share: requests that found none */
};
void facts_ready(const struct facts *facts, int64_t pid, int loader, int worker,
                 struct ready_stats *ret);

/* A line of code, summed over the workers of a loader. */
struct line_fact {
    const struct input_line *line;  /* names it; one of facts->input_lines */
    const struct input_line *below; /* the user's line that called it; NULL: none */
    double ms, read_ms, decode_ms, blocked_ms;
};
/* The lines of a loader (-1: of all loaders of the process), the most costly first. The caller owns
 * *ret_lines (mem_free). 0 or -ENOMEM. */
int facts_lines(const struct facts *facts, int64_t pid, int loader, struct line_fact **ret_lines,
                size_t *ret_count);

int facts_load(struct store_reader *reader, struct facts **ret_facts, struct leat_err *err);
void facts_free(struct facts *facts); /* takes NULL */

/* Distribution of a phase over kept steps (phase = PHASES for the whole step), of one rank or, with
 * rank = -1, of the typical rank (facts.typical). All NaN for an unknown rank or phase.
 * facts_load computes them once; for facts made by hand they are computed on each call. */
void facts_stats(const struct facts *facts, int rank, int phase, struct step_stats *ret_stats);

#endif
