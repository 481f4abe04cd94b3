/* record_module.h: what the files of the extension `_record` share.
 *
 *     record_module.c     the module: the recorder's functions, and the spans of a thread
 *     hook_next.c         next() of a loader's iterator
 *     hook_fetcher.c      making a batch: samples, fetch, collate, idle time of a worker
 *     timed_dataset.c     the proxy of a dataset and of a collate function that measures them
 *     hook_queue.c        passing a batch on: pickle, unpickle, pin_memory, batches that are ready
 *     hook_optimizer.c    backward, and the optimizer's step
 *     line_profiler.c     the line profiler: a thread that samples the stack of a batch's maker
 *     python_stack.c      a Python stack, read from memory
 *     user_lines.c        from stacks to lines of the user's code
 *     cuda_call_sites.c   the call sites that copy to and from the GPU, or wait for it
 *
 * All functions need the GIL, except those of the profiler's thread and those that the CUDA probe
 * calls in cuda_call_sites.c. An exception of the user's code passes unchanged. An error in leat's
 * own code is cleared, and the user's call continues without leat.
 */
#ifndef LEAT_PYTHON_RECORD_MODULE_H
#define LEAT_PYTHON_RECORD_MODULE_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "current_work.h"

#define LOADER_UNKNOWN (-1)
#define QUICK_BATCH_NS 1000000  /* batches this quick alone do not start the profiler's thread */
#define LONG_BATCH_NS  50000000 /* the profiler learns of a batch this long before its end */

/* What begin() and end() accept: the kinds of records, and two spans recorded as NAMED. */
enum { SPAN_CHECKPOINT = LEAT_REC_KINDS, SPAN_CLIPPING, SPAN_KINDS };

/* What leat keeps of one thread. `open` has a bit for each open span, t0_ns its start. Only the
 * outermost span of a kind is recorded. Optimizer steps are counted, because their start and end
 * come from two hooks. */
struct traced_thread {
    uint32_t open;
    int steps;             /* open optimizer steps, including nested ones */
    int scalers;           /* of these, calls of GradScaler.step() */
    int trains;            /* has started a span of training before */
    int64_t fetch_loader;  /* the loader of the open FETCH */
    int in_fetcher;        /* inside the fetch() of a timed fetcher */
    int64_t batch_samples; /* in the batch that its fetcher made last; 0: unknown */
    int creating;          /* nested calls of create_fetcher() */
    int in_pin_memory;     /* pin_memory() is recursive */
    int feeds;           /* 1: the feeder thread of the worker's data queue; -1: not; 0: unknown */
    int tid;             /* 0: unknown */
    unsigned long ident; /* with tid */
    PyObject *pin_queue; /* owned; the queue from which this thread takes batches to pin them */
    uint64_t t0_ns[SPAN_KINDS];
};

static inline void keep_reference(PyObject **target, PyObject *value)
{
    PyObject *old = *target;
    Py_INCREF(value);
    *target = value;
    Py_XDECREF(old);
}

struct traced_thread *traced_thread(void);
/* Calls the hook of a thread's first span of training. 0, or -1 with an exception. */
int first_training_span(void);
/* A span of this thread starts. 1, or 0 inside another span of this kind. */
int span_begin(struct traced_thread *thread, int span);
/* A span ends. Keeps the exception that is set. */
void span_end(struct traced_thread *thread, int span, unsigned flags, uint32_t id, uint64_t arg,
              uint64_t t1);
void span_drop(struct traced_thread *thread, int span); /* closes a span without a record */
void tick_if_due(uint64_t now_ns); /* calls on_tick()'s function if it is due */

/* Where torch differs from what the hooks expect. Each is reported once. Keeps the exception that
 * is set. */
enum missing_point {
    MISSING_DATASET,  /* a fetcher has no attribute for its dataset or iterator */
    MISSING_COLLATE,  /* a batch was made without a call of collate_fn */
    MISSING_FETCHER,  /* a worker sent a batch that no timed fetcher made */
    MISSING_MESSAGES, /* a worker sent something other than a pair */
    MISSING_TASKS     /* _task_info or the data queue of an iterator cannot be counted */
};
void report_missing(enum missing_point point);

/* Each adds its functions to the module. 0, or -1 with an exception. */
int hook_fetcher_add(PyObject *module);
int hook_queue_add(PyObject *module);
int hook_next_add(PyObject *module);
int hook_optimizer_add(PyObject *module);
int line_profiler_add(PyObject *module);
int cuda_call_sites_add(PyObject *module);

int worker_times_fetcher(void);  /* whether this worker has a timed fetcher */
void fetcher_after_fork(void);   /* in the child */
void optimizer_after_fork(void); /* in the child */
int had_backward(void);          /* in this process */
/* To be called before next() of an iterator without workers. 0: `object` is no Fetch. */
int fetcher_before_next(PyObject *object);
/* Sets `current_work`. The first thread that sets it keeps it until it sets WORK_NONE. */
void set_current_work(struct traced_thread *thread, enum work_part part, uint32_t loader);
/* How many batches are ready for an iterator that reads `queue`; -1: unknown. */
int64_t ready_batches(PyObject *iterator, PyObject *queue);
uint32_t worker_loader_id(void); /* the loader of this worker; 0: unknown */
/* Describes the code objects that are new. To be called between two batches. */
void profiler_describe_codes(void);
/* A batch took this time (`done`), or so far. Starts the profiler's thread if it waits for that. */
void profiler_batch_time(uint64_t ns, int done);
int call_sites_pending(void); /* a call site is new: call call_sites_report() soon */
void call_sites_report(void); /* passes the counts to the recorder */

#endif
