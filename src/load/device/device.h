/* device.h: batches on a GPU.
 *
 *     host slot ──copy stream──► device slot ──► tensors of the consumer
 *        ▲            │  ▲                            │ the last one is dropped
 *        │       `copied`└──────── `released` ◄───────┘
 *        └ filled again            written again when all that was enqueued
 *          after `copied`          by then is done
 *
 * Every slot of the loader has a twin of the same layout in the GPU's memory. The thread that makes
 * the last sample of a batch enqueues its copy, from page-locked memory, on a stream of the
 * loader's own, and records an event behind it. Nobody waits on the CPU: the stream of the consumer
 * is told to wait for that event when the batch is handed over.
 *
 * What is promised. When the last tensor of a batch is dropped, an event is recorded over the whole
 * context: over all that any stream has been given until then. The next copy into that memory waits
 * for it. So a batch that is in use is never written to, whatever stream uses it, also where the
 * consumer has told nobody of that stream. On handing over, the one stream that is given waits; a
 * consumer who uses another at once makes it wait for that one, as for any tensor.
 *
 * Graphs. Recording over the context would break the capture of a CUDA graph. While the consumer's
 * stream captures, it is put off (RELEASE_OWED) until the next call of a consumer that does not
 * capture. And while it captures, a batch is handed over by waiting on the CPU, since a captured
 * wait would become part of the graph.
 *
 * The context is the device's primary one, which CUDA's runtime and so PyTorch use. It is made
 * current for the length of a call, and what was current before is so again afterwards.
 *
 * fork: the child never touches CUDA. Page-locked memory is not even mapped there (it would be
 * copied on write under the GPU's hands); device_usable() says so, and everything else does
 * nothing in a child.
 */
#ifndef LEAT_LOAD_DEVICE_H
#define LEAT_LOAD_DEVICE_H

#include "load/device/cuda_driver.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Batches a consumer may keep in device slots before they are copied for it: mappings and
 * registrations are not for free. */
#define DEVICE_MOST_SLOTS 1024

struct device {
    const struct cuda_driver *cuda;
    int ordinal, device;
    cu_context context;
    cu_stream copies;
    pid_t pid;           /* whose it is */
    uint64_t most_bytes; /* of device memory, for slots */
    /* What stream the calling thread works on, after torch's C interface; may be NULL. */
    int (*current_stream)(int32_t ordinal, void **ret_stream);
};

enum release {
    RELEASE_NONE,     /* nothing to wait for */
    RELEASE_RECORDED, /* `released` */
    RELEASE_OWED      /* `released` is to be recorded yet */
};

/* Zeros: it has no memory. A slot is touched by one thread at a time, but for device_slot_read().
 */
struct device_slot {
    cu_address memory;
    uint64_t bytes;
    void *host; /* what is page-locked */
    cu_event copied, released;
    cu_stream handed_on;
    enum release release;
    atomic_int copying; /* `copied` was recorded, and not yet seen to be done */
};

/* `most_bytes` 0: a quarter of what is free. */
int device_open(int ordinal, uint64_t most_bytes, int (*current_stream)(int32_t, void **),
                struct device **ret_device, struct leat_err *err);
void device_close(struct device *device); /* takes NULL */

/* 0 in a child of the process that opened it. */
int device_usable(const struct device *device);

/* Around calls of the driver: the context is current, and captures of others do not forbid them.
 * The result of the driver's. */
struct device_stay {
    int mode;
};
int device_enter(const struct device *device, struct device_stay *stay);
void device_leave(const struct device *device, struct device_stay *stay);

/* The sentence for a result of the driver's, and our code for it. */
int device_failed(const struct device *device, int result, const char *what, struct leat_err *err);

/* Page-locks `host_bytes` at `host`, whole pages of their own, and gets `bytes` on the device. */
int device_slot_get(struct device *device, struct device_slot *slot, void *host, size_t host_bytes,
                    uint64_t bytes, struct leat_err *err);
void device_slot_drop(struct device *device, struct device_slot *slot); /* waits for what is left */

/* Copies parts of the host slot, to the offset `to`. Then device_slot_copied(). */
int device_slot_copy(struct device *device, struct device_slot *slot, uint64_t to, const void *from,
                     uint64_t bytes, struct leat_err *err);
int device_slot_copied(struct device *device, struct device_slot *slot, struct leat_err *err);

/* Before the first device_slot_copy() of a batch: the copies are to wait for the last consumer.
 * -EAGAIN: that must be put off, see "Graphs". */
int device_slot_claim(struct device *device, struct device_slot *slot, struct leat_err *err);

/* Waits until the host slot has been read. By any thread. */
void device_slot_read(struct device *device, struct device_slot *slot);

/* The stream waits for the batch. */
int device_slot_hand_over(struct device *device, struct device_slot *slot, void *stream,
                          struct leat_err *err);

/* The consumer has let go of the batch. */
void device_slot_release(struct device *device, struct device_slot *slot);

/* Records what is owed. -EAGAIN while the calling thread's stream captures a graph: `stream`, where
 * nobody knows better. */
int device_slot_settle(struct device *device, struct device_slot *slot, void *stream);

#endif
