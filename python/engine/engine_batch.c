/* engine_batch.c: batches as Python objects, without a copy if possible.
 *
 * next() and Source.read() return a tuple with one entry per field:
 *
 *     a fixed field              a capsule: the samples, stacked
 *     a variable one, LIST       a list with one entry per sample: bytes (a copy) if the rows are
 *                                single uint8, else a capsule
 *     a variable one, PAD        (capsule of samples x longest, capsule of the lengths as int64)
 *     a variable one, CONCAT     (capsule of all rows, capsule of the lengths as int64)
 *
 * Each capsule has its own reference to the batch, which ends with the tensor made of it. A batch
 * on a device has fixed fields only, and its capsules name the device.
 *
 * DLPack is an ABI; its structs are declared here in version 0, which every consumer reads (torch,
 * numpy, JAX, CuPy). A capsule is named "dltensor" until a library takes it; that one calls the
 * deleter at any time, in any thread, with or without the GIL: it uses no Python object.
 */
#include "engine_module.h"

#include <stdlib.h>
#include <string.h>

struct dl_device {
    int32_t type, id;
};

struct dl_dtype {
    uint8_t code, bits;
    uint16_t lanes;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t dims;
    struct dl_dtype dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

enum { DL_CPU = 1, DL_CUDA = 2 };

/* One tensor of a batch; freed by its deleter. */
struct handed {
    struct dl_managed managed; /* first: a pointer to it is one to the whole */
    struct leat_batch *batch;  /* a reference */
    int64_t shape[LEAT_MAX_DIMS + 3], strides[LEAT_MAX_DIMS + 3];
};

static const struct dl_dtype dl_dtypes[] = {
#define X(name, text, bytes, code, bits) {code, bits, 1},
    LEAT_DTYPES(X)
#undef X
};

static void delete_handed(struct dl_managed *managed)
{
    struct handed *handed = (struct handed *)managed;
    leat_batch_unref(handed->batch);
    free(handed);
}

static void destroy_capsule(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor"))
        return; /* taken: it has another name now */
    struct dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    managed->deleter(managed);
}

/* `counts` are the dimensions before those of the rows, ended by a negative one. Items of a type
 * that DLPack does not know are given as bytes. */
static void describe(struct handed *handed, const struct leat_field *field, const int64_t *counts)
{
    struct dl_tensor *t = &handed->managed.tensor;
    int dims = 0;
    while (*counts >= 0)
        handed->shape[dims++] = *counts++;
    for (uint32_t i = 0; i < field->dims; i++)
        handed->shape[dims++] = field->shape[i];
    t->dtype = dl_dtypes[field->dtype];
    if (field->dtype == LEAT_RAW) {
        handed->shape[dims++] = field->item_bytes;
        t->dtype = dl_dtypes[LEAT_UINT8];
    }
    int64_t stride = 1;
    for (int i = dims - 1; i >= 0; i--) {
        handed->strides[i] = stride;
        stride *= handed->shape[i] ? handed->shape[i] : 1;
    }
    t->dims = dims;
    t->shape = handed->shape;
    t->strides = handed->strides;
}

static PyObject *capsule_of(struct leat_batch *batch, const void *data,
                            const struct leat_field *field, const int64_t *counts)
{
    struct handed *handed = calloc(1, sizeof *handed);
    if (!handed)
        return PyErr_NoMemory();
    describe(handed, field, counts);
    handed->managed.tensor.data = (void *)data;
    handed->managed.deleter = delete_handed;
    handed->managed.tensor.device.type = batch->device_data ? DL_CUDA : DL_CPU;
    handed->managed.tensor.device.id = batch->device_data ? batch->device : 0;
    handed->batch = leat_batch_ref(batch);
    PyObject *capsule = PyCapsule_New(&handed->managed, "dltensor", destroy_capsule);
    if (!capsule)
        delete_handed(&handed->managed);
    return capsule;
}

static PyObject *list_of(struct leat_batch *batch, uint32_t number, const struct leat_field *field)
{
    const struct leat_span *spans = batch->data[number];
    int as_bytes = field->dtype == LEAT_UINT8 && field->dims == 0;
    PyObject *list = PyList_New((Py_ssize_t)batch->samples);
    for (int64_t i = 0; list && i < batch->samples; i++) {
        const int64_t counts[] = {spans[i].items, -1};
        PyObject *entry = as_bytes
                              ? PyBytes_FromStringAndSize(spans[i].data, (Py_ssize_t)spans[i].items)
                              : capsule_of(batch, spans[i].data, field, counts);
        if (!entry || PyList_SetItem(list, (Py_ssize_t)i, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *pair_of(struct leat_batch *batch, uint32_t number, const struct leat_field *field,
                         enum leat_layout_kind kind)
{
    static const struct leat_field length = {.dtype = LEAT_INT64, .item_bytes = 8, .row_bytes = 8};
    const int64_t samples[] = {batch->samples, -1};
    const int64_t padded[] = {batch->samples, batch->items[number], -1};
    const int64_t joined[] = {batch->items[number], -1};
    PyObject *rows =
        capsule_of(batch, batch->data[number], field, kind == LEAT_LAYOUT_PAD ? padded : joined);
    PyObject *lengths = rows ? capsule_of(batch, batch->lengths[number], &length, samples) : NULL;
    if (!lengths) {
        Py_XDECREF(rows);
        return NULL;
    }
    return Py_BuildValue("(NN)", rows, lengths);
}

PyObject *engine_batch_fields(struct leat_batch *batch, const struct leat_source *source,
                              const struct leat_layout *layouts)
{
    const int64_t samples[] = {batch->samples, -1};
    PyObject *fields = PyTuple_New(batch->fields);
    for (uint32_t i = 0; fields && i < batch->fields; i++) {
        const struct leat_field *field = leat_source_field(source, i);
        PyObject *entry;
        if (!field->variable)
            entry = capsule_of(batch, (batch->device_data ? batch->device_data : batch->data)[i],
                               field, samples);
        else if (!layouts || layouts[i].kind == LEAT_LAYOUT_LIST)
            entry = list_of(batch, i, field);
        else
            entry = pair_of(batch, i, field, layouts[i].kind);
        if (!entry || PyTuple_SetItem(fields, i, entry) < 0)
            Py_CLEAR(fields);
    }
    return fields;
}
