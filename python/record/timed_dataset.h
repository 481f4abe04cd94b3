/* timed_dataset.h: a proxy of a dataset and of a collate function that measures them; see
 * hook_fetcher.c.
 */
#ifndef LEAT_PYTHON_TIMED_H
#define LEAT_PYTHON_TIMED_H

#include "record_module.h"

enum { KEPT_TIMES = 32 };

struct timed {
    PyObject_HEAD PyObject *data; /* owned; the dataset, or its iterator */
    PyObject *collate;            /* owned */
    /* Set once. */
    uint32_t loader;
    int single;  /* no automatic batching: the fetcher gets one item for each batch */
    int trusted; /* collate is torch's own: the batch holds all samples that were fetched */
    /* Of the current batch. */
    int open;
    Py_ssize_t asked;   /* number of indices; 0: not a list */
    int whole;          /* the dataset gave them at once, by __getitems__ */
    uint32_t timed;     /* samples measured one by one */
    Py_ssize_t samples; /* samples passed to collate; -1 before */
    uint64_t begin_ns, last_ns, fetched_ns, end_ns;
    /* Times of samples, added to the recorder's histogram together. */
    uint32_t kept;
    uint64_t kept_ns[KEPT_TIMES];
};

struct timed *timed_new(uint32_t loader, int single); /* owned; NULL with an exception */
void timed_begin(struct timed *t, PyObject *index);   /* index: borrowed, or NULL */
void timed_end(struct timed *t);                      /* also if the batch failed */
int timed_init(void);                                 /* once; -1 with an exception */

#endif
