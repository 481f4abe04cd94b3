/* source.h: what a source is to the engine.
 *
 * A source knows how many samples it has, which fields each of them has, and how to read some of
 * them into given places. It is immutable and shared by all threads of all loaders: `read` keeps
 * nothing in it. A source embeds `struct leat_source` as its first member.
 *
 * A variable field's places are spans: the source sets each to where the rows lie, which is either
 * memory that lives as long as the source, or alloc() of the batch that is being made. The layout
 * of the batch (batch_layout.c) makes padded or joined rows of the spans once all are known.
 *
 * Decoders (codec/) and operators (op/) stand between the bytes that a source found and the place;
 * neither changes this interface.
 */
#ifndef LEAT_LOAD_SOURCE_H
#define LEAT_LOAD_SOURCE_H

#include "base/err.h"
#include "leat/loader.h"

#include <stdatomic.h>

/* Bad samples of one request: place in the request, code, sentence. */
struct source_report {
    void (*bad)(struct source_report *report, size_t place, int code, const char *text);
};

struct source_request {
    const int64_t *indices; /* each within the source */
    size_t count;
    uint8_t *const *places; /* of each field: sample i goes to places[f] + i * row_bytes; of a
                               variable one: an array of struct leat_span */
    /* Memory that lives as long as the batch, 64-byte aligned; NULL when there is none left. May
     * be called by several threads at once. */
    void *(*alloc)(const struct source_request *request, uint64_t bytes);
    void *alloc_owner; /* for alloc() */
};

struct source_ops {
    /* Fills every place, or names it as bad. A negative return condemns the whole request, `err`
     * says why. */
    int (*read)(struct leat_source *source, const struct source_request *request,
                struct source_report *report, struct leat_err *err);
    /* How many rows samples `first` to `first + count - 1` have in a variable field, found without
     * reading them; NULL where that is not possible. */
    int (*lengths)(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                   int64_t *ret_lengths, struct leat_err *err);
    /* Where all rows of a field lie one behind the other in memory, for as long as the source
     * lives; NULL where they do not. NULL: they never do. */
    const void *(*rows)(const struct leat_source *source, uint32_t field);
    /* Frees what the source holds beyond the base; takes a half-built one. */
    void (*done)(struct leat_source *source);
};

struct leat_source {
    const struct source_ops *ops;
    atomic_int refs;
    int64_t count;
    uint32_t fields;
    struct leat_field field[LEAT_MAX_FIELDS];
    char *descr[LEAT_MAX_FIELDS]; /* owned; what field[].descr shows, or NULL */
    char text[256];
    char decode[128]; /* what leat_source_decode() gives; "": nothing is decoded */
    double sample_ns; /* guess of what one sample costs to read: sizes the pieces of work */
    int lent;         /* its rows are the caller's memory, who may write to it */
    int64_t window;   /* samples of LEAT_ORDER_WINDOW that are read best together; 0: any */
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

/* Appends "x from .npy" to what is said of decoding: the field is made of other bytes than its
 * rows. */
void source_add_decode(struct leat_source *source, uint32_t field, const char *from);

#endif
