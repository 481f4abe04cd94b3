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

/* Of one thread. A bit of `inside` for each kind of record, and since when. Only the outermost span
 * of a kind is recorded. Optimizer steps are counted: their begin and end come from two hooks. */
struct here {
    uint32_t inside;
    int steps;
    int spoken;          /* has begun a span of training before */
    int64_t loader;      /* whose batch the open FETCH asks for */
    int making;          /* inside a timed fetcher */
    int64_t made;        /* samples of the batch that it made last; 0: not known */
    int creating;        /* fetchers being created, one inside the other */
    int pinning;         /* inside pin_memory(), which calls itself */
    int feeds;           /* 1: feeds the worker's data queue; -1: does not; 0: not asked yet */
    int tid;             /* 0: not asked yet */
    unsigned long ident; /* with tid */
    PyObject *serves;    /* owned; the queue that this thread, a pinning one, takes batches from */
    uint64_t t0_ns[LEAT_REC_KINDS];
};

static inline void core_keep(PyObject **place, PyObject *value)
{
    PyObject *old = *place;
    Py_INCREF(value);
    *place = value;
    Py_XDECREF(old);
}

struct here *core_here(void);
int core_speak_first(void); /* before a thread's first span of training; -1 with an exception */
/* A span of this thread, which is `here`, begins: 1, or 0 when it is inside such a one already. */
int core_begin(struct here *here, enum leat_record_kind kind);
/* It ends. Whatever exception there is stays. */
void core_end(struct here *here, enum leat_record_kind kind, unsigned flags, uint32_t id,
              uint64_t arg, uint64_t t1);
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
void making_mark(struct here *here, enum making_part part, uint32_t loader);
/* The batches that lie ready for an iterator whose data queue is `queue`; -1 when unknown. */
int64_t handover_ready(PyObject *iterator, PyObject *queue);
uint32_t making_loader(void); /* of this worker, for its parts */
void sampler_answer(void);    /* what the sampler has asked; between two batches */
/* A batch was made in this time, or has been in the making for it: a sampler may wait for that. */
void sampler_hear(uint64_t ns, int made);
/* Finds out how the stack lies in memory, once for all processes that descend from this one;
 * `module` is leat.profile.lines, and stack_open() has been called. */
void sampler_find_layout(PyObject *module);
int places_asked(void); /* 1: places_tell() should be called soon */
void places_tell(void); /* what has been counted by place, to the recorder */

#endif
