/* engine_values.c: codecs by their Python names, and sources whose values they decode: LMDB, files.
 */
#include "engine_module.h"

#include <stdlib.h>
#include <string.h>

int engine_codec_of(PyObject *tuple, struct leat_codec *ret_codec)
{
    int kind, dtype, variable;
    PyObject *shape;
    struct leat_codec codec = {0};
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a codec is (kind, dtype, shape, variable)");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "iiO!p", &kind, &dtype, &PyTuple_Type, &shape, &variable))
        return -1;
    Py_ssize_t dims = PyTuple_Size(shape);
    if (dims > LEAT_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%zd dimensions are more than %d", dims, LEAT_MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < dims; i++) {
        codec.shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (codec.shape[i] == -1 && PyErr_Occurred())
            return -1;
    }
    codec.kind = (enum leat_codec_kind)kind;
    codec.dtype = (enum leat_dtype)dtype;
    codec.dims = (uint32_t)dims;
    codec.variable = variable;
    *ret_codec = codec;
    return 0;
}

#define MOST_SKIPPED 64

static int keys_of(PyObject *tuple, struct leat_lmdb_key *keys, size_t *ret_count)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count > MOST_SKIPPED) {
        PyErr_Format(PyExc_ValueError, "at most %d keys can be left out", MOST_SKIPPED);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        char *bytes;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, i), &bytes, &length) < 0)
            return -1;
        keys[i] = (struct leat_lmdb_key){bytes, (size_t)length};
    }
    *ret_count = (size_t)count;
    return 0;
}

static PyObject *source_lmdb(PyObject *module, PyObject *args)
{
    struct leat_lmdb lmdb = {0};
    struct leat_codec key;
    struct leat_lmdb_key skip[MOST_SKIPPED];
    PyObject *value_tuple, *key_tuple, *skip_tuple;
    if (!PyArg_ParseTuple(args, "yzOOO!", &lmdb.path, &lmdb.db, &value_tuple, &key_tuple,
                          &PyTuple_Type, &skip_tuple))
        return NULL;
    if (engine_codec_of(value_tuple, &lmdb.value) < 0 ||
        keys_of(skip_tuple, skip, &lmdb.skip_count) < 0)
        return NULL;
    lmdb.skip = skip;
    if (key_tuple != Py_None) {
        if (engine_codec_of(key_tuple, &key) < 0)
            return NULL;
        lmdb.key = &key;
    }
    struct leat_err err = {{0}};
    struct leat_source *source;
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_source_lmdb(&lmdb, &source, &err);
    Py_END_ALLOW_THREADS;
    return bad < 0 ? engine_raise(bad, &err) : engine_source_wrap(source, NULL);
}

/* Paths and labels of `files`, to be freed. The paths lie in the bytes objects of the tuple. */
static int files_of(PyObject *paths, PyObject *labels, struct leat_files *files,
                    const char ***ret_paths, int64_t **ret_labels)
{
    Py_ssize_t count = PyTuple_Size(paths);
    if (labels != Py_None && PyObject_Size(labels) != count) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "there must be a label for each file");
        return -1;
    }
    *ret_paths = calloc((size_t)count + 1, sizeof **ret_paths);
    *ret_labels = calloc((size_t)count + 1, sizeof **ret_labels);
    if (!*ret_paths || !*ret_labels) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        char *path; /* without a length, so a NUL in it is an error */
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(paths, i), &path, NULL) < 0)
            return -1;
        (*ret_paths)[i] = path;
        if (labels == Py_None)
            continue;
        (*ret_labels)[i] = PyLong_AsLongLong(PyTuple_GetItem(labels, i));
        if ((*ret_labels)[i] == -1 && PyErr_Occurred())
            return -1;
    }
    files->paths = *ret_paths;
    files->count = count;
    files->labels = labels == Py_None ? NULL : *ret_labels;
    return 0;
}

static PyObject *source_files(PyObject *module, PyObject *args)
{
    struct leat_files files = {0};
    PyObject *paths_tuple, *labels_tuple, *value_tuple, *wrapped = NULL;
    const char **paths = NULL;
    int64_t *labels = NULL;
    if (!PyArg_ParseTuple(args, "O!OO", &PyTuple_Type, &paths_tuple, &labels_tuple, &value_tuple))
        return NULL;
    if (labels_tuple != Py_None && !PyTuple_Check(labels_tuple)) {
        PyErr_SetString(PyExc_TypeError, "labels are a tuple, or None");
        return NULL;
    }
    if (engine_codec_of(value_tuple, &files.value) == 0 &&
        files_of(paths_tuple, labels_tuple, &files, &paths, &labels) == 0) {
        struct leat_err err = {{0}};
        struct leat_source *source;
        int bad;
        Py_BEGIN_ALLOW_THREADS;
        bad = leat_source_files(&files, &source, &err);
        Py_END_ALLOW_THREADS;
        wrapped = bad < 0 ? engine_raise(bad, &err) : engine_source_wrap(source, NULL);
    }
    free(paths);
    free(labels);
    return wrapped;
}

static PyMethodDef values_functions[] = {
    {"source_lmdb",  source_lmdb,  METH_VARARGS,
     "source_lmdb(path, db or None, codec of values, codec of keys or None, (key, ...)) -> "
     "Source."                                                          },
    {"source_files", source_files, METH_VARARGS,
     "source_files((path, ...), (label, ...) or None, codec) -> Source."},
    {NULL,           NULL,         0,            NULL                   },
};

int engine_values_add(PyObject *module)
{
    static const struct {
        const char *name;
        int kind;
    } codecs[] = {
        {"CODEC_BYTES",   LEAT_CODEC_BYTES  },
        {"CODEC_ARRAY",   LEAT_CODEC_ARRAY  },
        {"CODEC_NPY",     LEAT_CODEC_NPY    },
        {"CODEC_DECIMAL", LEAT_CODEC_DECIMAL},
    };
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (PyModule_AddIntConstant(module, codecs[i].name, codecs[i].kind) < 0)
            return -1;
    return PyModule_AddFunctions(module, values_functions);
}
