/* device.h: batches on a GPU.
 *
 *     host slot ──copy stream──► device slot ──► tensors of the consumer
 *        ▲            │  ▲                            │ the last one is dropped
 *        │       `copied`└──────── `released` ◄───────┘
 *        └ filled again            written again when all that was enqueued
 *          after `copied`          by then is done
 *
 * Every slot of the loader has a slot of the same layout in the GPU's memory. The thread that makes
 * the last sample of a batch enqueues its copy, from page-locked memory, on the loader's own
 * stream, and records an event after it. No thread waits: the consumer's stream waits for that
 * event when the batch is handed over.
 *
 * Guarantee. When the last tensor of a batch is dropped, an event is recorded over the whole
 * context, that is over all work enqueued on any stream so far. The next copy into that memory
 * waits for it. So a batch in use is never written to, whatever stream uses it, even one that leat
 * does not know. Only the stream given at the hand-over waits for the copy; a consumer that uses
 * another one lets it wait for the first, as for any tensor.
 *
 * CUDA graphs. Recording over the context would break the capture of a graph. While the consumer's
 * stream captures, it is postponed (RELEASE_OWED) to the next call of a consumer that does not
 * capture; and the CPU waits at the hand-over, since a captured wait would become part of the
 * graph.
 *
 * The context is the primary one of the device, which CUDA's runtime and PyTorch use. It is made
 * current for each call; the one that was current before is restored.
 *
 * Fork. A child never calls CUDA. Page-locked memory is not mapped there (copy on write would move
 * it away from the GPU); device_usable() returns 0, and all other functions do nothing in a child.
 */
#ifndef LEAT_LOAD_DEVICE_H
#define LEAT_LOAD_DEVICE_H

#include "load/device/cuda_driver.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Batches that a consumer may hold in device slots before it is given copies: each is a mapping and
 * a registration. */
#define DEVICE_MOST_SLOTS 1024

struct device {
    const struct cuda_driver *cuda;
    int ordinal, device;
    cu_context context;
    cu_stream copies;
    pid_t pid;           /* the process that opened it */
    uint64_t most_bytes; /* of device memory, for slots */
    /* The stream of the calling thread, as in torch's C interface; may be NULL. */
    int (*current_stream)(int32_t ordinal, void **ret_stream);
};

enum release {
    RELEASE_NONE,     /* nothing to wait for */
    RELEASE_RECORDED, /* `released` */
    RELEASE_OWED      /* `released` is still to be recorded */
};

/* Zeros: without memory. One thread at a time uses a slot, except for device_slot_read(). */
struct device_slot {
    cu_address memory;
    uint64_t bytes;
    void *host; /* page-locked */
    cu_event copied, released;
    cu_stream handed_on;
    enum release release;
    atomic_int copying; /* `copied` was recorded and has not been seen done */
};

/* `most_bytes` 0: a quarter of what is free. */
int device_open(int ordinal, uint64_t most_bytes, int (*current_stream)(int32_t, void **),
                struct device **ret_device, struct leat_err *err);
void device_close(struct device *device); /* takes NULL */

/* 0 in a child of the process that opened it. */
int device_usable(const struct device *device);

/* Before and after calls of the driver: makes the context current, and allows the calls while other
 * threads capture. Returns a result of the driver. */
struct device_stay {
    int mode;
};
int device_enter(const struct device *device, struct device_stay *stay);
void device_leave(const struct device *device, struct device_stay *stay);

/* The message and our code for a result of the driver. */
int device_failed(const struct device *device, int result, const char *what, struct leat_err *err);

/* Page-locks `host_bytes` at `host`, whole pages that children do not inherit, and gets `bytes` on
 * the device. */
int device_slot_get(struct device *device, struct device_slot *slot, void *host, size_t host_bytes,
                    uint64_t bytes, struct leat_err *err);
void device_slot_drop(struct device *device, struct device_slot *slot); /* waits for pending work */

/* Copies a part of the host slot to offset `to`. Then device_slot_copied(). */
int device_slot_copy(struct device *device, struct device_slot *slot, uint64_t to, const void *from,
                     uint64_t bytes, struct leat_err *err);
int device_slot_copied(struct device *device, struct device_slot *slot, struct leat_err *err);

/* Before the first device_slot_copy() of a batch: the copies wait for the last consumer. -EAGAIN:
 * not now, see "CUDA graphs". */
int device_slot_claim(struct device *device, struct device_slot *slot, struct leat_err *err);

/* Waits until the host slot has been read. Any thread. */
void device_slot_read(struct device *device, struct device_slot *slot);

/* The stream waits for the batch. */
int device_slot_hand_over(struct device *device, struct device_slot *slot, void *stream,
                          struct leat_err *err);

/* The consumer has released the batch. */
void device_slot_release(struct device *device, struct device_slot *slot);

/* Records a postponed release. -EAGAIN while the calling thread's stream (or `stream`, if that is
 * unknown) captures a graph. */
int device_slot_settle(struct device *device, struct device_slot *slot, void *stream);

#endif
