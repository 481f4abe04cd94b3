/* hook_next.c: next() of an iterator, which runs in every step of a training.
 */
#include "record_module.h"

/* Set once by the hooks; all owned. */
static PyObject *next_original;
static PyObject *grad_enabled, *count_samples, *mark_of, *on_end;
static PyObject *str_leat, *mark_type;

/* What next() has to know of an iterator. */
struct mark {
    PyObject_HEAD PyObject
        *maker; /* owned: the data queue, or the Fetch of hook_fetcher.c, or None */
    uint64_t loader, iteration, size;
};

static PyObject *mark_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned long long loader, iteration, size;
    PyObject *maker;
    if (!PyArg_ParseTuple(args, "KKKO", &loader, &iteration, &size, &maker))
        return NULL;
    struct mark *mark = (struct mark *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!mark)
        return NULL;
    mark->loader = loader;
    mark->iteration = iteration;
    mark->size = size;
    core_keep(&mark->maker, maker);
    return (PyObject *)mark;
}

static int mark_traverse(struct mark *mark, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(mark));
    Py_VISIT(mark->maker);
    return 0;
}

static int mark_clear(struct mark *mark)
{
    Py_CLEAR(mark->maker);
    return 0;
}

static void mark_dealloc(struct mark *mark)
{
    PyTypeObject *type = Py_TYPE(mark);
    PyObject_GC_UnTrack(mark);
    mark_clear(mark);
    PyObject_GC_Del(mark);
    Py_DECREF(type);
}

static PyType_Slot mark_slots[] = {
    {Py_tp_new,      mark_new                                                },
    {Py_tp_dealloc,  mark_dealloc                                            },
    {Py_tp_traverse, mark_traverse                                           },
    {Py_tp_clear,    mark_clear                                              },
    {Py_tp_doc,      "Mark(loader, iteration << 32, batch size or 0, maker)."},
    {0,              NULL                                                    },
};

static PyType_Spec mark_spec = {
    .name = "leat._record.Mark",
    .basicsize = sizeof(struct mark),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = mark_slots,
};

static PyObject *ask_mark(PyObject *iterator)
{
    PyErr_Clear();
    return PyObject_CallFunctionObjArgs(mark_of, iterator, NULL);
}

/* The iterator's mark, owned; an iterator that did not come from DataLoader.__iter__ is given one.
 * NULL without an exception when it has none. */
static struct mark *find_mark(PyObject *iterator)
{
    PyObject *mark = PyObject_GetAttr(iterator, str_leat);
    if (!mark)
        mark = ask_mark(iterator);
    if (mark && (PyObject *)Py_TYPE(mark) == mark_type)
        return (struct mark *)mark;
    PyErr_Clear();
    Py_XDECREF(mark);
    return NULL;
}

/* How many samples a batch holds: what its fetcher has counted in this next(), or else what
 * samples() in hooks/loaders.py finds. */
static uint64_t count_of(PyObject *batch, const struct mark *mark)
{
    struct traced_thread *thread = traced_thread();
    if (thread->batch_samples > 0)
        return (uint64_t)thread->batch_samples & UINT32_MAX;
    PyObject *answer = PyObject_CallFunction(count_samples, "OK", batch,
                                             (unsigned long long)(mark ? mark->size : 0));
    uint64_t count = answer ? PyLong_AsUnsignedLongLong(answer) : 0;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return count & UINT32_MAX;
}

static void call_quietly(PyObject *callable, PyObject *args)
{
    PyObject *result = args ? PyObject_Call(callable, args, NULL) : NULL;
    if (!result)
        PyErr_Clear();
    Py_XDECREF(result);
}

static unsigned nograd_flag(void)
{
    PyObject *enabled = PyObject_CallObject(grad_enabled, NULL);
    if (!enabled)
        PyErr_Clear();
    Py_XDECREF(enabled);
    return enabled == Py_False ? LEAT_REC_NOGRAD : 0;
}

