/* source.h: the interface of a source to the engine.
 *
 * A source knows how many samples it has, which fields each has, and how to read samples into given
 * places. It is immutable and shared by all threads of all loaders. A source embeds `struct
 * leat_source` as its first member.
 *
 * The places of a variable field are spans: the source sets each to where the rows lie, either in
 * memory that lives as long as the source, or in memory from alloc() of the batch. batch_layout.c
 * makes padded or joined rows of the spans when all are known.
 */
#ifndef LEAT_LOAD_SOURCE_H
#define LEAT_LOAD_SOURCE_H

#include "base/err.h"
#include "leat/loader.h"

#include <stdatomic.h>

/* Bad samples of one request. */
struct source_report {
    void (*bad)(struct source_report *report, size_t place, int code, const char *text);
};

struct source_request {
    const int64_t *indices; /* each within the source */
    size_t count;
    uint8_t *const *places; /* of each field: sample i goes to places[f] + i * row_bytes; of a
                               variable one: an array of struct leat_span */
    /* Memory that lives as long as the batch, 64-byte aligned; NULL when there is none left. Any
     * thread. */
    void *(*alloc)(const struct source_request *request, uint64_t bytes);
    void *alloc_owner; /* for alloc() */
};

struct source_ops {
    /* Fills every place, or reports it as bad. Negative: all samples of the request are bad, `err`
     * says why. */
    int (*read)(struct leat_source *source, const struct source_request *request,
                struct source_report *report, struct leat_err *err);
    /* Rows of samples `first` to `first + count - 1` in a variable field, found without reading
     * them; NULL when that is not possible. */
    int (*lengths)(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                   int64_t *ret_lengths, struct leat_err *err);
    /* All rows of a field when they lie one after the other in memory for as long as the source
     * lives; else NULL. */
    const void *(*rows)(const struct leat_source *source, uint32_t field);
    /* Frees what the source holds beyond the base; also of one that failed to open. */
    void (*done)(struct leat_source *source);
};

struct leat_source {
    const struct source_ops *ops;
    atomic_int refs;
    int64_t count;
    uint32_t fields;
    struct leat_field field[LEAT_MAX_FIELDS];
    char *descr[LEAT_MAX_FIELDS]; /* owned; shown by field[].descr, or NULL */
    char text[256];
    char decode[128]; /* what leat_source_decode() gives; "": nothing is decoded */
    double sample_ns; /* estimated cost of reading one sample: sets the size of pieces */
    int lent;         /* its rows are memory of the caller, who may write to it */
    int64_t window;   /* window for LEAT_ORDER_WINDOW that suits the data; 0: any */
};

/* Allocates `bytes` (>= sizeof(struct leat_source)), zeroed, with one reference. */
struct leat_source *source_new(size_t bytes, const struct source_ops *ops);

/* Fills one field from the shape of a whole array (first dimension: samples) and checks sizes. Sets
 * source->count with the first field and compares with it afterwards. */
int source_add_field(struct leat_source *source, const char *name, enum leat_dtype dtype,
                     uint64_t item_bytes, uint32_t dims, const int64_t *shape, const char *descr,
                     struct leat_err *err);

/* Appends "x float32[100], y int64" to the text that is there. */
void source_add_fields_text(struct leat_source *source);

/* Appends "x from .npy" to the text of leat_source_decode(): how a field is decoded. */
void source_add_decode(struct leat_source *source, uint32_t field, const char *from);

#endif
