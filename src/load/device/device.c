/* device.c: see device.h. */
#include "load/device/device.h"

#include "base/mem.h"

#include <unistd.h>

/* ---- one call: with the context, and allowed while other threads capture ------------------------
 */
int device_enter(const struct device *d, struct device_stay *stay)
{
    stay->mode = CU_CAPTURE_RELAXED;
    int result = d->cuda->context_push(d->context);
    if (!result)
        d->cuda->capture_mode(&stay->mode);
    return result;
}

void device_leave(const struct device *d, struct device_stay *stay)
{
    cu_context was;
    d->cuda->capture_mode(&stay->mode);
    d->cuda->context_pop(&was);
}

int device_failed(const struct device *d, int result, const char *what, struct leat_err *err)
{
    int code = result == 2 ? -ENOMEM : -EIO; /* CUDA_ERROR_OUT_OF_MEMORY */
    return err_set(err, code, "cuda:%d: %s: %s.", d->ordinal, what,
                   cuda_driver_text(d->cuda, result));
}

/* ---- the device -------------------------------------------------------------------------------
 */
static int find_memory(struct device *d, struct leat_err *err)
{
    size_t free_bytes = 0, total;
    struct device_stay stay;
    int result = device_enter(d, &stay);
    if (result)
        return device_failed(d, result, "its context cannot be used", err);
    result = d->cuda->memory_info(&free_bytes, &total);
    if (!result)
        result = d->cuda->stream_new(&d->copies, CU_STREAM_NON_BLOCKING);
    device_leave(d, &stay);
    if (result)
        return device_failed(d, result, "no stream could be made", err);
    if (!d->most_bytes)
        d->most_bytes = free_bytes / 4;
    return 0;
}

int device_open(int ordinal, uint64_t most_bytes, int (*current_stream)(int32_t, void **),
                struct device **ret_device, struct leat_err *err)
{
    const struct cuda_driver *cuda = cuda_driver_open(err);
    if (!cuda)
        return -ENODEV;
    int count = 0;
    cuda->device_count(&count);
    if (ordinal < 0 || ordinal >= count)
        return err_set(err, -ENODEV, "There is no cuda:%d: the driver shows %d devices.", ordinal,
                       count);
    struct device *d = mem_alloc(sizeof *d);
    if (!d)
        return err_set(err, -ENOMEM, "No memory for a device.");
    *d = (struct device){.cuda = cuda,
                         .ordinal = ordinal,
                         .pid = getpid(),
                         .most_bytes = most_bytes,
                         .current_stream = current_stream};
    int result = cuda->device_get(&d->device, ordinal);
    if (!result)
        result = cuda->context_retain(&d->context, d->device);
    int failed = result ? device_failed(d, result, "its context cannot be had", err) : 0;
    if (!failed)
        failed = find_memory(d, err);
    if (failed) {
        device_close(d);
        return failed;
    }
    *ret_device = d;
    return 0;
}

int device_usable(const struct device *d)
{
    return d->pid == getpid();
}

void device_close(struct device *d)
{
    struct device_stay stay;
    if (d && d->context && device_usable(d)) {
        if (d->copies && !device_enter(d, &stay)) {
            d->cuda->stream_free(d->copies);
            device_leave(d, &stay);
        }
        d->cuda->context_release(d->device);
    }
    mem_free(d);
}

/* ---- slots ------------------------------------------------------------------------------------
 */
/* All of it or nothing. In the context. */
static int get_slot(struct device *d, struct device_slot *slot, void *host, size_t host_bytes)
{
    int result = d->cuda->host_lock(host, host_bytes, CU_HOST_REGISTER_PORTABLE);
    if (result)
        return result;
    slot->host = host;
    result = d->cuda->memory_get(&slot->memory, slot->bytes ? slot->bytes : 1);
    if (!result)
        result = d->cuda->event_new(&slot->copied, CU_EVENT_BLOCKING_NO_TIMES);
    if (!result)
        result = d->cuda->event_new(&slot->released, CU_EVENT_BLOCKING_NO_TIMES);
    return result;
}

int device_slot_get(struct device *d, struct device_slot *slot, void *host, size_t host_bytes,
                    uint64_t bytes, struct leat_err *err)
{
    struct device_stay stay;
    *slot = (struct device_slot){.bytes = bytes};
    int result = device_enter(d, &stay);
    if (result)
        return device_failed(d, result, "its context cannot be used", err);
    result = get_slot(d, slot, host, host_bytes);
    device_leave(d, &stay);
    if (!result)
        return 0;
    device_slot_drop(d, slot);
    return device_failed(d, result, "no memory for a batch", err);
}