/* A next() that raised: the loader's iteration is over, by its end or by a failure. */
static void next_failed(struct mark *mark, unsigned flags, uint64_t t0, uint64_t t1)
{
    uint64_t loader = mark ? mark->loader : 0;
    PyObject *type, *error, *trace;
    flags |= PyErr_ExceptionMatches(PyExc_StopIteration) ? LEAT_REC_END : LEAT_REC_ERROR;
    PyErr_Fetch(&type, &error, &trace);
    leat_record(LEAT_REC_FETCH, flags, (uint32_t)loader, mark ? mark->iteration : 0, t0, t1);
    PyObject *args = Py_BuildValue("(K)", (unsigned long long)loader);
    call_quietly(on_end, args);
    Py_XDECREF(args);
    PyErr_Restore(type, error, trace);
}

static void next_came(struct mark *mark, unsigned flags, int64_t ready, PyObject *batch,
                      uint64_t t0, uint64_t t1)
{
    uint32_t loader = mark ? (uint32_t)mark->loader : 0;
    uint64_t arg = (mark ? mark->iteration : 0) | count_of(batch, mark);
    leat_record(LEAT_REC_FETCH, flags, loader, arg, t0, t1);
    if (ready >= 0)
        leat_part(loader, LEAT_PART_READY, (uint64_t)ready, 0);
    core_tick(t1);
}

/* In a run that trains, a batch asked for without gradients is an evaluation's. */
static enum leat_clock_phase clock_phase(unsigned flags)
{
    return flags & LEAT_REC_NOGRAD && train_seen() ? LEAT_CLOCK_SKIPPED : LEAT_CLOCK_INPUT;
}

static PyObject *call_next(PyObject *iterator)
{
    return PyObject_CallFunctionObjArgs(next_original, iterator, NULL);
}

static PyObject *fetch_next(PyObject *iterator, PyObject *unused)
{
    const uint32_t bit = 1u << LEAT_REC_FETCH;
    struct traced_thread *thread = traced_thread();
    if (thread->open & bit)
        return call_next(iterator);
    if (!thread->trains && first_training_span() < 0)
        PyErr_Clear();
    struct mark *mark = find_mark(iterator);
    int64_t ready = -1;
    if (mark && mark->maker != Py_None && !making_wake(mark->maker))
        ready = handover_ready(iterator, mark->maker);
    unsigned flags = nograd_flag();
    thread->open |= bit;
    thread->batch_samples = 0;
    thread->fetch_loader = mark ? (int64_t)mark->loader : LOADER_UNKNOWN;
    enum leat_clock_phase phase = clock_phase(flags);
    leat_clock_mark(phase);
    uint64_t t0 = leat_now_ns();
    PyObject *batch = call_next(iterator);
    uint64_t t1 = leat_now_ns();
    if (phase == LEAT_CLOCK_INPUT)
        leat_clock_mark(batch ? LEAT_CLOCK_FORWARD : LEAT_CLOCK_OTHER);
    thread->open &= ~bit;
    if (batch)
        next_came(mark, flags, ready, batch, t0, t1);
    else
        next_failed(mark, flags, t0, t1);
    Py_XDECREF(mark);
    return batch;
}

static PyObject *core_on_next(PyObject *self, PyObject *args)
{
    PyObject *given[5];
    if (!PyArg_ParseTuple(args, "OOOOO", &given[0], &given[1], &given[2], &given[3], &given[4]))
        return NULL;
    core_keep(&next_original, given[0]);
    core_keep(&grad_enabled, given[1]);
    core_keep(&count_samples, given[2]);
    core_keep(&mark_of, given[3]);
    core_keep(&on_end, given[4]);
    Py_RETURN_NONE;
}

static PyMethodDef next_method = {"__next__", fetch_next, METH_NOARGS, "The next batch, recorded."};

static PyObject *core_next_of(PyObject *self, PyObject *type)
{
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "next_of() takes a type");
    return PyDescr_NewMethod((PyTypeObject *)type, &next_method);
}

static PyMethodDef next_methods[] = {
    {"next_of", core_next_of, METH_O,       "next_of(type): a __next__ for it, recorded."},
    {"on_next", core_on_next, METH_VARARGS,
     "on_next(next, grad_enabled, count_samples, mark_of, on_end): what it calls."       },
    {NULL,      NULL,         0,            NULL                                         },
};

int next_add(PyObject *module)
{
    str_leat = PyUnicode_InternFromString("_leat");
    mark_type = PyType_FromSpec(&mark_spec);
    if (!str_leat || !mark_type)
        return -1;
    Py_INCREF(mark_type);
    if (PyModule_AddObject(module, "Mark", mark_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, next_methods);
}
