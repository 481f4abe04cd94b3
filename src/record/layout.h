/* layout.h: the bytes that a recording process and leat share.
 *
 *     memfd (sparse: only pages that were written take memory)
 *     ┌────────────┬──────────┬──────────┬────────┬─────┬─────────┬────────┬───────┬─────────┬──────┐
 *     │ rec_header │ names    │ loaders  │ ring 0 │ ... │ ring 15 │ parts  │ lines │ engines │ cuda
 * │ │ 4 KiB      │ 256 x 64 │ 64 x 320 │ rec_ring, 32768 records│ 16 x 8 │ 512   │ 64      │ 3    │
 *     └────────────┴──────────┴──────────┴────────┴─────┴─────────┴────────┴───────┴─────────┴──────┘
 *
 *     parts:   one histogram a loader and part, for what comes too often to be a record
 *     lines:   one entry per line of code that the line profiler has found running
 *     engines: one per loader that leat's own threads serve: what their stages took
 *     cuda:    calls of CUDA, as they stood at three moments; after it the clock of the device
 *     cuda_lines: one entry a line of code that copies or waits (behind cuda)
 *
 *     ring:  head (producer) ─► next place to write       head - tail <= RING_RECORDS
 *            tail (leat)     ─► next place to read        index = position % RING_RECORDS
 *
 * The producer writes a record and then stores head with release order; leat loads head with
 * acquire order, so it never sees half a record, also when the producer was killed in between. leat
 * stores tail after it has copied. A full ring drops the new record and counts it in `lost`.
 *
 * Parts, lines, engines and calls are never drained: they are totals, which leat may read at any
 * time and reads for the last time when the process has ended. A part is read only when its bit in
 * `parts_used` shows that it happened: to read a page of a memfd that was never written gives it
 * memory.
 *
 * Everything in here is foreign to leat: a process may scribble over it. The reader
 * (ring_reader.c) checks every number against these constants and never trusts an index.
 */
#ifndef LEAT_RECORD_LAYOUT_H
#define LEAT_RECORD_LAYOUT_H

#include "leat/recorder.h"

#include "base/duration_histogram.h"
#include "record/probe_abi.h"

#include <stdatomic.h>
#include <stdint.h>

#define REC_MAGIC   0x314345525441454cull /* "LEATREC1", little endian */
#define REC_VERSION 11u

enum {
    REC_HEADER_BYTES = 4096,
    REC_NAMES = 256,
    REC_NAME_BYTES = 64,
    REC_LOADERS = 64,
    REC_LOADER_BYTES = 320,
    REC_RINGS = LEAT_REC_THREADS,
    /* 32768 x 32 bytes = 1 MiB per thread. leat drains every 100 ms, so a thread may write 320 000
       records per second before any is lost; the fastest known loop writes about 100 000. */
    REC_RING_RECORDS = 32768,
    REC_PART_LOADERS = 16,  /* the last is shared by the 16th loader and all later ones */
    REC_READY_COUNTS = 256, /* the last also counts requests that found more */
    REC_LINES = 512,
    REC_CUDA_LINES = 256,
    REC_FILE_BYTES = 152,
    REC_FUNCTION_BYTES = 48,
    REC_SOURCE_BYTES = 96,
    REC_ORDER_BYTES = 16
};

struct rec_part { /* added to by any thread; `n` last, so the bins never hold less than `n` */
    _Atomic uint64_t n, total_ns, max_ns, bytes;
    _Atomic uint64_t bins[DURATION_BUCKETS];
};

/* Requests for a batch, by how many batches were ready: added to by any thread. */
struct rec_ready {
    _Atomic uint64_t requests[REC_READY_COUNTS];
};

struct rec_line { /* its identity is set before lines_used counts it, and never changes */
    _Atomic uint64_t ns, read_ns, decode_ns, blocked_ns, samples;
    int32_t line, below;
    uint32_t loader;
    uint16_t part, library;
    char file[REC_FILE_BYTES];
    char function[REC_FUNCTION_BYTES];
};

struct rec_engine {
#define X(name) _Atomic uint64_t name;
    LEAT_STAGES(X)
#undef X
    _Atomic uint64_t memory_bytes;
    _Atomic int32_t threads, cores, ahead;
    _Atomic uint32_t texts_set; /* the texts are set, once */
    char source[REC_SOURCE_BYTES];
    char order[REC_ORDER_BYTES];
};

/* Totals of CUDA calls at three times: after the first batch, after the last step, and most
 * recently. */
