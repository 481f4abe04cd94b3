/* recorder.h: reports to leat what a process does.
 *
 * A process that runs under `leat run` has the address of leat's socket in its environment
 * (LEAT_SOCKET). It makes one memfd, sends it to leat, and from then on only writes fixed-size
 * records into rings in that memory: no lock, no allocation, no system call. leat reads them from
 * outside, also after the process has died. The Python hooks use this interface.
 *
 *     leat_recorder_open();                          // once; a second call has no effect
 *     uint64_t t0 = leat_now_ns();
 *     read_a_batch();
 *     leat_record(LEAT_REC_FETCH, 0, loader, LEAT_FETCH_ARG(epoch, samples), t0, leat_now_ns());
 *
 * Guarantees
 *   - Nothing here blocks, prints, exits or raises a signal. Without LEAT_SOCKET, or when leat has
 *     ended, every call returns at once: training never depends on leat.
 *   - Any thread may record, up to LEAT_REC_THREADS at a time: each has its own ring until it ends.
 *     The records of more threads are counted as lost.
 *   - A full ring drops the newest record and counts it.
 *   - After fork() the child opens a memfd of its own with its first record.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. Strings are copied and cut to the size of their field.
 */
#ifndef LEAT_RECORDER_H
#define LEAT_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEAT_REC_THREADS 16

/* The kind of a record. All but MEMORY and STEP are spans from t0 to t1 of the recording thread.
 * One list makes the enum and the names. The collector turns them into steps and phases
 * (src/collect/step_builder.h); the meaning of `id` and `arg`:
 *
 *   kind          id            arg
 *   FETCH         loader        LEAT_FETCH_ARG(iteration, samples): blocked in next()
 *   ITER          loader        LEAT_FETCH_ARG(iteration, 0): making the iterator (workers start)
 *   H2D           0             bytes: blocked in a copy to the device
 *   BACKWARD      0             0
 *   OPTIMIZER     optimizer     0: one step(), or GradScaler.step() around it
 *   CLOSURE       optimizer     0: a closure called inside step()
 *   SYNC          name          0: blocked on a collective or on the device
 *   WAIT          0             0: blocked on another thread of this process
 *   NAMED         name          0: leat.phase(name), or a known span such as "checkpoint"
 *   COMPILE       0             0: torch.compile at work
 *   STEP          0             0: an explicit step ends at t1 (leat.step())
 *   MEMORY        device        bytes at t1: allocated, or by flag LEAT_REC_RESERVED: reserved,
 *                               LEAT_REC_SPLIT: reserved and free, in pieces; LEAT_REC_RETRIES: how
 *                               often the cache had to be emptied for an allocation so far
 *   WORKER_FETCH  worker        LEAT_FETCH_ARG(0, samples): a worker made one batch
 */
#define LEAT_RECORD_KINDS(X)                                                                       \
    X(FETCH, "fetch")                                                                              \
    X(ITER, "iter")                                                                                \
    X(H2D, "h2d")                                                                                  \
    X(BACKWARD, "backward")                                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(CLOSURE, "closure")                                                                          \
    X(SYNC, "sync")                                                                                \
    X(WAIT, "wait")                                                                                \
    X(NAMED, "named")                                                                              \
    X(COMPILE, "compile")                                                                          \
    X(STEP, "step")                                                                                \
    X(MEMORY, "memory")                                                                            \
    X(WORKER_FETCH, "worker_fetch")

enum leat_record_kind {
    LEAT_REC_NONE = 0, /* never written: a zero page is not a record */
#define X(name, text) LEAT_REC_##name,
    LEAT_RECORD_KINDS(X)
#undef X
        LEAT_REC_KINDS
};

enum leat_record_flag {
    LEAT_REC_END = 1,       /* FETCH: StopIteration, no batch came */
    LEAT_REC_NOGRAD = 2,    /* FETCH: gradients were switched off when the batch was asked for */
    LEAT_REC_ERROR = 4,     /* the span ended by an exception */
    LEAT_REC_NESTED = 8,    /* OPTIMIZER: inside a backward of this thread (set by the recorder) */
    LEAT_REC_RESERVED = 16, /* MEMORY */
    LEAT_REC_SPLIT = 32,    /* MEMORY */
    LEAT_REC_RETRIES = 64   /* MEMORY */
};

#define LEAT_FETCH_ARG(iteration, samples) ((uint64_t)(iteration) << 32 | (uint32_t)(samples))

/* Parts of making a batch and bringing it to the training. They are too many for records: each is
 * added to a histogram in the shared memory, one for each loader and part (docs/run-db.md,
 * input_parts). */
#define LEAT_PARTS(X)                                                                              \
    X(SAMPLE, "sample")                                                                            \
    X(FETCH, "fetch")                                                                              \
    X(COLLATE, "collate")                                                                          \
    X(PICKLE, "pickle")                                                                            \
    X(UNPICKLE, "unpickle")                                                                        \
    X(PIN, "pin")                                                                                  \
    X(IDLE, "idle")

enum leat_part {
#define X(name, text) LEAT_PART_##name,
    LEAT_PARTS(X)
#undef X
        LEAT_PARTS_COUNT
};

