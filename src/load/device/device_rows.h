/* device_rows.h: a source that lies on the GPU as a whole, and batches gathered there.
 *
 *     source in memory ──once──►  rows on the device ──gather──► device slot
 *     indices of a batch ─copy─►  behind the slot's rows ──┘
 *
 * Only indices cross the link then: 8 bytes a sample. The kernel is text for the driver's own
 * compiler (PTX, from sm_70 on), so nothing of CUDA is needed to build leat.
 *
 * What is written to the arrays after they were taken over is not seen: whoever asks for this says
 * so (leat_loader_options.resident).
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

/* What it would take on the device; 0: the source cannot be taken over. */
uint64_t device_rows_bytes(const struct leat_source *source);

/* Copies the source over, and waits for that. */
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
