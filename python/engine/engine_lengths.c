/* engine_lengths.c: sources of samples of different length, and plans of batches by length.
 *
 * Tensors of a ragged source point into the memory of its owner and may outlive the Source and the
 * loader. So the C source keeps the owner, and releases it with the GIL: any thread may drop the
 * last reference.
 */
#include "engine_module.h"

#include "load/buckets.h"

static void release_owner(void *owner)
{
    if (!Py_IsInitialized()) /* the interpreter is gone */
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

/* (name or None, dtype, address, shape, address of the offsets or 0); rows without gaps. */
static int parse_ragged(PyObject *tuple, struct leat_ragged *field)
{
    struct leat_array *array = &field->array;
    int dtype;
    unsigned long long address, offsets;
    PyObject *shape;
    if (!PyArg_ParseTuple(tuple, "ziKO!K", &array->name, &dtype, &address, &PyTuple_Type, &shape,
                          &offsets))
        return -1;
    Py_ssize_t dims = PyTuple_Size(shape);
    if (dims > LEAT_MAX_DIMS || dtype <= LEAT_RAW || dtype >= LEAT_DTYPES_COUNT) {
        PyErr_Format(PyExc_ValueError, "an array has a known type and at most %d dimensions",
                     LEAT_MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < dims; i++) {
        array->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (array->shape[i] == -1 && PyErr_Occurred())
            return -1;
    }
    array->dtype = (enum leat_dtype)dtype;
    array->dims = (uint32_t)dims;
    array->data = (const void *)(uintptr_t)address;
    field->offsets = (const int64_t *)(uintptr_t)offsets;
    return 0;
}

static PyObject *source_ragged(PyObject *module, PyObject *args)
{
    PyObject *list, *owner;
    long long samples;
    if (!PyArg_ParseTuple(args, "O!LO", &PyTuple_Type, &list, &samples, &owner))
        return NULL;
    struct leat_ragged fields[LEAT_MAX_FIELDS] = {
        {{0}, NULL}
    };
    Py_ssize_t count = PyTuple_Size(list);
    if (count < 1 || count > LEAT_MAX_FIELDS)
        return PyErr_Format(PyExc_ValueError, "%zd arrays: 1 to %d can be read together", count,
                            LEAT_MAX_FIELDS);
    for (Py_ssize_t i = 0; i < count; i++)
        if (parse_ragged(PyTuple_GetItem(list, i), &fields[i]) < 0)
            return NULL;
    struct leat_err err = {{0}};
    struct leat_source *source;
    Py_INCREF(owner);
    int bad;
    Py_BEGIN_ALLOW_THREADS; /* all offsets are read */
    bad = leat_source_ragged(fields, (uint32_t)count, samples, release_owner, owner, &source, &err);
    Py_END_ALLOW_THREADS;
    if (bad < 0) {
        Py_DECREF(owner);
        return engine_raise(bad, &err);
    }
    return engine_source_wrap(source, NULL);
}

static PyObject *source_documents(PyObject *module, PyObject *args)
{
    struct leat_documents asked = {0};
    int dtype;
    if (!PyArg_ParseTuple(args, "yyi", &asked.path, &asked.index_path, &dtype))
        return NULL;
    asked.out = (enum leat_dtype)dtype;
    struct leat_err err = {{0}};
    struct leat_source *source;
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_source_documents(&asked, &source, &err);
    Py_END_ALLOW_THREADS;
    return bad < 0 ? engine_raise(bad, &err) : engine_source_wrap(source, NULL);
}

/* A number that may be None: whether it was given. */
static int optional(PyObject *value, int64_t *ret_number)
{
    if (value == Py_None)
        return 0;
    *ret_number = PyLong_AsLongLong(value);
    return *ret_number == -1 && PyErr_Occurred() ? -1 : 1;
}

static PyObject *source_packed(PyObject *module, PyObject *args)
{
    struct leat_packed asked = {0};
    PyObject *inner_object, *seed, *separator, *pad;
    long long length;
    if (!PyArg_ParseTuple(args, "OLOOOpp", &inner_object, &length, &seed, &separator, &pad,
                          &asked.segments, &asked.positions))
        return NULL;
    struct leat_source *inner = engine_source_of(inner_object);
    if (!inner)
        return NULL;
    asked.length = length;
    asked.separated = optional(separator, &asked.separator);
    asked.pad_last = optional(pad, &asked.pad);
    if (seed != Py_None) {
        asked.shuffled = 1;
        asked.seed = PyLong_AsUnsignedLongLong(seed);
    }
    if (PyErr_Occurred())
        return NULL;
    struct leat_err err = {{0}};
    struct leat_source *source;
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_source_packed(inner, &asked, &source, &err);
    Py_END_ALLOW_THREADS;
    /* Other sources are kept by their Python object. */
    return bad < 0 ? engine_raise(bad, &err) : engine_source_wrap(source, inner_object);
}

static PyObject *source_lengths(PyObject *module, PyObject *args)
{
    PyObject *object;
    unsigned int field;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "OIK", &object, &field, &address))
        return NULL;
    struct leat_source *source = engine_source_of(object);
    if (!source)
        return NULL;
    struct leat_err err = {{0}};
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_source_lengths(source, field, 0, (size_t)leat_source_count(source),
                              (int64_t *)(uintptr_t)address, &err);
    Py_END_ALLOW_THREADS;
    if (bad < 0)
        return engine_raise(bad, &err);
    Py_RETURN_NONE;
}

