/* memory.c: arrays in memory: tensors, NumPy arrays, C arrays. */
#include "gather.h"

#include "load/source.h"

#include <stdio.h>

struct memory_source {
    struct leat_source base;
    struct gather gather[LEAT_MAX_FIELDS];
    void (*release)(void *owner);
    void *owner;
};

static int read_rows(struct leat_source *source, const struct source_request *request,
                     struct source_report *report, struct leat_err *err)
{
    struct memory_source *m = (struct memory_source *)source;
    for (uint32_t f = 0; f < source->fields; f++)
        gather_rows(&m->gather[f], request->indices, request->count, request->places[f]);
    return 0;
}

static void let_go(struct leat_source *source)
{
    struct memory_source *m = (struct memory_source *)source;
    if (m->release)
        m->release(m->owner);
}

static const void *find_rows(const struct leat_source *source, uint32_t f)
{
    const struct gather *g = &((const struct memory_source *)source)->gather[f];
    int whole = !g->dims && !g->swap_bytes && (uint64_t)g->stride_bytes == g->row_bytes;
    return whole ? g->base : NULL;
}

static const struct source_ops memory_ops = {.read = read_rows, .rows = find_rows, .done = let_go};

static int add_array(struct memory_source *m, const struct leat_array *array, struct leat_err *err)
{
    uint32_t f = m->base.fields;
    uint64_t item = array->dtype == LEAT_RAW ? array->item_bytes : leat_dtype_bytes(array->dtype);
    int failed = source_add_field(&m->base, array->name, array->dtype, item, array->dims,
                                  array->shape, NULL, err);
    if (failed)
        return failed;
    if (!item)
        return err_set(err, -LEAT_E_USAGE, "Field \"%s\" has items of no size.",
                       m->base.field[f].name);
    if (!array->data && m->base.count && m->base.field[f].row_bytes)
        return err_set(err, -LEAT_E_USAGE, "Field \"%s\" has no data.", m->base.field[f].name);
    gather_init(&m->gather[f], array->data, (uint32_t)item, array->dims, array->shape,
                array->strides_bytes);
    m->base.sample_ns += gather_cost_ns(&m->gather[f]);
    return 0;
}

int leat_source_memory(const struct leat_array *arrays, uint32_t count,
                       void (*release)(void *owner), void *owner, struct leat_source **ret_source,
                       struct leat_err *err)
{
    if (!count || count > LEAT_MAX_FIELDS)
        return err_set(err, -LEAT_E_USAGE, "A source has 1 to %d fields, not %u.", LEAT_MAX_FIELDS,
                       count);
    struct memory_source *m = (struct memory_source *)source_new(sizeof *m, &memory_ops);
    if (!m)
        return err_set(err, -ENOMEM, "No memory for a source of %u arrays.", count);
    for (uint32_t i = 0; i < count; i++) {
        int failed = add_array(m, &arrays[i], err);
        if (failed) {
            leat_source_unref(&m->base); /* `release` is not set yet */
            return failed;
        }
    }
    snprintf(m->base.text, sizeof m->base.text, "memory: %lld samples of ",
             (long long)m->base.count);
    source_add_fields_text(&m->base);
    m->base.lent = 1;
    m->release = release;
    m->owner = owner;
    *ret_source = &m->base;
    return 0;
}
