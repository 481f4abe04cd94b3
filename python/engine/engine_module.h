/* engine_module.h: shared by the files that bind the loader (include/leat/loader.h) to Python.
 *
 *     engine_source.c   Source: where samples are read from
 *     engine_hdf5.c     sources of HDF5 files
 *     engine_tar.c      of tar shards
 *     engine_lengths.c  of samples of different length; plans of batches by length
 *     engine_values.c   of LMDB files and of files in folders
 *     engine_module.c   Engine: a loader over a source
 *     engine_batch.c    a batch as Python objects: DLPack capsules, bytes
 */
#ifndef LEAT_PYTHON_ENGINE_H
#define LEAT_PYTHON_ENGINE_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "leat/loader.h"

/* Add types, functions and constants to the module: 0, or -1 with an exception. */
int engine_source_add(PyObject *module);
int engine_hdf5_add(PyObject *module);
int engine_tar_add(PyObject *module);
int engine_values_add(PyObject *module);
int engine_lengths_add(PyObject *module);

/* A Source object; takes the reference. It keeps the owner alive, which may be NULL. */
PyObject *engine_source_wrap(struct leat_source *source, PyObject *owner);

/* (kind, dtype, shape, variable), as data/values.py makes it: 0, or -1 with an exception. */
int engine_codec_of(PyObject *tuple, struct leat_codec *ret_codec);

/* The source of a Source object, not referenced; NULL with a TypeError for anything else. */
struct leat_source *engine_source_of(PyObject *object);

/* A tuple with one object per field of the batch; see engine_batch.c. `layouts` are of the fields;
 * NULL: lists. */
PyObject *engine_batch_fields(struct leat_batch *batch, const struct leat_source *source,
                              const struct leat_layout *layouts);

/* The exception of a negative code: IndexError, MemoryError, OSError or ValueError. Returns NULL.
 */
void *engine_raise(int code, const struct leat_err *err);

#endif
