/* engine_hdf5.c: datasets of an HDF5 file (leat_source_hdf5) as a Source. */
#include "engine_module.h"

#define MOST_LIBRARIES 32

/* The strings of a tuple of bytes, which they live with; their count, or -1 with an exception. */
static int texts_of(PyObject *tuple, const char **texts, Py_ssize_t most)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count > most) {
        PyErr_Format(PyExc_ValueError, "%zd are more than %zd", count, most);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(texts[i] = PyBytes_AsString(PyTuple_GetItem(tuple, i))))
            return -1;
    return (int)count;
}

static PyObject *source_hdf5(PyObject *module, PyObject *args)
{
    const char *datasets[LEAT_MAX_FIELDS], *names[LEAT_MAX_FIELDS], *libraries[MOST_LIBRARIES];
    struct leat_hdf5 hdf5 = {.datasets = datasets, .names = names, .libraries = libraries};
    PyObject *datasets_tuple, *names_tuple, *libraries_tuple;
    unsigned long long cache_bytes;
    if (!PyArg_ParseTuple(args, "yO!O!O!K", &hdf5.path, &PyTuple_Type, &datasets_tuple,
                          &PyTuple_Type, &names_tuple, &PyTuple_Type, &libraries_tuple,
                          &cache_bytes))
        return NULL;
    int count = texts_of(datasets_tuple, datasets, LEAT_MAX_FIELDS);
    int named = count < 0 ? -1 : texts_of(names_tuple, names, LEAT_MAX_FIELDS);
    int places = named < 0 ? -1 : texts_of(libraries_tuple, libraries, MOST_LIBRARIES);
    if (places < 0)
        return NULL;
    if (named != count) {
        PyErr_SetString(PyExc_ValueError, "every dataset has one name");
        return NULL;
    }
    hdf5.count = (uint32_t)count;
    hdf5.libraries_count = (uint32_t)places;
    hdf5.cache_bytes = cache_bytes;
    struct leat_err err = {{0}};
    struct leat_source *source;
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_source_hdf5(&hdf5, &source, &err);
    Py_END_ALLOW_THREADS;
    return bad < 0 ? engine_raise(bad, &err) : engine_source_wrap(source, NULL);
}

static PyMethodDef functions[] = {
    {"source_hdf5", source_hdf5, METH_VARARGS,
     "source_hdf5(path, datasets, names, libraries, cache_bytes) -> Source."},
    {NULL,          NULL,        0,            NULL                         },
};

int engine_hdf5_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
