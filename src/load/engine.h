/* engine.h: the inside of a loader.
 *
 *     flights   |slot|slot|slot|  in the order of delivery, at most `ahead`
 *                 ▲          each is cut into pieces of some 50 us; a thread claims a piece of the
 *                 │          first flight that has one left, makes its indices, reads its samples
 *     threads  ───┘          into their rows, and claims the next
 *     next()   takes the first flight when all its pieces are finished; while they are not, it
 *              makes pieces of that very flight itself
 *     free     slots between two batches
 *     held     slots the consumer has; the last unref() brings them back to `free`
 *
 * Samples of different length. What they take is known only when they are there, so a batch may
 * find that the budget is too small for it (slot.arena.refused), most likely because others were
 * made ahead of it. Then next() gives those up and makes it alone (loader.c). Where a batch is
 * begun, the largest one so far says what it will take, so that this is rare.
 *
 * Who does what. Flights are begun, delivered and forgotten, and slots are made, by the consumer's
 * calls alone; threads only count pieces, and unref() only moves one slot. So whenever the
 * consumer's thread forks, all lists are whole, and the child can go on: engine_enter() sees the
 * new pid, makes the lock anew, takes back every slot that is not held, and starts over at the
 * first batch that was not delivered.
 *
 * Batches for a GPU (device/device.h). The thread that finishes a batch also enqueues its copy, so
 * a flight that is ready is on its way; a batch that was repaired is copied again by next(). Its
 * slots are used in the order they came back, since the one that came back first is the one that
 * the GPU is done with first; and they keep their memory, since giving it back makes the GPU wait.
 * Those that are too many are put aside at the end of the list: what few slots hold is still in the
 * caches when it is copied.
 *
 * From one epoch to the next. When the last batch of an epoch is delivered, nothing flies. If
 * epochs have followed each other so far, the first batches of the next one are begun right then,
 * and start() finds them made; if it is asked for something else, it forgets them.
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
    pid_t tid; /* under the lock; 0: it has not begun yet */
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
    double cores;                /* that this process may use, a cgroup's quota counted in */
    uint64_t machine_bytes;      /* of memory, the same way */

    _Atomic pid_t pid;  /* whose threads these are; its negative while a child takes over */
    atomic_int stopped; /* leat_loader_stop() */
    atomic_long refs;   /* one of the handle, one of each held batch */

    struct budget budget; /* has an atomic: taken from by threads */

    pthread_mutex_t lock;
    pthread_cond_t work;  /* a piece can be claimed, or threads must end */
    pthread_cond_t ready; /* a flight is finished, a thread has left, a slot came back, or stop */

    /* Under the lock. */
    struct slot **slots; /* all of them; the array and its structs only grow */
    size_t slots_count, slots_capacity;
    struct slot *free, *empty;           /* lists by slot.next */
    struct slot *flights, **flights_end; /* first to be delivered first */
    int flying, resting, aside;          /* flights; free slots; the last of these, kept back */
    int64_t with_memory;                 /* slots that are not EMPTY */
    int64_t held;                        /* slots the consumer has */
    uint64_t arena_max_bytes;            /* of the largest arena so far */
    struct leat_err device_err;          /* why the device had no memory for one more slot */
    int closed;                          /* the handle is gone: slots free themselves */
    int ending;                          /* threads must end */
    int started, active;                 /* threads made; those that may work */
    struct engine_thread threads[ENGINE_MOST_THREADS];
    uint64_t first_start_ns;
    struct pace pace;
    struct leat_loader_stats stats, reported; /* reported: to the recorder */
    struct leat_loader_error *errors;         /* the first LEAT_ERRORS_KEPT */
    size_t errors_count, errors_capacity;

    /* Written by the consumer's calls alone, under the lock and while no piece is claimed where
     * threads read it too (epoch, epoch_order, given). */
    uint64_t epoch;
    int begun;      /* an epoch was started or resumed */
    int over;       /* next() has said so */
    int follows;    /* it is the one after the last, in the same order */
    int next_begun; /* all of it was delivered: what flies is of the one after it */
    struct leat_loader_state before; /* next_begun: where the loader stands until that is started */
    int alone;          /* one flight at a time: the first one needs the whole budget */
    int64_t alone_held; /* `held` when that one was begun */
    struct epoch_order epoch_order;
    struct share share;
    int64_t next_deliver, next_begin; /* numbers of batches */
    int64_t next_submit;              /* GIVEN: the number after the last one submitted */
    int64_t spare;                    /* SKIP: samples taken from the end of the share */
    int64_t end;                      /* of the sequence, less what a lone rank took from it */
    int skips;                        /* SKIP is or was in force in this epoch */
    int64_t *given; /* GIVEN: indices of batch i at (i % ahead) * batch_size, until delivery */
    int64_t *given_samples; /* GIVEN: of batch i at i % ahead */
};

