/* record_module.h: what the files of the extension that speak Python share.
 *
 *     record_module.c       the module: the recorder's functions, and the spans of a thread
 *     hook_fetcher.c     a batch in the making: samples, fetch, collate, idle (with
 * timed_dataset.c) hook_queue.c   a batch on its way: pickle, unpickle, pin, ready hook_next.c a
 * batch asked for: next() hook_optimizer.c      backward, and an optimizer's step line_sampler.c
 * the lines at which a batch in the making is found, by a thread of its own python_stack.c      the
 * stack of the thread that makes it, read from memory user_lines.c      from stacks to lines of the
 * user cuda_call_sites.c     the lines that copy to and from the GPU, or wait for it
 *
 * All but the sampler's thread and what the probe calls in cuda_call_sites.c work with the GIL
 * held. Nothing here keeps a user's exception from its way or changes one: what fails of leat's own
 * is cleared, and the user's call goes on without leat.
 */
#ifndef LEAT_PYTHON_CORE_PYTHON_H
#define LEAT_PYTHON_CORE_PYTHON_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "making_mark.h"

#define LOADER_UNKNOWN (-1)
#define QUICK_BATCH_NS 1000000  /* of such batches no line is worth a thread that looks */
#define LONG_BATCH_NS  50000000 /* one that is told of before it has ended */

/* What begin() and end() know: the kinds of records, and the spans that are recorded as NAMED. */
enum { SPAN_CHECKPOINT = LEAT_REC_KINDS, SPAN_CLIPPING, SPAN_KINDS };

/* All that leat keeps of one thread. `open` has a bit for each span that is open, t0_ns its begin.
 * Only the outermost span of a kind is recorded. Optimizer steps are counted, because their begin
 * and end come from two hooks. */
struct traced_thread {
    uint32_t open;
    int steps;             /* optimizer steps that are open, one inside the other */
    int scalers;           /* of them: calls of GradScaler.step() */
    int trains;            /* has begun a span of training before */
    int64_t fetch_loader;  /* the loader of the open FETCH */
    int in_fetcher;        /* inside a timed fetcher */
    int64_t batch_samples; /* of the batch that its fetcher made last; 0: not known */
    int creating;          /* fetchers being created, one inside the other */
    int in_pin_memory;     /* pin_memory() calls itself */
    int feeds;             /* 1: feeds the worker's data queue; -1: does not; 0: not known yet */
    int tid;               /* 0: not known yet */
    unsigned long ident;   /* with tid */
    PyObject *pin_queue;   /* owned; the queue from which this thread takes batches to pin them */
    uint64_t t0_ns[SPAN_KINDS];
};

static inline void core_keep(PyObject **place, PyObject *value)
{
    PyObject *old = *place;
    Py_INCREF(value);
    *place = value;
    Py_XDECREF(old);
}

struct traced_thread *traced_thread(void);
int first_training_span(void); /* before a thread's first span of training; -1 with an exception */
/* A span of this thread, which is `here`, begins: 1, or 0 when it is inside such a one already. */
int core_begin(struct traced_thread *thread, int span);
/* It ends. The exception that is set stays. */
void core_end(struct traced_thread *thread, int span, unsigned flags, uint32_t id, uint64_t arg,
              uint64_t t1);
void core_drop(struct traced_thread *thread, int span); /* the span is forgotten, not recorded */
void core_tick(uint64_t now_ns); /* calls the hooks when something else is due */

/* What torch was found to do otherwise than expected: the hooks are told, once. What the exception
 * is, it stays. */
enum core_signal {
    SIGNAL_SAMPLE,  /* a fetcher's dataset or iterator has no place for a stand-in */
    SIGNAL_COLLATE, /* a batch came about without collate_fn */
    SIGNAL_FETCHER, /* a worker sent a batch that no known fetcher made */
    SIGNAL_PICKLE,  /* what a worker sends is no pair */
    SIGNAL_READY    /* the tasks of an iterator, or its queue, cannot be counted */
};
void core_missing(enum core_signal signal);

/* Each adds its functions to the module: 0, or -1 with an exception. */
int making_add(PyObject *module);
int handover_add(PyObject *module);
int next_add(PyObject *module);
int train_add(PyObject *module);
int sampler_add(PyObject *module);
int places_add(PyObject *module);

int making_met_fetcher(void); /* whether a fetcher of this worker has been given its stand-ins */
void making_forget(void);     /* after a fork, in the child */
void train_forget(void);      /* the same */
int train_seen(void);         /* whether there was a backward in this process */
/* A batch of the fetcher that this is the Fetch of is about to be asked for; 0: it is no Fetch. */
int making_wake(PyObject *object);
/* Sets the mark of making_mark.h. The first thread that comes has it until it is done. */
void making_mark(struct traced_thread *thread, enum making_part part, uint32_t loader);
/* The batches that lie ready for an iterator whose data queue is `queue`; -1 when unknown. */
int64_t handover_ready(PyObject *iterator, PyObject *queue);
uint32_t making_loader(void); /* of this worker, for its parts */
void sampler_answer(void);    /* what the sampler has asked; between two batches */
/* A batch was made in this time, or has been in the making for it: a sampler may wait for that. */
void sampler_hear(uint64_t ns, int made);
int places_asked(void); /* 1: places_tell() should be called soon */
void places_tell(void); /* what has been counted by place, to the recorder */

#endif
