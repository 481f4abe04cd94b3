/* engine_source.c: the sources of include/leat/loader.h as Python objects.
 *
 * A Source keeps its owner alive, so that memory of a tensor is read without a copy. It releases
 * the owner with the GIL; the C source could not, since any thread may drop its last reference.
 */
#include "engine_module.h"

#include <stdlib.h>
#include <string.h>

struct source_object {
    PyObject_HEAD;
    struct leat_source *source; /* a reference */
    PyObject *owner;            /* owned; may be NULL */
};

static PyTypeObject *source_type;

struct leat_source *engine_source_of(PyObject *object)
{
    if (!PyObject_TypeCheck(object, source_type)) {
        PyErr_SetString(PyExc_TypeError, "this is no Source");
        return NULL;
    }
    return ((struct source_object *)object)->source;
}

static PyObject *wrap(struct leat_source *source, PyObject *owner)
{
    allocfunc make = (allocfunc)PyType_GetSlot(source_type, Py_tp_alloc);
    struct source_object *self = (struct source_object *)make(source_type, 0);
    if (!self) {
        leat_source_unref(source);
        return NULL;
    }
    self->source = source;
    Py_XINCREF(owner);
    self->owner = owner;
    return (PyObject *)self;
}

PyObject *engine_source_wrap(struct leat_source *source, PyObject *owner)
{
    return wrap(source, owner);
}

static PyObject *source_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyErr_SetString(PyExc_TypeError, "a Source is made by one of the source_ functions");
    return NULL;
}

static void source_dealloc(PyObject *object)
{
    struct source_object *self = (struct source_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    leat_source_unref(self->source);
    Py_XDECREF(self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* Up to LEAT_MAX_DIMS numbers of a tuple; their count, or -1 with an exception. */
static int numbers(PyObject *tuple, int64_t *ret_numbers)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count < 0)
        return -1;
    if (count > LEAT_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%zd dimensions are more than %d", count, LEAT_MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        ret_numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (ret_numbers[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)count;
}

/* (name or None, dtype, address, shape, strides in bytes) */
static int parse_array(PyObject *tuple, struct leat_array *array, int64_t *strides)
{
    int dtype;
    unsigned long long address;
    PyObject *shape, *steps;
    if (!PyArg_ParseTuple(tuple, "ziKO!O!", &array->name, &dtype, &address, &PyTuple_Type, &shape,
                          &PyTuple_Type, &steps))
        return -1;
    int dims = numbers(shape, array->shape), given = dims < 0 ? -1 : numbers(steps, strides);
    if (given < 0)
        return -1;
    if (dtype <= LEAT_RAW || dtype >= LEAT_DTYPES_COUNT || dims != given) {
        PyErr_SetString(PyExc_ValueError, "an array has a known type and a stride a dimension");
        return -1;
    }
    array->dtype = (enum leat_dtype)dtype;
    array->dims = (uint32_t)dims;
    array->data = (const void *)(uintptr_t)address;
    array->strides_bytes = strides;
    return 0;
}

static PyObject *source_memory(PyObject *module, PyObject *args)
{
    PyObject *list, *owner;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &list, &owner))
        return NULL;
    struct leat_array arrays[LEAT_MAX_FIELDS] = {{0}};
    int64_t strides[LEAT_MAX_FIELDS][LEAT_MAX_DIMS];
    Py_ssize_t count = PyTuple_Size(list);
    if (count < 1 || count > LEAT_MAX_FIELDS)
        return PyErr_Format(PyExc_ValueError, "%zd arrays: 1 to %d can be read together", count,
                            LEAT_MAX_FIELDS);
    for (Py_ssize_t i = 0; i < count; i++)
        if (parse_array(PyTuple_GetItem(list, i), &arrays[i], strides[i]) < 0)
            return NULL;
    struct leat_err err = {{0}};
    struct leat_source *source;
    int bad = leat_source_memory(arrays, (uint32_t)count, NULL, NULL, &source, &err);
    return bad < 0 ? engine_raise(bad, &err) : wrap(source, owner);
}

static PyObject *source_npy(PyObject *module, PyObject *args)
{
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &list))
        return NULL;
    struct leat_npy_part parts[LEAT_MAX_FIELDS] = {{0}};
    Py_ssize_t count = PyTuple_Size(list);
    if (count < 1 || count > LEAT_MAX_FIELDS)
        return PyErr_Format(PyExc_ValueError, "%zd files: 1 to %d can be read together", count,
                            LEAT_MAX_FIELDS);
    for (Py_ssize_t i = 0; i < count; i++) {
        long long offset, bytes;
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, i), "yLL", &parts[i].path, &offset, &bytes))
            return NULL;
        parts[i].offset = offset;
        parts[i].bytes = bytes;
    }
    struct leat_err err = {{0}};
    struct leat_source *source;
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_source_npy_parts(parts, (uint32_t)count, &source, &err);
    Py_END_ALLOW_THREADS;
    return bad < 0 ? engine_raise(bad, &err) : wrap(source, NULL);
}

static PyObject *source_tokens(PyObject *module, PyObject *args)
{
    struct leat_tokens tokens = {0};
    int dtype;
    long long offset, length, stride;
    PyObject *index_path;
    if (!PyArg_ParseTuple(args, "yOiLLL", &tokens.path, &index_path, &dtype, &offset, &length,
                          &stride))
        return NULL;
    if (index_path != Py_None && !(tokens.index_path = PyBytes_AsString(index_path)))
        return NULL;
    tokens.dtype = (enum leat_dtype)dtype;
    tokens.out = LEAT_INT64;
    tokens.offset_bytes = offset;
    tokens.length = length;
    tokens.stride = stride;
    struct leat_err err = {{0}};
    struct leat_source *source;
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_source_tokens(&tokens, &source, &err);
    Py_END_ALLOW_THREADS;
    return bad < 0 ? engine_raise(bad, &err) : wrap(source, NULL);
}

