/* ring_reader.h: leat's side of the shared memory. The recording process may have ended, be broken
 * or hostile: everything is copied and checked, and a memfd that is too small, of another version
 * or of another kind is refused with an error text. */
#ifndef LEAT_RECORD_RING_READER_H
#define LEAT_RECORD_RING_READER_H

#include "base/err.h"
#include "record/layout.h"

struct ring_reader {
    struct rec_area *area; /* mapped, shared with the process */
    uint64_t lost_bad;     /* records refused: unknown kind, or end before start */
};

/* A record with the thread it came from. */
struct ring_record {
    struct rec rec;
    int32_t tid;
};

/* Maps the memfd; the caller still closes it. Refuses memory that is not sealed against shrinking
 * (reading past its end would raise SIGBUS) or is smaller than the layout. */
int ring_reader_open(struct ring_reader *reader, int memfd, struct leat_err *err);
void ring_reader_close(struct ring_reader *reader);

/* A checked copy of the header: strings terminated, counts within the tables. */
void ring_reader_header(const struct ring_reader *reader, struct rec_header *ret_header);
/* Copies of table entries, strings terminated; 0 when the index is out of the used range. */
int ring_reader_name(const struct ring_reader *reader, uint32_t id, char ret_name[REC_NAME_BYTES]);
int ring_reader_loader(const struct ring_reader *reader, uint32_t id,
                       struct leat_loader_info *ret_info);

/* How often a part happened and how long it took, for the recording process's own number of the
 * loader (below REC_PART_LOADERS; the last slot is shared by all later ones). False when it never
 * happened. While the process runs the numbers may differ by an occurrence. */
struct ring_part {
    uint64_t n, total_ns, max_ns, bytes;
    uint64_t bins[DURATION_BUCKETS];
};
int ring_reader_part(const struct ring_reader *reader, uint32_t loader, uint32_t part,
                     struct ring_part *ret_part);

/* How many requests for a batch found 0, 1, ... batches ready, for the recording process's own
 * number of the loader. False when there was none. */
int ring_reader_ready(const struct ring_reader *reader, uint32_t loader,
                      uint64_t ret_requests[REC_READY_COUNTS]);

/* A line of code and its sampled time. `below` is the id of an earlier line, or -1. False when the
 * index is out of the used range, or the line belongs to no part. */
struct ring_line {
    uint64_t ns, read_ns, decode_ns, blocked_ns, samples;
    int32_t line, below;
    uint32_t loader, part;
    int library; /* 1, or 0: the user's own code */
    char file[REC_FILE_BYTES];
    char function[REC_FUNCTION_BYTES];
};
int ring_reader_line(const struct ring_reader *reader, uint32_t id, struct ring_line *ret_line);

/* The engine of loader `id`, and the times of its stages so far. 0: torch makes its batches. */
struct ring_engine {
    struct leat_stages stages;
    uint64_t memory_bytes;
    int32_t threads, cores, ahead;
    char source[REC_SOURCE_BYTES];
    char order[REC_ORDER_BYTES];
};
int ring_reader_engine(const struct ring_reader *reader, uint32_t id,
                       struct ring_engine *ret_engine);

/* Calls of CUDA: before the first batch had come, then up to the end of the last step, then after
 * it. False when none was counted. */
enum ring_cuda_span { RING_CUDA_BEFORE, RING_CUDA_STEPS, RING_CUDA_AFTER, RING_CUDA_SPANS };
struct ring_cuda {
    struct leat_cuda_total of[RING_CUDA_SPANS][LEAT_CUDA_CLASSES_COUNT];
    struct leat_clock_total clock[LEAT_CLOCK_PHASES_COUNT]; /* of the device, so far */
};
int ring_reader_cuda(const struct ring_reader *reader, struct ring_cuda *ret_cuda);

/* A line that copies between host and device or waits for the device. False when the index is out
 * of the used range, or the line is of no class. */
struct ring_cuda_line {
    uint64_t n, ns, bytes, steps;
    int32_t line;
    uint32_t class;
    char file[REC_FILE_BYTES];
    char function[REC_FUNCTION_BYTES];
};
int ring_reader_cuda_line(const struct ring_reader *reader, uint32_t id,
                          struct ring_cuda_line *ret_line);

/* Takes up to `most` new records, ring by ring, each ring in the order of writing (so ordered by
 * end time within a thread). Returns how many; call again until 0. */
int ring_reader_take(struct ring_reader *reader, struct ring_record *records, int most);

/* All records not seen: full rings, too many threads, refused. */
uint64_t ring_reader_lost(const struct ring_reader *reader);
void ring_reader_stop(struct ring_reader *reader); /* asks the process to record no more */

#endif
