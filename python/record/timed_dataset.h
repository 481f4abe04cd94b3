/* timed_dataset.h: the stand-in for a dataset and a collate function while a batch is made; see
 * hook_fetcher.c.
 */
#ifndef LEAT_PYTHON_TIMED_H
#define LEAT_PYTHON_TIMED_H

#include "record_module.h"

enum { TIMED_KEPT = 32 };

struct timed {
    PyObject_HEAD PyObject *data; /* owned; the dataset, or its iterator */
    PyObject *collate;            /* owned */
    /* Set once. */
    uint32_t loader;
    int single;  /* the fetcher asks for one sample and does not make lists of them */
    int trusted; /* collate is torch's own: the batch holds the samples that went in */
    /* Of the batch in the making. */
    int open;
    Py_ssize_t asked;   /* indices; 0: not a list */
    int whole;          /* __getitems__ was asked for */
    uint32_t timed;     /* samples that were timed */
    Py_ssize_t samples; /* handed to collate; -1 before */
    uint64_t begin_ns, last_ns, fetched_ns, end_ns;
    /* Times of samples that have not been added yet: what they are added to is no longer in the
     * caches after a sample, and would have to come back for each. */
    uint32_t kept;
    uint64_t kept_ns[TIMED_KEPT];
};

struct timed *timed_new(uint32_t loader, int single); /* owned; NULL with an exception */
void timed_begin(struct timed *t, PyObject *index);   /* index: borrowed, or NULL */
void timed_end(struct timed *t);                      /* also of one that has failed */
int timed_init(void);                                 /* once; -1 with an exception */

#endif
