/* engine.h: the inside of a loader.
 *
 *     flights   |slot|slot|slot|  batches being made, in the order of delivery, at most `ahead`
 *                 ▲          each is cut into pieces of about 50 us; a thread claims a piece of the
 *                 │          first flight that has one left, computes its indices, reads its
 *     threads  ───┘          samples into their rows, and claims the next piece
 *     next()   takes the first flight when all its pieces are finished; until then it makes pieces
 *              of that flight itself
 *     free     slots between two batches
 *     held     slots that the consumer has; the last unref() moves them back to `free`
 *
 * Samples of different length. Their size is known only after they are read, so a batch may exceed
 * the budget (slot.arena.refused), mostly because others are made ahead of it. Then next() discards
 * those and makes the batch alone (loader.c). A batch is begun only if one as large as the largest
 * so far would fit, so this is rare.
 *
 * Fork. Only the consumer's calls begin, deliver and discard flights and make slots; threads count
 * pieces, and unref() moves one slot. So all lists are consistent when the consumer's thread forks,
 * and the child can continue: engine_enter() sees the new pid, makes new locks, frees every slot
 * that is not held, and starts over at the first batch that was not delivered.
 *
 * Batches for a GPU (device/device.h). The thread that finishes a batch also enqueues its copy; a
 * batch with bad samples is copied again by next(). Slots are used in the order in which they came
 * back, since the GPU is done first with the first of them, and they keep their memory, since
 * freeing it makes the GPU wait. Surplus slots are kept at the end of the list: what few slots hold
 * is still in the caches when it is copied.
 *
 * From one epoch to the next. When the last batch of an epoch is delivered, no flight is left. If
 * epochs have followed each other so far, the first batches of the next one are begun at once, and
 * start() finds them made; if it is asked for another epoch, it discards them.
 *
 * One lock for everything: it is taken twice for each piece, and once for each next() and unref().
 */
#ifndef LEAT_LOAD_ENGINE_H
#define LEAT_LOAD_ENGINE_H

#include "load/batch_layout.h"
#include "load/device/device_rows.h"
#include "load/pace.h"
#include "load/epoch_order.h"
#include "load/slot.h"
#include "load/source.h"

#include <pthread.h>
#include <sys/types.h>

#define ENGINE_MOST_THREADS 256
#define PIECE_MOST_SAMPLES  4096

struct engine_thread {
    pthread_t id;
    struct leat_loader *loader;
    int number;
    pid_t tid; /* under the lock; 0: the thread has not begun yet */
};

struct leat_loader {
    /* Set once. */
    struct leat_source *source; /* a reference */
    struct leat_loader_options options;
    struct slot_layout layout;
    struct batch_layout layouts; /* of the variable fields */
    uint64_t slot_bytes;         /* without an arena */
    int64_t most_slots;          /* that the budget allows, without arenas */
    int64_t piece;               /* samples of a piece of work */
    struct device *device;       /* owned; NULL: batches stay in the memory of the CPU */
    struct device_rows rows;     /* the source on the device; zeros: it stays where it is */
    double cores;                /* that this process may use, cgroup quota included */
    uint64_t machine_bytes;      /* memory that this process may use */

    _Atomic pid_t pid;  /* the process that owns the threads; negative while a child takes over */
    atomic_int stopped; /* leat_loader_stop() */
    atomic_long refs;   /* one of the handle, one of each held batch */

    struct budget budget; /* atomic: threads allocate from it */

    pthread_mutex_t lock;
    pthread_cond_t work;  /* a piece can be claimed, or threads must end */
    pthread_cond_t ready; /* a flight is finished, a thread has ended, a slot came back, or stop */

    /* Under the lock. */
    struct slot **slots; /* all of them; the array and its structs only grow */
    size_t slots_count, slots_capacity;
    struct slot *free, *empty;           /* lists by slot.next */
    struct slot *flights, **flights_end; /* in the order of delivery */
    int flying, resting, aside;          /* flights; free slots; surplus ones among these */
    int64_t with_memory;                 /* slots that are not EMPTY */
    int64_t held;                        /* slots the consumer has */
    uint64_t arena_max_bytes;            /* of the largest arena so far */
    struct leat_err device_err;          /* why the device had no memory for one more slot */
    int closed;                          /* leat_loader_close() was called: slots free themselves */
    int ending;                          /* threads must end */
    int started, active;                 /* threads started; threads allowed to work */
    struct engine_thread threads[ENGINE_MOST_THREADS];
    uint64_t first_start_ns;
    struct pace pace;
    struct leat_loader_stats stats, reported; /* reported: as last sent to the recorder */
    struct leat_loader_error *errors;         /* the first LEAT_ERRORS_KEPT */
    size_t errors_count, errors_capacity;