/* ---- BucketPlan: the batches of an epoch. -----------------------------------------------------
 */
struct plan_object {
    PyObject_HEAD;
    struct buckets plan; /* owned */
};

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"lengths",    "count",    "batch_size", "max_tokens",
                            "window",     "multiple", "shuffle",    "drop_last",
                            "allow_long", "seed",     "epoch",      NULL};
    struct buckets_options options = {0};
    unsigned long long address, seed, epoch;
    long long count, batch_size, max_tokens, window, multiple;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KLLLLLpppKK", names, &address, &count,
                                     &batch_size, &max_tokens, &window, &multiple, &options.shuffle,
                                     &options.drop_last, &options.allow_long, &seed, &epoch))
        return NULL;
    options.batch_size = batch_size;
    options.max_tokens = max_tokens;
    options.window = window;
    options.multiple = multiple;
    options.seed = seed;
    struct plan_object *self =
        (struct plan_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    struct leat_err err = {{0}};
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = buckets_init(&self->plan, (const int64_t *)(uintptr_t)address, count, &options, epoch,
                       &err);
    Py_END_ALLOW_THREADS;
    if (bad < 0) {
        Py_DECREF(self);
        return engine_raise(bad, &err);
    }
    return (PyObject *)self;
}

static void plan_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    buckets_done(&((struct plan_object *)object)->plan);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* (rank, world size, done) and a number, checked against the plan; -1 with an exception. */
static int parse_rank(const struct buckets *plan, PyObject *args, struct buckets_rank *rank,
                      int64_t *ret_number)
{
    long long r, world_size, done, number;
    if (!PyArg_ParseTuple(args, "LLLL", &r, &world_size, &done, &number))
        return -1;
    if (r < 0 || r >= world_size || done < 0 || done > plan->batches || number < 0) {
        PyErr_Format(PyExc_ValueError, "rank %lld of %lld after %lld of %lld batches", r,
                     world_size, done, (long long)plan->batches);
        return -1;
    }
    *rank = (struct buckets_rank){.rank = r, .world_size = world_size, .done = done};
    *ret_number = number;
    return 0;
}

