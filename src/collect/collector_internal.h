/* collector_internal.h: what the files of the collector share. Nobody else includes it.
 *
 *     collector.c          life, adopting, draining, finishing
 *     collector_speaker.c  one recording process: its records, its rank, its rows
 *     collector_spans.c    spans with a name: their totals
 *     collector_input.c    inside the input path: parts, their distribution, lines of code
 *     collector_cuda.c     calls of CUDA
 *     collector_sample.c   the view from outside: /proc, pressure, GPUs
 *     collector_lost.c     what was not seen, and why
 */
#ifndef LEAT_COLLECT_COLLECTOR_INTERNAL_H
#define LEAT_COLLECT_COLLECTOR_INTERNAL_H

#include "collect/collector.h"
#include "collect/fold.h"
#include "observe/observe.h"

#include <math.h>
#include <stdbool.h>

enum {
    SPAN_NAMES = 256,     /* of each process */
    MEMORY_WAITING = 256, /* memory samples that wait for their step to end */
    SEEN_MOST = 4096,     /* living processes of the tree that are followed */
    DEAD_MOST = 1024,     /* dead ones that are remembered before room is made */
    RANK_MOST = 1 << 20   /* a rank beyond this was scribbled */
};

struct span_total {
    char name[REC_NAME_BYTES];
    int64_t n;
    uint64_t total_ns, max_ns, other_ns;
};

struct memory_row {
    uint64_t t_ns; /* absolute */
    uint32_t device;
    int64_t allocated, reserved, split, retries; /* -1: not said */
};

/* A process that said hello. */
struct speaker {
    struct collector *collector;
    pid_t pid;
    bool open; /* its memory is still mapped */
    struct ring_reader reader;
    struct rec_header header; /* the last copy */
    struct fold *fold;        /* NULL until it records something to fold */
    uint32_t names_known;
    uint64_t started_ns, ended_ns; /* relative; ended 0: alive */
    uint64_t lost, refused;        /* refused: records from the future */

    int rank; /* -1: it has made no step */
    int64_t steps;
    int64_t provisional; /* inference steps beyond the limit, in case they are taken back */
    bool trains, stopped;

    struct span_total *spans; /* owned */
    size_t span_count, span_cap;

    struct memory_row *memory; /* owned; MEMORY_WAITING of them */
    size_t memory_count;

    struct {
        int64_t batches, samples;
        uint64_t busy_ns, first_ns, last_ns, max_ns;
    } worker;

    struct { /* a worker's place in the input tables; of others that ended only `loader` */
        bool settled;
        int64_t pid;
        int loader, worker;
    } input;
};

/* A process seen from outside. */
struct seen {
    int64_t pid, ppid, start_ticks, cpu_ns;
    char comm[32];
    char *command;                 /* owned */
    uint64_t started_ns, ended_ns; /* relative; ended 0: alive */
    bool torch;                    /* it has the library mapped */
    int looks;                     /* how often its mappings were read */
    char *silent_why;              /* owned; why its Python cannot record; NULL: nothing seen */
};

struct collector {
    struct store_writer *writer;
    struct collector_options options;
    char *proc_root; /* owned */

    struct speaker **speakers; /* owned; they are the context of callbacks, so they stay put */
    size_t speaker_count, speaker_cap;
    struct ring_record *buffer; /* one drain of one process */
    size_t buffer_cap;
    uint64_t next_death_check_ns, next_commit_ns, next_rows_ns;
    bool finished;

    struct input_place **places; /* owned; collector_input.c */
    size_t place_count, place_cap;
    int64_t input_lost;  /* processes whose input found no place */
    uint64_t lines_lost; /* samples for which the table of a process was full */

    struct seen *seen; /* owned */
    size_t seen_count, seen_cap;
    size_t forget_at;        /* count of speakers at which the dead are forgotten */
    uint64_t last_forget_ns; /* and once a look at the tree, when it has no room left */
    int64_t seen_more;       /* processes beyond SEEN_MOST */
    char inject_dir[4096];
    uint64_t next_sample_ns, next_tree_ns, next_gpu_look_ns, last_sys_ns, rows;
    int64_t last_pid; /* given before the tree was searched last; at most 0: unknown */
    struct sys_info last_sys;
    int64_t run_cpu_ns;          /* of the tree since the last row of sys_samples */
    double cpus;                 /* that it may use: affinity and quota */
    int64_t oom_kills_before[2]; /* the cgroup's, the kernel's; -1: unknown */
    bool sampled;
    struct nvml *nvml;
    bool nvml_tried;
    uint64_t gpus_used; /* bit per index */
};

static inline uint64_t collector_relative(const struct collector *c, uint64_t t_ns)
{
    return t_ns > c->options.start_ns ? t_ns - c->options.start_ns : 0;
}

/* collector_speaker.c */
struct speaker *speaker_new(struct collector *c, pid_t pid);
void speaker_free(struct speaker *s);
int speaker_drain(struct speaker *s);
void speaker_end(struct speaker *s, uint64_t now_ns); /* the process is gone: closes and writes */
void speaker_rows(struct speaker *s);                 /* what is known so far */
int speaker_said_rank(const struct speaker *s);       /* -1: it said none */
struct speaker *speaker_find(struct collector *c, int64_t pid);
struct speaker *speaker_master(const struct speaker *s); /* whom a worker works for; NULL */
void collector_forget(struct collector *c);              /* the dead whose rows say all */

/* collector_spans.c */
void spans_add(struct speaker *s, const char *name, uint64_t start_ns, uint64_t end_ns,
               uint64_t other_ns);
void spans_write_totals(struct speaker *s, int rank);
void spans_done(struct speaker *s);

/* collector_input.c */
struct speaker *input_master(const struct speaker *s); /* who has a worker's loader; NULL */
int input_loader(struct speaker *s);                   /* its number there; -1: not known */
void input_end(struct speaker *s);                     /* takes what a process leaves */
void input_write(struct collector *c, bool last);
void input_done(struct collector *c);

/* collector_cuda.c */
void cuda_write(struct speaker *s, int rank);
void cuda_lost(struct collector *c); /* processes whose calls were not counted */

/* collector_sample.c */
void sample_begin(struct collector *c);
void sample_run(struct collector *c, uint64_t now_ns); /* when it is time */
void sample_finish(struct collector *c);               /* the last sample, and totals of the run */
void sample_done(struct collector *c);
struct seen *sample_find(struct collector *c, int64_t pid);
void sample_write_process(struct collector *c, const struct speaker *s, const struct seen *seen);

/* collector_lost.c */
void lost_add(struct collector *c, const char *what, int64_t n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void lost_look(struct collector *c, struct seen *seen); /* while the process is alive */
void lost_write(struct collector *c);

#endif