/* Which signals this process can report: a missing one is reported as missing, never as zero. */
enum leat_signal {
    LEAT_SIGNAL_FETCH = 1,
    LEAT_SIGNAL_BACKWARD = 2,
    LEAT_SIGNAL_OPTIMIZER = 4,
    LEAT_SIGNAL_SYNC = 8, /* collectives or a device can block this process */
    LEAT_SIGNAL_H2D = 16, /* copies to a device are seen */
    LEAT_SIGNAL_WORKER = 32,
    LEAT_SIGNAL_STEP = 64, /* the script calls leat.step() */
    LEAT_SIGNAL_CUDA = 128 /* calls of CUDA are counted (set by the recorder) */
};

enum leat_role { LEAT_ROLE_OTHER, LEAT_ROLE_MAIN, LEAT_ROLE_WORKER };

struct leat_loader_info { /* -1 where unknown */
    int64_t dataset_length;
    int32_t batch_size, num_workers, prefetch_factor;
    int32_t pin_memory, persistent_workers; /* 0, 1 or -1 */
    int32_t iterable;
    int32_t own; /* 1: leat's own DataLoader, also where torch makes its batches; 0 or -1 */
    int32_t engine_readable; /* 1: leat.DataLoader makes such batches in C; 0 or -1 */
    char dataset[96];        /* class of the dataset */
    char where[160];         /* "file:line" where the loader was made */
};

/* A loader whose batches leat's own engine makes (leat/loader.h). These values may change; the
 * times of its stages are added to those before, so a loader may have several engines. Times are
 * summed over its threads. */
struct leat_engine_info {
    int32_t threads, cores; /* running; available to the process */
    int32_t ahead;          /* batches made before they are requested */
    uint64_t memory_bytes;  /* limit for all its batches */
    const char *source;     /* as leat_source_text() begins; the first 95 bytes are kept */
    const char *order;      /* full, quasi, window, sequential, given */
};

#define LEAT_STAGES(X)                                                                             \
    X(batches) /* delivered */                                                                     \
    X(samples)                                                                                     \
    X(bytes)                                                                                       \
    X(waits)     /* requests that found no batch ready */                                          \
    X(wait_ns)   /* time of the consumer in them */                                                \
    X(help_ns)   /* of it: the consumer made the batch itself */                                   \
    X(order_ns)  /* choosing the next sample */                                                    \
    X(read_ns)   /* from the source into the batch */                                              \
    X(layout_ns) /* padding and joining of samples of several lengths */                           \
    X(idle_ns)   /* threads without work */

struct leat_stages {
#define X(name) uint64_t name;
    LEAT_STAGES(X)
#undef X
};

/* Opens the recorder if LEAT_SOCKET is set. 0 when recording, -ENOENT when no leat is listening,
 * another negative errno when leat could not be reached. */
int leat_recorder_open(void);
void leat_recorder_close(void); /* reports a clean end; later records are dropped */
int leat_recording(void); /* 1 while leat reads the records; 0 also after leat asked to stop */

uint64_t leat_now_ns(void);
void leat_record(enum leat_record_kind kind, unsigned flags, uint32_t id, uint64_t arg,
                 uint64_t t0_ns, uint64_t t1_ns);

/* Adds one occurrence of a part: its nanoseconds and bytes. Any thread. */
void leat_part(uint32_t loader, enum leat_part part, uint64_t ns, uint64_t bytes);
/* Adds several occurrences without bytes, with one update of the sums. */
void leat_parts(uint32_t loader, enum leat_part part, const uint64_t *ns, size_t count);

/* A batch is asked for while so many are ready. Any thread. */
void leat_ready(uint32_t loader, uint64_t batches);

/* `loader` is an id from leat_recorder_loader(). Any thread. */
void leat_recorder_engine(uint32_t loader, const struct leat_engine_info *info);
void leat_recorder_stages(uint32_t loader, const struct leat_stages *more);

/* A line of code at which a stack sample found a thread. `below` is what an earlier call returned
 * for the user's line that called it, or -1. Returns the line's slot; -1 when the table is full.
 * Only one thread of a process may call it. */
struct leat_line {
    uint32_t loader;
    enum leat_part part; /* LEAT_PART_SAMPLE or LEAT_PART_COLLATE */
    int below, line;
    int library; /* 1: code of an installed package or of Python; 0: the user's own */
    const char *file, *function;
    uint64_t ns, read_ns, decode_ns, blocked_ns; /* to add */
};
int leat_recorder_line(const struct leat_line *line);

/* This thread enters (+1) or leaves (-1) a backward; see LEAT_REC_NESTED. */
void leat_recorder_nest(int change);

/* Tables of the process. They return the id to put into records; the same name gives the same id.
 * When a table is full the last slot is shared by all that follow. */
uint32_t leat_recorder_name(const char *name);
uint32_t leat_recorder_loader(const struct leat_loader_info *info);

/* Facts of the process, set whenever they become known. */
void leat_recorder_role(enum leat_role role, int worker_id);
void leat_recorder_worker_loader(int loader); /* whose batches this worker makes; -1 unknown */
void leat_recorder_rank(int rank, int local_rank, int world_size);
void leat_recorder_signals(unsigned signals);    /* adds to those already set */
void leat_recorder_cost(uint64_t ns_per_record); /* measured cost of one hook with its record */
/* Known keys: "python", "torch", "exception", "missing" (hooks that found no patch point),
 * "devices" (UUIDs of the GPUs in use, by comma). Unknown keys are ignored. */
void leat_recorder_fact(const char *key, const char *value);

#ifdef __cplusplus
}
#endif
#endif
