/* engine_module.h: what the files that bind the loader (include/leat/loader.h) to Python share.
 *
 *     engine_source.c   Source: where samples lie
 *     engine_hdf5.c     the one of HDF5 files
 *     engine_tar.c      the one of tar shards
 *     engine_lengths.c  those of samples of different length; plans of batches by length
 *     engine_values.c   those of LMDB files and of files in folders
 *     engine_module.c          Engine: a loader over a source
 *     engine_batch.c    a batch as Python objects: DLPack capsules, bytes
 */
#ifndef LEAT_PYTHON_ENGINE_H
#define LEAT_PYTHON_ENGINE_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "leat/loader.h"

/* The types and constants, added to the module: 0, or -1 with an exception. */
int engine_source_add(PyObject *module);
int engine_hdf5_add(PyObject *module);
int engine_tar_add(PyObject *module);
int engine_values_add(PyObject *module);
int engine_lengths_add(PyObject *module);

/* A Source of a source, whose reference it takes. It keeps the owner alive, which may be NULL. */
PyObject *engine_source_wrap(struct leat_source *source, PyObject *owner);

/* (kind, dtype, shape, variable), as data/values.py makes it: 0, or -1 with an exception. */
int engine_codec_of(PyObject *tuple, struct leat_codec *ret_codec);

/* The source inside a Source object, not referenced; NULL with a TypeError for anything else. */
struct leat_source *engine_source_of(PyObject *object);

/* A tuple with what each field of the batch is handed over as; see engine_batch.c. `layouts` are
 * of the fields; NULL: lists. */
PyObject *engine_batch_fields(struct leat_batch *batch, const struct leat_source *source,
                              const struct leat_layout *layouts);

/* The exception for a negative code: IndexError, MemoryError, OSError or ValueError. Returns NULL.
 */
void *engine_raise(int code, const struct leat_err *err);

#endif