/* engine.c: slots and flights. They want the lock held unless they say otherwise. */

void engine_init_sync(struct leat_loader *l); /* without the lock: makes it */

/* First thing in every public call: after a fork, makes the loader this process's own. Without the
 * lock. */
void engine_enter(struct leat_loader *l);

/* Begins flights while there are batches, slots and budget. */
void engine_begin_flights(struct leat_loader *l);

/* Whether there is a batch that was not begun. */
int engine_has_more(const struct leat_loader *l);

/* Takes the first flight out of the list; its slot is then HELD. */
struct slot *engine_take_flight(struct leat_loader *l);

/* Takes all flights back, waiting for threads that are inside. */
void engine_forget_flights(struct leat_loader *l);

/* A HELD slot comes back: it is free for the next batch, or gives up its memory where enough
 * others rest. */
void engine_return_slot(struct leat_loader *l, struct slot *slot);

/* Begins again with the batch of a HELD slot: the slot and all flights come back, and no memory is
 * kept but that of the batches the consumer has. */
void engine_start_over(struct leat_loader *l, struct slot *slot);

void engine_unref(struct leat_loader *l); /* without the lock; frees with the last reference */

/* engine_threads.c: pieces and threads. */

/* Claims a piece of `only`, or of the first flight that has one when NULL. Lock held. 1 or 0. */
int engine_claim_piece(struct leat_loader *l, struct slot *only, struct slot **ret_slot,
                       int64_t *ret_piece);

/* Makes the piece. Lock held at call and return, not between. Returns the nanoseconds it took. */
uint64_t engine_make_piece(struct leat_loader *l, struct slot *slot, int64_t piece);

/* What batch_layout.h does, for a batch whose samples are all there. As engine_make_piece(). */
uint64_t engine_lay_out(struct leat_loader *l, struct slot *slot);

/* Enqueues the copy of a finished batch to the device. Lock not held. 0; negative: nothing was
 * copied, and next() tries again. */
int engine_copy_to_device(struct leat_loader *l, struct slot *slot, struct leat_err *err);

void engine_start_threads(struct leat_loader *l); /* up to `active`; lock held */
void engine_end_threads(struct leat_loader *l);   /* lock not held */

/* bad_samples.c: what next() does about the bad samples of a finished flight. */

/* 0: the batch is whole and batch.samples is final (0: nothing is left, the epoch is over).
 * Negative: the error of RAISE. No lock held; the slot is the consumer's. */
int bad_samples_handle(struct leat_loader *l, struct slot *slot, struct leat_err *err);

/* pace.c: threads and batches ahead follow the consumer. Lock held. */
void engine_pace_start(struct leat_loader *l); /* an epoch begins: what was before does not count */
void engine_pace_pause(struct leat_loader *l); /* it is over */
void engine_pace_look(struct leat_loader *l);

/* A batch was delivered. */
static inline void engine_pace(struct leat_loader *l)
{
    if (l->pace.on && --l->pace.left <= 0)
        engine_pace_look(l);
}

/* loader_report.c: the same figures for `leat run`; nothing without a recorder. Lock held. */
void report_batch(const struct leat_loader *l, const struct slot *slot, int ready);
void report_stages(struct leat_loader *l);

/* options.c: what was asked for, made definite. */
int options_settle(struct leat_loader *l, struct leat_err *err);

#endif
