/* what_if.h: how long a step would take with other settings of its loader. A pure function of
 * measured times; what_if.c describes the model. Times are milliseconds, each as if its task had
 * a core to itself. */
#ifndef LEAT_PREDICT_WHAT_IF_H
#define LEAT_PREDICT_WHAT_IF_H

enum { WHAT_IF_QUANTILES = 32 };

struct what_if {
    /* one batch */
    double make_ms[WHAT_IF_QUANTILES]; /* equally likely times to make it */
    double make_cpu_ms;                /* of their mean: computing rather than waiting */
    double hand_over_ms;               /* in the training process, which waits for it; CPU time */
    double busy_extra_ms; /* added to it, at most, while the batch's worker makes the next one */
    double pin_ms;        /* in the pin thread, in parallel to the training; 0: no such thread */
    /* one step */
    double rest_ms;          /* all but the input */
    double rest_cpu_ms;      /* CPU time of it, over all threads */
    double batches_per_step; /* 1, or more with gradient accumulation */
    /* settings */
    int workers;       /* 0: the training process makes the batches itself */
    int prefetch;      /* batches that each worker makes ahead (prefetch_factor) */
    int epoch_batches; /* after so many, the workers start again with nothing ready; 0: never */
    /* the machine */
    double cores;   /* that the run may use; 0: any number */
    double foreign; /* threads of other programs, running or ready to run, on the same cores */
    int crowds;     /* the training and the worker that it wakes stay on one core */
};

/* Milliseconds per step, starts of epochs included. */
double what_if_step_ms(const struct what_if *w);

/* The fewest workers from 1 to `most` whose step is within 2 % of the best of them. A device
 * that works for `device_ms` per step cannot be faster than that (0: not known). Beyond 16, some
 * numbers are skipped: 100 and 101 workers do not differ measurably. */
int what_if_workers(const struct what_if *w, int most, double device_ms);

/* Mean of the making times. */
double what_if_make_ms(const struct what_if *w);

#endif