static PyObject *shape_of(const struct leat_field *field)
{
    PyObject *shape = PyTuple_New(field->dims);
    for (uint32_t i = 0; shape && i < field->dims; i++) {
        PyObject *size = PyLong_FromLongLong(field->shape[i]);
        if (!size || PyTuple_SetItem(shape, i, size) < 0) {
            Py_DECREF(shape);
            shape = NULL;
        }
    }
    return shape;
}

static PyObject *source_fields(PyObject *object, void *unused)
{
    const struct leat_source *source = ((struct source_object *)object)->source;
    uint32_t count = leat_source_fields(source);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < count; i++) {
        const struct leat_field *field = leat_source_field(source, i);
        PyObject *shape = shape_of(field);
        PyObject *row =
            shape ? Py_BuildValue("(ssIsN)", field->name, leat_dtype_name(field->dtype),
                                  field->item_bytes, field->descr ? field->descr : "", shape)
                  : NULL;
        if (!row || PyList_Append(list, row) < 0) {
            Py_DECREF(list);
            list = NULL;
        }
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *source_count(PyObject *object, void *unused)
{
    return PyLong_FromLongLong(leat_source_count(((struct source_object *)object)->source));
}

static PyObject *source_text(PyObject *object, void *unused)
{
    const char *text = leat_source_text(((struct source_object *)object)->source);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *source_decode(PyObject *object, void *unused)
{
    const char *text = leat_source_decode(((struct source_object *)object)->source);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* The indices of a sequence, to be freed; NULL with an exception. */
static int64_t *indices_of(PyObject *sequence, size_t *ret_count)
{
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0)
        return NULL;
    int64_t *indices = malloc((size_t)(count ? count : 1) * sizeof *indices);
    if (!indices)
        return (int64_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        PyObject *number = item ? PyNumber_Index(item) : NULL;
        indices[i] = number ? PyLong_AsLongLong(number) : -1;
        Py_XDECREF(item);
        Py_XDECREF(number);
        if (indices[i] == -1 && PyErr_Occurred()) {
            free(indices);
            return NULL;
        }
    }
    *ret_count = (size_t)count;
    return indices;
}

/* read(indices) -> as next() of an Engine, variable fields as lists; see engine_batch.c. */
static PyObject *source_read(PyObject *object, PyObject *sequence)
{
    struct leat_source *source = ((struct source_object *)object)->source;
    struct leat_err err = {{0}};
    struct leat_batch *batch;
    size_t count = 0;
    int64_t *indices = indices_of(sequence, &count);
    if (!indices)
        return NULL;
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_source_read(source, indices, count, NULL, &batch, &err);
    Py_END_ALLOW_THREADS;
    free(indices);
    if (bad < 0)
        return engine_raise(bad, &err);
    PyObject *fields = engine_batch_fields(batch, source, NULL);
    leat_batch_unref(batch);
    return fields;
}

static PyMethodDef source_methods[] = {
    {"read", source_read, METH_O,
     "read(indices) -> a tuple of what each field has of the samples."},
    {NULL,   NULL,        0,      NULL                                },
};

static PyGetSetDef source_getters[] = {
    {"count",  source_count,  NULL, "How many samples there are.",                        NULL},
    {"fields", source_fields, NULL, "A list of (name, dtype, item bytes, descr, shape).", NULL},
    {"text",   source_text,   NULL, "One line, for people.",                              NULL},
    {"decode", source_decode, NULL, "What is made of the bytes that it finds.",           NULL},
    {NULL,     NULL,          NULL, NULL,                                                 NULL},
};

static PyType_Slot source_slots[] = {
    {Py_tp_new,     source_new                                         },
    {Py_tp_dealloc, source_dealloc                                     },
    {Py_tp_getset,  source_getters                                     },
    {Py_tp_methods, source_methods                                     },
    {Py_tp_doc,     "Where samples lie; made by the source_ functions."},
    {0,             NULL                                               },
};

static PyType_Spec source_spec = {
    .name = "leat._engine.Source",
    .basicsize = sizeof(struct source_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = source_slots,
};

static PyMethodDef source_functions[] = {
    {"source_memory", source_memory, METH_VARARGS,
     "source_memory(((name, dtype, address, shape, strides), ...), owner) -> Source."                   },
    {"source_npy",    source_npy,    METH_VARARGS, "source_npy(((path, offset, bytes), ...)) -> Source."},
    {"source_tokens", source_tokens, METH_VARARGS,
     "source_tokens(path, index path or None, dtype, offset, length, stride) -> Source."                },
    {NULL,            NULL,          0,            NULL                                                 },
};

int engine_source_add(PyObject *module)
{
    source_type = (PyTypeObject *)PyType_FromSpec(&source_spec);
    if (!source_type)
        return -1;
#define X(name, text, bytes, code, bits)                                                           \
    if (PyModule_AddIntConstant(module, "DTYPE_" text, LEAT_##name) < 0)                           \
        return -1;
    LEAT_DTYPES(X)
#undef X
    if (engine_hdf5_add(module) < 0 || engine_tar_add(module) < 0 || engine_values_add(module) < 0)
        return -1;
    if (engine_lengths_add(module) < 0)
        return -1;
    return PyModule_AddFunctions(module, source_functions);
}
