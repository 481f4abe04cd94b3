/* source.h: what a source is to the engine.
 *
 * A source knows how many samples it has, which fields each of them has, and how to read some of
 * them into given places. It is immutable and shared by all threads of all loaders: `read` keeps
 * nothing in it. A source embeds `struct leat_source` as its first member.
 *
 * What is to come has its place here. A stream (tar) has count -1 and gives out its own order of
 * reading. A field of variable length has row_bytes 0 and LEAT_FIELD_VARIABLE; its places are then
 * made by the batch layout after the lengths are known. Decoders (codec/) and operators (op/) stand
 * between the bytes that a source found and the place in the slot; neither changes this interface.
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
    uint8_t *const *places; /* of each field: sample i goes to places[f] + i * row_bytes */
};

struct source_ops {
    /* Fills every place, or names it as bad. A negative return condemns the whole request, `err`
     * says why. */
    int (*read)(struct leat_source *source, const struct source_request *request,
                struct source_report *report, struct leat_err *err);
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
    double sample_ns; /* guess of what one sample costs to read: sizes the pieces of work */
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

#endif
