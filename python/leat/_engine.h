/* _engine.h: what the files that bind the loader (include/leat/loader.h) to Python share.
 *
 *     _engine_source.c   Source: where samples lie
 *     _engine.c          Engine: a loader over a source
 *     _engine_batch.c    a batch as DLPack capsules
 */
#ifndef LEAT_PYTHON_ENGINE_H
#define LEAT_PYTHON_ENGINE_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "leat/loader.h"

/* The types and constants, added to the module: 0, or -1 with an exception. */
int engine_add(PyObject *module);
int engine_source_add(PyObject *module);

/* The source inside a Source object, not referenced; NULL with a TypeError for anything else. */
struct leat_source *engine_source_of(PyObject *object);

/* A tuple of a "dltensor" capsule for each field of the batch. Each has a reference to the batch of
 * its own, which goes with the tensor made of it, by whatever thread. */
PyObject *engine_batch_capsules(struct leat_batch *batch, const struct leat_source *source);

/* The exception for a negative code: IndexError, MemoryError, OSError or ValueError. Returns NULL.
 */
void *engine_raise(int code, const struct leat_err *err);

#endif
