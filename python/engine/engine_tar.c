/* engine_tar.c: tar shards (leat_source_tar) as a Source.
 *
 * Opening may download for minutes: it runs without the GIL, and checks for Ctrl-C now and then.
 */
#include "engine_module.h"

#include <stdlib.h>

/* Strings of a tuple of bytes, to be freed; NULL with an exception. They live as long as the tuple.
 */
static const char **texts_of(PyObject *tuple)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    const char **texts = calloc((size_t)count + 1, sizeof *texts);
    if (!texts)
        return (const char **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        texts[i] = PyBytes_AsString(PyTuple_GetItem(tuple, i));
        if (!texts[i]) {
            free(texts);
            return NULL;
        }
    }
    return texts;
}

/* (extension, codec) */
static int parse_field(PyObject *tuple, struct leat_tar_field *field)
{
    PyObject *codec;
    if (!PyArg_ParseTuple(tuple, "sO", &field->extension, &codec))
        return -1;
    return engine_codec_of(codec, &field->codec);
}

/* Whether a signal has raised an exception. Called without the GIL. */
static int interrupted(void *owner)
{
    PyThreadState **state = owner;
    PyEval_RestoreThread(*state);
    int raised = PyErr_CheckSignals() < 0;
    *state = PyEval_SaveThread();
    return raised;
}

static PyObject *open_tar(struct leat_tar tar)
{
    struct leat_err err = {{0}};
    struct leat_source *source;
    PyThreadState *state;
    tar.cancelled = interrupted;
    tar.owner = &state;
    state = PyEval_SaveThread();
    int bad = leat_source_tar(&tar, &source, &err);
    PyEval_RestoreThread(state);
    if (bad < 0)
        return PyErr_Occurred() ? NULL : engine_raise(bad, &err);
    return engine_source_wrap(source, NULL);
}

static PyObject *source_tar(PyObject *module, PyObject *args)
{
    struct leat_tar tar = {.keys = 1};
    struct leat_tar_field fields[LEAT_MAX_FIELDS] = {{0}};
    PyObject *shards, *list;
    unsigned long long cache_bytes;
    if (!PyArg_ParseTuple(args, "O!O!zKzipi", &PyTuple_Type, &shards, &PyTuple_Type, &list,
                          &tar.cache, &cache_bytes, &tar.endpoint, &tar.timeout_s,
                          &tar.skip_missing, &tar.threads))
        return NULL;
    Py_ssize_t count = PyTuple_Size(list);
    if (count > LEAT_MAX_FIELDS)
        return PyErr_Format(PyExc_ValueError, "%zd fields are more than %d", count,
                            LEAT_MAX_FIELDS);
    for (Py_ssize_t i = 0; i < count; i++)
        if (parse_field(PyTuple_GetItem(list, i), &fields[i]) < 0)
            return NULL;
    const char **texts = texts_of(shards);
    if (!texts)
        return NULL;
    tar.shards = texts;
    tar.shard_count = (uint32_t)PyTuple_Size(shards);
    tar.fields = fields;
    tar.field_count = (uint32_t)count;
    tar.cache_bytes = cache_bytes;
    PyObject *source = open_tar(tar);
    free(texts);
    return source;
}

static PyMethodDef functions[] = {
    {"source_tar", source_tar, METH_VARARGS,
     "source_tar((shard, ...), ((extension, codec), ...), cache or None, cache bytes, endpoint or "
     "None, timeout, skip missing, threads) -> Source."},
    {NULL,         NULL,       0,            NULL      },
};

int engine_tar_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