    /* Written by the consumer's calls alone, under the lock. Threads read epoch, epoch_order and
     * given, which change only while no piece is claimed. */
    uint64_t epoch;
    int begun;      /* an epoch was started or resumed */
    int over;       /* next() has returned 0 */
    int follows;    /* the epoch after the last one, in the same order */
    int next_begun; /* all of it was delivered: the flights are of the next epoch */
    struct leat_loader_state before; /* next_begun: the state until start() is called */
    int alone;                       /* one flight at a time: it needs the whole budget */
    int64_t alone_held;              /* `held` when that flight was begun */
    struct epoch_order epoch_order;
    struct share share;
    int64_t next_deliver, next_begin; /* numbers of batches */
    int64_t next_submit;              /* GIVEN: the number after the last one submitted */
    int64_t spare;                    /* SKIP: samples taken from the end of the share */
    int64_t end;                      /* of the sequence, without what a single rank took from it */
    int skips;                        /* SKIP is or was in force in this epoch */
    int64_t *given; /* GIVEN: indices of batch i at (i % ahead) * batch_size, until delivery */
    int64_t *given_samples; /* GIVEN: of batch i at i % ahead */
};

/* engine.c: slots and flights. To be called with the lock held unless stated otherwise. */

void engine_init_sync(struct leat_loader *l); /* without the lock */

/* The first call of every public function: after a fork, makes the loader this process's own.
 * Without the lock. */
void engine_enter(struct leat_loader *l);

/* Begins flights while batches, slots and budget allow. */
void engine_begin_flights(struct leat_loader *l);

/* Whether a batch remains to be begun. */
int engine_has_more(const struct leat_loader *l);

/* Removes the first flight from the list; its slot is then HELD. */
struct slot *engine_take_flight(struct leat_loader *l);

/* Discards all flights, waiting for threads that work on them. */
void engine_forget_flights(struct leat_loader *l);

/* A HELD slot is free again, or its memory is freed when enough slots are free. */
void engine_return_slot(struct leat_loader *l, struct slot *slot);

/* Discards the batch of a HELD slot and all flights, to begin again with that batch. Only the
 * batches that the consumer holds keep memory. */
void engine_start_over(struct leat_loader *l, struct slot *slot);

void engine_unref(struct leat_loader *l); /* without the lock; frees with the last reference */

/* engine_threads.c: pieces and threads. */

/* Claims a piece of `only`, or of the first flight that has one when NULL. Lock held. 1 or 0. */
int engine_claim_piece(struct leat_loader *l, struct slot *only, struct slot **ret_slot,
                       int64_t *ret_piece);

/* Makes the piece. Lock held at call and return, released between. Returns the nanoseconds it took.
 */
uint64_t engine_make_piece(struct leat_loader *l, struct slot *slot, int64_t piece);

/* Pads or joins the variable fields of a batch that is read (batch_layout.h). As
 * engine_make_piece(). */
uint64_t engine_lay_out(struct leat_loader *l, struct slot *slot);

/* Enqueues the copy of a finished batch to the device. Lock not held. Negative: nothing was copied,
 * and next() tries again. */
int engine_copy_to_device(struct leat_loader *l, struct slot *slot, struct leat_err *err);

void engine_start_threads(struct leat_loader *l); /* up to `active`; lock held */
void engine_end_threads(struct leat_loader *l);   /* lock not held */

/* bad_samples.c: bad samples of a finished flight, handled by next(). */

/* 0: the batch is whole and batch.samples is final (0: the epoch is over). Negative: the error of
 * RAISE. Lock not held; the slot is the consumer's. */
int bad_samples_handle(struct leat_loader *l, struct slot *slot, struct leat_err *err);

/* pace.c: threads and batches ahead adapt to the consumer. Lock held. */
void engine_pace_start(
    struct leat_loader *l); /* an epoch begins; the time before it does not count */
void engine_pace_pause(struct leat_loader *l); /* the epoch is over */
void engine_pace_look(struct leat_loader *l);

/* A batch was delivered. */
static inline void engine_pace(struct leat_loader *l)
{
    if (l->pace.on && --l->pace.left <= 0)
        engine_pace_look(l);
}

/* loader_report.c: figures for `leat run`; no effect without a recorder. Lock held. */
void report_batch(const struct leat_loader *l, const struct slot *slot, int ready);
void report_stages(struct leat_loader *l);

/* options.c: every default is chosen and every option checked. */
int options_settle(struct leat_loader *l, struct leat_err *err);

#endif
