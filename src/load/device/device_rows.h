/* device_rows.h: a source copied to the GPU as a whole, and batches gathered there.
 *
 *     source in memory ──once──►  rows on the device ──gather──► device slot
 *     indices of a batch ─copy─►  after the slot's rows ───┘
 *
 * Then only indices cross the bus: 8 bytes per sample. The kernel is PTX (sm_70 and later) for the
 * driver's own compiler, so leat is built without CUDA.
 *
 * Later writes to the arrays are not seen; callers opt in (leat_loader_options.resident).
 */
#ifndef LEAT_LOAD_DEVICE_ROWS_H
#define LEAT_LOAD_DEVICE_ROWS_H

#include "load/device/device.h"
#include "load/source.h"

struct device_rows {
    cu_address memory;
    uint64_t offset[LEAT_MAX_FIELDS]; /* of each field's first row */
    cu_module module;
    cu_function gather[3]; /* by 16, 4 and 1 bytes */
};

/* Bytes of the source on the device; 0: it cannot be copied there. */
uint64_t device_rows_bytes(const struct leat_source *source);

/* Copies the source, and waits for that. */
int device_rows_open(struct device *device, struct device_rows *rows,
                     const struct leat_source *source, struct leat_err *err);
void device_rows_close(struct device *device, struct device_rows *rows); /* also of zeros */

/* Enqueues the gather of `samples` rows of one field to `offset` of the slot, by the int64 indices
 * at `indices_offset` of it. */
int device_rows_gather(struct device *device, const struct device_rows *rows,
                       struct device_slot *slot, uint32_t field, uint64_t row_bytes,
                       uint64_t offset, uint64_t indices_offset, int64_t samples,
                       struct leat_err *err);

#endif
