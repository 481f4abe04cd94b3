/* collector_internal.h: what the files of the collector share. For them only.
 *
 *     collector.c          start, new processes, draining, the end
 *     recording_process.c  a process that records: its records, its rank, its rows
 *     step_builder.c       its records -> steps and phases (step_builder.h)
 *     collector_spans.c    time with a name
 *     collector_input.c    inside the input path: parts, their distribution, lines of code
 *     collector_cuda.c     what the probe counted
 *     process_tree.c       which processes belong to the run, seen from outside
 *     samples.c            when to sample /proc and NVML, and the rows of a sample
 *     collector_lost.c     what was not seen, and why
 */
#ifndef LEAT_COLLECT_COLLECTOR_INTERNAL_H
#define LEAT_COLLECT_COLLECTOR_INTERNAL_H

#include "collect/collector.h"
#include "collect/step_builder.h"
#include "observe/observe.h"

#include <math.h>
#include <stdbool.h>

enum {
    MAX_SPAN_NAMES = 256,     /* of each process */
    MAX_MEMORY_WAITING = 256, /* memory samples that wait for their step to end */
    MAX_TREE = 4096,          /* running processes of the tree that are sampled */
    MAX_ENDED = 1024,         /* ended ones that are kept before they are forgotten */
    MAX_RANK = 1 << 20,       /* a rank beyond this is garbage in the shared memory */
    COST_FACTOR = 250         /* a pause is this many times as long as the work before it took */
};

struct span_total {
    char name[REC_NAME_BYTES];
    int64_t n;
    uint64_t total_ns, max_ns, other_ns;
};

struct memory_sample { /* the figures of one moment */
    uint64_t t_ns;     /* absolute */
    uint32_t device;
    int64_t allocated, reserved, split, retries; /* -1: not reported */
};

/* A process that sent its memory to leat: it records. */
struct recording_process {
    struct collector *collector;
    pid_t pid;
    bool open; /* its memory is still mapped */
    int pidfd; /* readable when it has ended; -1: not waited for */
    struct ring_reader reader;
    struct rec_header header;     /* the last copy */
    struct step_builder *builder; /* NULL until it records something to make steps of */
    uint32_t names_known;
    uint64_t started_ns, ended_ns; /* relative; ended 0: running */
    uint64_t lost, refused;        /* refused: records from the future */

    int rank; /* -1: it has made no step */
    int64_t steps;
    int64_t provisional; /* inference steps beyond the limit, which may be taken back */
    bool trains, stopped;

    struct span_total *spans; /* owned */
    size_t span_count, span_cap;

    struct memory_sample *memory; /* owned; MAX_MEMORY_WAITING of them */
    size_t memory_count;

    struct {
        int64_t batches, samples;
        uint64_t busy_ns, first_ns, last_ns, max_ns;
    } worker;

    struct { /* the input group of a worker; of other processes that ended only `loader` */
        bool settled;
        int64_t pid;
        int loader, worker;
    } input;
};

/* A process seen from outside. */
struct tree_process {
    int64_t pid, ppid, start_ticks, cpu_ns;
    char comm[32];
    char *command;                 /* owned */
    uint64_t started_ns, ended_ns; /* relative; ended 0: running */
    bool torch;                    /* it has the library mapped */
    int map_reads;                 /* how often its mappings were read */
    char *no_data_reason;          /* owned; why its Python cannot record; NULL: nothing found */
};

struct collector {
    /* Set once. */
    struct store_writer *writer;
    struct collector_options options;
    char *proc_root;             /* owned */
    double cpus;                 /* that the run may use: affinity and quota */
    int64_t oom_kills_before[2]; /* the cgroup's, the kernel's; -1: unknown */

    /* Processes that record (collector.c). */
    struct recording_process **recording; /* owned; callbacks hold the pointers */
    size_t recording_count, recording_capacity;
    struct ring_record *buffer; /* one drain of one process */
    size_t buffer_cap;
    size_t forget_at; /* recording_count at which ended processes are forgotten */
    uint64_t next_death_check_ns, next_commit_ns, next_rows_ns;
    bool finished;