void device_slot_drop(struct device *d, struct device_slot *slot)
{
    struct device_stay stay;
    if (slot->host && device_usable(d) && !device_enter(d, &stay)) {
        if (slot->copied)
            d->cuda->event_wait(slot->copied);
        if (slot->release == RELEASE_RECORDED)
            d->cuda->event_wait(slot->released);
        d->cuda->host_unlock(slot->host);
        if (slot->memory)
            d->cuda->memory_free(slot->memory); /* waits for whatever still uses it */
        if (slot->copied)
            d->cuda->event_free(slot->copied);
        if (slot->released)
            d->cuda->event_free(slot->released);
        device_leave(d, &stay);
    }
    *slot = (struct device_slot){0};
}

int device_slot_claim(struct device *d, struct device_slot *slot, struct leat_err *err)
{
    struct device_stay stay;
    if (slot->release == RELEASE_OWED)
        return -EAGAIN;
    if (slot->release == RELEASE_NONE)
        return 0;
    int result = device_enter(d, &stay);
    if (!result) {
        result = d->cuda->stream_wait(d->copies, slot->released, 0);
        device_leave(d, &stay);
    }
    if (result)
        return device_failed(d, result, "the copies cannot wait for the last consumer", err);
    slot->release = RELEASE_NONE;
    return 0;
}

int device_slot_copy(struct device *d, struct device_slot *slot, uint64_t to, const void *from,
                     uint64_t bytes, struct leat_err *err)
{
    struct device_stay stay;
    if (!bytes)
        return 0;
    int result = device_enter(d, &stay);
    if (!result) {
        result = d->cuda->copy_in(slot->memory + to, from, bytes, d->copies);
        device_leave(d, &stay);
    }
    return result ? device_failed(d, result, "a batch cannot be copied", err) : 0;
}

int device_slot_copied(struct device *d, struct device_slot *slot, struct leat_err *err)
{
    struct device_stay stay;
    int result = device_enter(d, &stay);
    if (!result) {
        result = d->cuda->event_record(slot->copied, d->copies);
        device_leave(d, &stay);
    }
    if (result)
        return device_failed(d, result, "a batch cannot be copied", err);
    atomic_store_explicit(&slot->copying, 1, memory_order_release);
    return 0;
}

void device_slot_read(struct device *d, struct device_slot *slot)
{
    struct device_stay stay;
    if (!atomic_load_explicit(&slot->copying, memory_order_acquire) || device_enter(d, &stay))
        return;
    d->cuda->event_wait(slot->copied);
    device_leave(d, &stay);
    atomic_store_explicit(&slot->copying, 0, memory_order_release);
}

/* ---- the consumer -----------------------------------------------------------------------------
 */
static int captures(const struct device *d, cu_stream stream)
{
    int capturing = 0;
    return d->cuda->stream_capturing(stream, &capturing) != CU_SUCCESS || capturing;
}

int device_slot_hand_over(struct device *d, struct device_slot *slot, void *stream,
                          struct leat_err *err)
{
    struct device_stay stay;
    int result = device_enter(d, &stay);
    if (!result) {
        result = captures(d, stream) ? d->cuda->event_wait(slot->copied)
                                     : d->cuda->stream_wait(stream, slot->copied, 0);
        device_leave(d, &stay);
    }
    slot->handed_on = stream;
    return result ? device_failed(d, result, "the stream cannot wait for a batch", err) : 0;
}

/* In the context. Without a way to record over the context, the CPU waits for all of it. */
static int record_release(struct device *d, struct device_slot *slot)
{
    if (!d->cuda->context_record)
        return d->cuda->context_wait();
    return d->cuda->context_record(d->context, slot->released);
}

int device_slot_settle(struct device *d, struct device_slot *slot, void *stream)
{
    struct device_stay stay;
    if (slot->release != RELEASE_OWED)
        return 0;
    if (device_enter(d, &stay))
        return -EIO;
    if (d->current_stream)
        d->current_stream(d->ordinal, &stream);
    int failed = 0;
    if (captures(d, stream))
        failed = -EAGAIN;
    else if (record_release(d, slot))
        failed = -EIO;
    device_leave(d, &stay);
    if (!failed)
        slot->release = d->cuda->context_record ? RELEASE_RECORDED : RELEASE_NONE;
    return failed;
}

void device_slot_release(struct device *d, struct device_slot *slot)
{
    if (!slot->memory || !device_usable(d))
        return;
    slot->release = RELEASE_OWED;
    if (d->cuda->context_record) /* else next() waits */
        device_slot_settle(d, slot, slot->handed_on);
}
