/* engine_hdf5.c: datasets of an HDF5 file (leat_source_hdf5) as a Source. */
#include "engine_module.h"

#include <string.h>

struct asked {
    struct leat_hdf5_dataset dataset[LEAT_MAX_FIELDS];
    struct leat_hdf5_filter filter[LEAT_MAX_FIELDS][LEAT_HDF5_MAX_FILTERS];
};

static int sizes_of(PyObject *tuple, int64_t *sizes, uint32_t *ret_count)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count > LEAT_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%zd dimensions are more than %d", count, LEAT_MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    *ret_count = (uint32_t)count;
    return PyErr_Occurred() ? -1 : 0;
}

/* ((kind, item_bytes), ...) */
static int filters_of(PyObject *tuple, struct leat_hdf5_filter *filters, uint32_t *ret_count)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count > LEAT_HDF5_MAX_FILTERS) {
        PyErr_Format(PyExc_ValueError, "%zd filters are more than %d", count,
                     LEAT_HDF5_MAX_FILTERS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "II", &filters[i].kind,
                              &filters[i].item_bytes))
            return -1;
    *ret_count = (uint32_t)count;
    return 0;
}

/* (name, field, dtype, swapped, shape, layout, offset, data, chunk, filters, fill). `data` is the
 * samples of a compact dataset, or an array of struct leat_hdf5_chunk. */
static int dataset_of(PyObject *tuple, struct leat_hdf5_dataset *d,
                      struct leat_hdf5_filter *filters)
{
    PyObject *shape, *chunk, *filters_tuple;
    const char *data, *fill;
    Py_ssize_t data_bytes, fill_bytes;
    unsigned long long offset;
    int dtype, layout;
    uint32_t chunk_dims;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a dataset is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "yyiiO!iKy#O!O!y#", &d->name, &d->field, &dtype, &d->swapped,
                          &PyTuple_Type, &shape, &layout, &offset, &data, &data_bytes,
                          &PyTuple_Type, &chunk, &PyTuple_Type, &filters_tuple, &fill,
                          &fill_bytes) ||
        sizes_of(shape, d->shape, &d->dims) < 0 || sizes_of(chunk, d->chunk, &chunk_dims) < 0 ||
        filters_of(filters_tuple, filters, &d->filters_count) < 0)
        return -1;
    d->dtype = (enum leat_dtype)dtype;
    d->layout = (enum leat_hdf5_layout)layout;
    d->offset = offset;
    d->filters = filters;
    d->fill = fill;
    if ((size_t)fill_bytes < leat_dtype_bytes(d->dtype) ||
        (layout == LEAT_HDF5_CHUNKED && chunk_dims != d->dims)) {
        PyErr_SetString(PyExc_ValueError, "fill value and chunk must fit the dataset");
        return -1;
    }
    if (layout == LEAT_HDF5_CHUNKED) {
        d->chunks = (const struct leat_hdf5_chunk *)data;
        d->chunks_count = (uint64_t)data_bytes / sizeof *d->chunks;
    } else if (layout == LEAT_HDF5_COMPACT) {
        uint64_t bytes = leat_dtype_bytes(d->dtype);
        for (uint32_t i = 0; i < d->dims; i++)
            if (__builtin_mul_overflow(bytes, (uint64_t)d->shape[i], &bytes))
                bytes = UINT64_MAX;
        if (bytes != (uint64_t)data_bytes) {
            PyErr_SetString(PyExc_ValueError, "the data of a compact dataset must fit its shape");
            return -1;
        }
        d->data = data;
    }
    return 0;
}

static PyObject *source_hdf5(PyObject *module, PyObject *args)
{
    struct leat_hdf5 hdf5 = {0};
    struct leat_err err = {{0}};
    struct leat_source *source;
    PyObject *datasets;
    unsigned long long cache_bytes;
    int failed = 0;
    if (!PyArg_ParseTuple(args, "yO!K", &hdf5.path, &PyTuple_Type, &datasets, &cache_bytes))
        return NULL;
    Py_ssize_t count = PyTuple_Size(datasets);
    if (count > LEAT_MAX_FIELDS)
        return PyErr_Format(PyExc_ValueError, "%zd datasets are more than %d", count,
                            LEAT_MAX_FIELDS);
    struct asked *asked = PyMem_Calloc(1, sizeof *asked);
    if (!asked)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && !failed; i++)
        failed = dataset_of(PyTuple_GetItem(datasets, i), &asked->dataset[i], asked->filter[i]);
    if (failed) {
        PyMem_Free(asked);
        return NULL;
    }
    hdf5.datasets = asked->dataset;
    hdf5.count = (uint32_t)count;
    hdf5.cache_bytes = cache_bytes;
    Py_BEGIN_ALLOW_THREADS;
    failed = leat_source_hdf5(&hdf5, &source, &err);
    Py_END_ALLOW_THREADS;
    PyMem_Free(asked);
    return failed < 0 ? engine_raise(failed, &err) : engine_source_wrap(source, NULL);
}

static PyMethodDef functions[] = {
    {"source_hdf5", source_hdf5, METH_VARARGS,
     "source_hdf5(path, datasets, cache_bytes) -> Source."},
    {NULL,          NULL,        0,            NULL       },
};

int engine_hdf5_add(PyObject *module)
{
    static const struct {
        const char *name;
        int value;
    } constants[] = {
        {"HDF5_COMPACT",    LEAT_HDF5_COMPACT   },
        {"HDF5_CONTIGUOUS", LEAT_HDF5_CONTIGUOUS},
        {"HDF5_CHUNKED",    LEAT_HDF5_CHUNKED   },
        {"HDF5_DEFLATE",    LEAT_HDF5_DEFLATE   },
        {"HDF5_SHUFFLE",    LEAT_HDF5_SHUFFLE   },
        {"HDF5_LZF",        LEAT_HDF5_LZF       },
        {"HDF5_FLETCHER32", LEAT_HDF5_FLETCHER32},
    };
    int bad = PyModule_AddFunctions(module, functions);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        bad |= PyModule_AddIntConstant(module, constants[i].name, constants[i].value);
    return bad;
}