    /* How they ended (process_ends.c). */
    int ends;           /* epoll over their pidfds; -1: none */
    bool rank_failed;   /* since the ranks were last started */
    int64_t killed_pid; /* the rank that failed first, if a signal killed it; 0: none */
    char killed_text[96];

    /* The input path (collector_input.c). */
    struct input_group **groups; /* owned */
    size_t group_count, group_capacity;
    int64_t input_lost;  /* processes beyond MAX_GROUPS */
    uint64_t lines_lost; /* stack samples for which the table of a process was full */

    /* Processes seen from outside (process_tree.c). */
    struct tree_process *tree; /* owned */
    size_t tree_count, tree_capacity;
    int64_t tree_overflow;   /* processes beyond MAX_TREE */
    uint64_t last_forget_ns; /* at most once per sample */
    uint64_t next_tree_ns;
    int64_t last_pid; /* the newest pid at the last search; at most 0: unknown */
    char inject_dir[4096];

    /* Samples (samples.c). */
    uint64_t next_sample_ns, next_gpu_search_ns, last_sys_ns, rows;
    struct sys_info last_sys;
    int64_t run_cpu_ns; /* of the tree since the last row of sys_samples */
    bool sampled;
    struct nvml *nvml;
    bool nvml_tried;
    uint64_t gpus_used; /* bit per index */
};

static inline uint64_t collector_relative(const struct collector *c, uint64_t t_ns)
{
    return t_ns > c->options.start_ns ? t_ns - c->options.start_ns : 0;
}

/* collector.c */
struct recording_process *recording_process_find(struct collector *c, int64_t pid);
void collector_forget(struct collector *c); /* ended processes whose rows are complete */

/* recording_process.c */
struct recording_process *recording_process_new(struct collector *c, pid_t pid);
void recording_process_free(struct recording_process *s);
int recording_process_drain(struct recording_process *s);
void recording_process_write(struct recording_process *s); /* the rows known so far */
/* The process has ended: writes its last rows and unmaps its memory. */
void recording_process_end(struct recording_process *s, uint64_t now_ns);
int recording_process_declared_rank(const struct recording_process *s); /* -1: none */
/* The process that trains with the batches of this worker; NULL: not known. */
struct recording_process *recording_process_trainer(const struct recording_process *s);

/* process_ends.c */
void ends_begin(struct collector *c);
void ends_done(struct collector *c);
void ends_watch(struct collector *c, struct recording_process *s);
void ends_forget(struct recording_process *s);
/* What killed it, if that ended the run; else NULL. */
const char *ends_text(const struct collector *c, const struct recording_process *s);

/* collector_spans.c */
void spans_add(struct recording_process *s, const char *name, uint64_t start_ns, uint64_t end_ns,
               uint64_t other_ns);
void spans_write_totals(struct recording_process *s, int rank);
void spans_done(struct recording_process *s);

/* collector_input.c */
/* The process that has the loader of this worker, and the loader's number there; NULL, -1: not
 * known. */
struct recording_process *input_loader_process(const struct recording_process *s);
int input_loader(struct recording_process *s);
void input_end(struct recording_process *s); /* adds the totals of a process that has ended */
void input_write(struct collector *c, bool last);
void input_done(struct collector *c);

/* collector_cuda.c */
void cuda_write(struct recording_process *s, int rank);
void cuda_lost(struct collector *c); /* processes whose calls were not counted */

/* process_tree.c */
struct tree_process *tree_find(struct collector *c, int64_t pid);
void tree_update(struct collector *c, uint64_t now_ns); /* searches when it is time */
void tree_track_recording(struct collector *c, uint64_t now_ns);
/* One row of processes from both views of a process; either may be NULL. */
void tree_write_process(struct collector *c, const struct recording_process *s,
                        const struct tree_process *seen);
void tree_done(struct collector *c);

/* samples.c */
void samples_begin(struct collector *c);
void samples_run(struct collector *c, uint64_t now_ns); /* when it is time */
void samples_finish(struct collector *c);               /* the last sample, and totals of the run */
void samples_done(struct collector *c);

/* collector_lost.c */
void lost_add(struct collector *c, const char *what, int64_t n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void lost_check_process(struct collector *c, struct tree_process *s); /* while it is running */
void lost_write(struct collector *c);

#endif