enum rec_cuda_when { REC_CUDA_BEGUN, REC_CUDA_STEPPED, REC_CUDA_LAST, REC_CUDA_WHENS };

struct rec_cuda {
    struct {
        _Atomic uint64_t n, ns, bytes;
    } of[REC_CUDA_WHENS][LEAT_CUDA_CLASSES_COUNT];
};

struct rec_cuda_line { /* its identity is set before cuda_lines_used counts it */
    _Atomic uint64_t n, ns, bytes, steps;
    int32_t line;
    uint32_t class;
    char file[REC_FILE_BYTES];
    char function[REC_FUNCTION_BYTES];
};

struct rec_clock { /* so far; written with the table above */
    _Atomic uint64_t n, device_ns, idle_ns, hidden_ns;
};

struct rec {
    uint64_t t0_ns, t1_ns;
    uint64_t arg;
    uint32_t id;
    uint16_t kind;
    uint16_t flags;
};

struct rec_header {
    /* Set once, before leat gets the memfd. */
    uint64_t magic;
    uint32_t version;
    int32_t pid, ppid;
    uint32_t reserved;
    uint64_t start_ns;
    /* Written by the process, read by leat. */
    _Atomic uint32_t role, signals;
    _Atomic int32_t worker_id, rank, local_rank, world_size; /* -1: unknown */
    _Atomic uint32_t names_used, loaders_used, rings_used;
    _Atomic uint32_t closed;       /* the process closed the recorder */
    _Atomic uint64_t threads_lost; /* records of threads without a ring */
    _Atomic uint64_t cost_ns;
    _Atomic int32_t worker_loader; /* -1: unknown */
    _Atomic uint32_t lines_used;
    _Atomic uint64_t lines_lost;                  /* samples of lines beyond REC_LINES */
    _Atomic uint8_t parts_used[REC_PART_LOADERS]; /* bit of each part that has happened */
    /* Written by leat, read by the process. */
    _Atomic uint32_t stop; /* record no more; the hooks remove themselves */
    /* Written by the process again. */
    _Atomic uint32_t engines_used; /* engines below it may be set */
    _Atomic uint32_t cuda_used;    /* odd while the table is written; 0: never */
    /* Cut strings, always NUL-terminated by the reader's copy. */
    char python[16], torch[32], exception[256], missing[256], devices[512];
    _Atomic uint32_t cuda_lines_used; /* by the process */
    _Atomic uint32_t ready_used;      /* bit of each loader whose requests were counted */
};

struct rec_ring {
    _Atomic uint64_t head; /* producer */
    _Atomic uint64_t lost; /* producer */
    int32_t tid;           /* of the thread that has the ring; changes when head == tail */
    uint32_t reserved;
    char pad[40];          /* keeps the reader's line apart from the producer's */
    _Atomic uint64_t tail; /* leat */
    char pad2[56];
    struct rec records[REC_RING_RECORDS];
};

struct rec_area {
    union {
        struct rec_header header;
        char header_page[REC_HEADER_BYTES];
    };
    char names[REC_NAMES][REC_NAME_BYTES];
    union {
        struct leat_loader_info info;
        char bytes[REC_LOADER_BYTES];
    } loaders[REC_LOADERS];
    struct rec_ring rings[REC_RINGS];
    struct rec_part parts[REC_PART_LOADERS][LEAT_PARTS_COUNT];
    struct rec_line lines[REC_LINES];
    struct rec_engine engines[REC_LOADERS];
    struct rec_cuda cuda;
    struct rec_clock clock[LEAT_CLOCK_PHASES_COUNT];
    struct rec_cuda_line cuda_lines[REC_CUDA_LINES];
    struct rec_ready ready[REC_PART_LOADERS];
};

_Static_assert(sizeof(struct rec) == 32, "a record is half a cache line");
_Static_assert(sizeof(struct rec_header) <= REC_HEADER_BYTES, "the header fits its page");
_Static_assert(LEAT_PARTS_COUNT <= 8, "the parts of a loader fit the bits of parts_used");
_Static_assert(sizeof(struct leat_loader_info) <= REC_LOADER_BYTES, "a loader fits its slot");

/* What a process sends over the socket, with the memfd as SCM_RIGHTS. */
struct rec_hello {
    uint64_t magic;
    uint32_t version;
    int32_t pid; /* as the process sees itself; leat believes the kernel (SO_PEERCRED) */
};

#endif