static PyObject *plan_steps(PyObject *object, PyObject *args)
{
    const struct buckets *plan = &((struct plan_object *)object)->plan;
    struct buckets_rank rank;
    int64_t drop_last;
    if (parse_rank(plan, args, &rank, &drop_last) < 0)
        return NULL;
    return PyLong_FromLongLong(buckets_steps(plan, &rank, drop_last != 0));
}

static PyObject *plan_part(PyObject *object, PyObject *args)
{
    const struct buckets *plan = &((struct plan_object *)object)->plan;
    struct buckets_rank rank;
    const int64_t *indices;
    int64_t step;
    if (parse_rank(plan, args, &rank, &step) < 0)
        return NULL;
    if (step >= buckets_steps(plan, &rank, 0))
        return PyErr_Format(PyExc_IndexError, "the rank has no batch %lld", (long long)step);
    int64_t samples = buckets_part(plan, &rank, step, &indices);
    if (samples < 0)
        return PyErr_NoMemory();
    PyObject *list = PyList_New((Py_ssize_t)samples);
    for (int64_t i = 0; list && i < samples; i++) {
        PyObject *index = PyLong_FromLongLong(indices[i]);
        if (!index || PyList_SetItem(list, (Py_ssize_t)i, index) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *plan_done_after(PyObject *object, PyObject *args)
{
    const struct buckets *plan = &((struct plan_object *)object)->plan;
    struct buckets_rank rank;
    int64_t steps;
    if (parse_rank(plan, args, &rank, &steps) < 0)
        return NULL;
    return PyLong_FromLongLong(buckets_done_after(plan, &rank, steps));
}

static PyObject *plan_batches(PyObject *object, void *unused)
{
    return PyLong_FromLongLong(((struct plan_object *)object)->plan.batches);
}

static PyObject *plan_largest(PyObject *object, void *unused)
{
    return PyLong_FromLongLong(((struct plan_object *)object)->plan.largest);
}

static PyMethodDef plan_methods[] = {
    {"steps",      plan_steps,      METH_VARARGS,
     "steps(rank, world_size, done, drop_last) -> the rank's batches from `done` on."    },
    {"part",       plan_part,       METH_VARARGS,
     "part(rank, world_size, done, step) -> the samples of the rank's batch `step`."     },
    {"done_after", plan_done_after, METH_VARARGS,
     "done_after(rank, world_size, done, steps) -> batches that all ranks have had then."},
    {NULL,         NULL,            0,            NULL                                   },
};

static PyGetSetDef plan_getters[] = {
    {"batches", plan_batches, NULL, "Batches of the epoch, of all ranks.", NULL},
    {"largest", plan_largest, NULL, "Samples of the batch that has most.", NULL},
    {NULL,      NULL,         NULL, NULL,                                  NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_new,     plan_new                                                },
    {Py_tp_dealloc, plan_dealloc                                            },
    {Py_tp_methods, plan_methods                                            },
    {Py_tp_getset,  plan_getters                                            },
    {Py_tp_doc,     "The batches of an epoch by length; see load/buckets.h."},
    {0,             NULL                                                    },
};

static PyType_Spec plan_spec = {
    .name = "leat._engine.BucketPlan",
    .basicsize = sizeof(struct plan_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = plan_slots,
};

static PyMethodDef functions[] = {
    {"source_ragged",    source_ragged,    METH_VARARGS,
     "source_ragged(((name, dtype, address, shape, offsets or 0), ...), samples, owner)."},
    {"source_documents", source_documents, METH_VARARGS,
     "source_documents(path, index path, dtype of the samples)."                         },
    {"source_packed",    source_packed,    METH_VARARGS,
     "source_packed(source, length, seed, separator, pad, segments, positions)."         },
    {"source_lengths",   source_lengths,   METH_VARARGS,
     "source_lengths(source, field, address): writes an int64 for each sample there."    },
    {NULL,               NULL,             0,            NULL                            },
};

int engine_lengths_add(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&plan_spec);
    if (!type || PyModule_AddObject(module, "BucketPlan", type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
