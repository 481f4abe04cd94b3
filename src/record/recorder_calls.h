/* recorder_calls.h: the recorder's functions for a library that carries no recorder of its own.
 *
 * A process has one recorder, in the extension `_record`. The loader is in another extension,
 * `_engine`, which finds this table in the capsule `leat._record.calls`. A C program that links
 * libleat has both in one library and needs no table.
 */
#ifndef LEAT_RECORD_RECORDER_CALLS_H
#define LEAT_RECORD_RECORDER_CALLS_H

#include "leat/recorder.h"

#define LEAT_RECORDER_CAPSULE "leat._record.calls"

struct leat_recorder_calls {
    int (*recording)(void);
    void (*part)(uint32_t loader, enum leat_part part, uint64_t ns, uint64_t bytes);
    void (*ready)(uint32_t loader, uint64_t batches);
    void (*engine)(uint32_t loader, const struct leat_engine_info *info);
    void (*stages)(uint32_t loader, const struct leat_stages *more);
};

extern const struct leat_recorder_calls leat_recorder_calls; /* of this library */

#endif
