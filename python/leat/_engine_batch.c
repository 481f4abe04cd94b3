/* _engine_batch.c: batches as DLPack capsules, without a copy.
 *
 * DLPack is a binary contract between libraries; its structs are declared here as version 0 of it
 * has them, which every consumer reads (torch, numpy, JAX, CuPy). A capsule is named "dltensor"
 * until somebody takes it; then its taker calls the deleter, at any time and by any thread, with or
 * without the GIL: it touches no Python object.
 */
#include "_engine.h"

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

enum { DL_CPU = 1 };

/* One field of a batch; freed by its deleter. */
struct handed {
    struct dl_managed managed; /* first: a pointer to it is one to the whole */
    struct leat_batch *batch;  /* a reference */
    int64_t shape[LEAT_MAX_DIMS + 2], strides[LEAT_MAX_DIMS + 2];
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

/* Items of a kind that DLPack has no name for are handed out as their bytes. */
static void describe(struct handed *handed, const struct leat_field *field, int64_t samples)
{
    struct dl_tensor *t = &handed->managed.tensor;
    int dims = 0;
    handed->shape[dims++] = samples;
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
    t->device.type = DL_CPU;
}

static PyObject *capsule_of(struct leat_batch *batch, uint32_t number,
                            const struct leat_field *field)
{
    struct handed *handed = calloc(1, sizeof *handed);
    if (!handed)
        return PyErr_NoMemory();
    describe(handed, field, batch->samples);
    handed->managed.tensor.data = batch->data[number];
    handed->managed.deleter = delete_handed;
    handed->batch = leat_batch_ref(batch);
    PyObject *capsule = PyCapsule_New(&handed->managed, "dltensor", destroy_capsule);
    if (!capsule)
        delete_handed(&handed->managed);
    return capsule;
}

PyObject *engine_batch_capsules(struct leat_batch *batch, const struct leat_source *source)
{
    PyObject *capsules = PyTuple_New(batch->fields);
    for (uint32_t i = 0; capsules && i < batch->fields; i++) {
        PyObject *capsule = capsule_of(batch, i, leat_source_field(source, i));
        if (!capsule || PyTuple_SetItem(capsules, i, capsule) < 0) {
            Py_DECREF(capsules);
            capsules = NULL;
        }
    }
    return capsules;
}
