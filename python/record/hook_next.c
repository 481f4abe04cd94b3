/* hook_next.c: next() of an iterator, which runs in every step of a training.
 *
 * In a loop of its own all of this takes a fraction of a microsecond; between two steps, whose code
 * and data have displaced everything else from the caches, some ten times that. So it is written to
 * touch little: one function in C, one object of leat's own (the iterator's mark), and of torch
 * what the step has just used.
 */
#include "record_module.h"

/* Set once by the hooks; all owned. */
HOT_DATA static PyObject *next_original;
static PyObject *grad_enabled, *count_samples, *mark_of, *on_end, *tensor_type;
HOT_DATA static PyCFunction grad_function; /* of grad_enabled; NULL: another kind of callable */
HOT_DATA static PyObject *grad_self;       /* borrowed from it */
static PyObject *str_leat, *mark_type, *no_arguments, *str_shape;

/* What next() has to know of an iterator. */
struct mark {
    PyObject_HEAD PyObject
        *maker; /* owned: the data queue, or the Fetch of hook_fetcher.c, or None */
    uint64_t loader, iteration, size;
    uint64_t full; /* batches still to come that are known to hold `size` samples */
};

static PyObject *mark_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned long long loader, iteration, size, full = 0;
    PyObject *maker;
    if (!PyArg_ParseTuple(args, "KKKO|K", &loader, &iteration, &size, &maker, &full))
        return NULL;
    struct mark *mark = (struct mark *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!mark)
        return NULL;
    mark->loader = loader;
    mark->iteration = iteration;
    mark->size = size;
    mark->full = full;
    core_keep(&mark->maker, maker);
    return (PyObject *)mark;
}

/* The iterator that was asked last, and its mark: looking for an attribute takes more memory than
 * all the rest of next(). Both borrowed: the iterator owns its mark, so they go together. */
HOT_DATA static PyObject *last_iterator;
HOT_DATA static struct mark *last_mark;

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
    if (mark == last_mark)
        last_iterator = NULL;
    mark_clear(mark);
    PyObject_GC_Del(mark);
    Py_DECREF(type);
}

static PyType_Slot mark_slots[] = {
    {Py_tp_new,      mark_new                                                                },
    {Py_tp_dealloc,  mark_dealloc                                                            },
    {Py_tp_traverse, mark_traverse                                                           },
    {Py_tp_clear,    mark_clear                                                              },
    {Py_tp_doc,      "Mark(loader, iteration << 32, batch size or 0, maker[, full batches])."},
    {0,              NULL                                                                    },
};

static PyType_Spec mark_spec = {
    .name = "leat._record.Mark",
    .basicsize = sizeof(struct mark),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = mark_slots,
};

COLD static PyObject *ask_mark(PyObject *iterator)
{
    PyErr_Clear();
    return PyObject_CallFunctionObjArgs(mark_of, iterator, NULL);
}

/* The iterator's mark, owned; an iterator that did not come from DataLoader.__iter__ is given one.
 * NULL without an exception when it has none. */
COLD static struct mark *find_mark(PyObject *iterator)
{
    PyObject *mark = PyObject_GetAttr(iterator, str_leat);
    int owned_by_it = mark != NULL;
    if (!mark)
        mark = ask_mark(iterator);
    if (mark && (PyObject *)Py_TYPE(mark) == mark_type) {
        last_iterator = owned_by_it ? iterator : NULL;
        last_mark = (struct mark *)mark;
        return last_mark;
    }
    PyErr_Clear();
    Py_XDECREF(mark);
    return NULL;
}

HOT static struct mark *read_mark(PyObject *iterator)
{
    if (iterator != last_iterator)
        return find_mark(iterator);
    Py_INCREF(last_mark);
    return last_mark;
}

/* The common cases of samples() in hooks/loaders.py, without a call: a list or tuple whose first
 * element is a tensor of `expected` rows, or which has that length itself. 0: another case. */
static uint64_t quick_count(PyObject *batch, uint64_t expected)
{
    int list = PyList_CheckExact(batch);
    Py_ssize_t length = list                        ? PyList_Size(batch)
                        : PyTuple_CheckExact(batch) ? PyTuple_Size(batch)
                                                    : 0;
    if (length == 0 || expected == 0)
        return 0;
    if ((uint64_t)length == expected)
        return expected;
    PyObject *first = list ? PyList_GetItem(batch, 0) : PyTuple_GetItem(batch, 0);
    if ((PyObject *)Py_TYPE(first) != tensor_type)
        return 0;
    /* Its shape, and not its length, for which torch asks its dispatcher: five times as long. */
    PyObject *shape = PyObject_GetAttr(first, str_shape);
    PyObject *rows = shape && PyTuple_Check(shape) ? PyTuple_GetItem(shape, 0) : NULL;
    uint64_t count = rows ? core_unpack(rows) : 0;
    Py_XDECREF(shape);
    PyErr_Clear();
    return count == expected ? expected : 0;
}

/* A batch that is not known to be full. */
COLD static uint64_t look_at(PyObject *batch, uint64_t expected)
{
    struct here *here = core_here();
    uint64_t count = here->made > 0 ? (uint64_t)here->made : quick_count(batch, expected);
    if (count)
        return count & UINT32_MAX;
    PyObject *answer =
        PyObject_CallFunction(count_samples, "OK", batch, (unsigned long long)expected);
    count = answer ? core_unpack(answer) : 0;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return count & UINT32_MAX;
}

HOT static uint64_t count_of(PyObject *batch, struct mark *mark)
{
    if (!mark || !mark->full)
        return look_at(batch, mark ? mark->size : 0);
    mark->full--;
    return mark->size & UINT32_MAX;
}

static void call_quietly(PyObject *callable, PyObject *args)
{
    PyObject *result = args ? PyObject_Call(callable, args, NULL) : NULL;
    if (!result)
        PyErr_Clear();
    Py_XDECREF(result);
}

/* torch's is a function of C without arguments, which needs no interpreter between. */
HOT static unsigned ask_nograd(void)
{
    PyObject *enabled = grad_function ? grad_function(grad_self, NULL)
                                      : PyObject_Call(grad_enabled, no_arguments, NULL);
    if (!enabled)
        PyErr_Clear();
    Py_XDECREF(enabled);
    return enabled == Py_False ? LEAT_REC_NOGRAD : 0;
}

/* A next() that raised: the loader's iteration is over, by its end or by a failure. */
COLD static void next_failed(struct mark *mark, unsigned flags, uint64_t t0, uint64_t t1)
{
    uint64_t loader = mark ? mark->loader : 0;
    if (mark)
        mark->full =
            0; /* whoever goes on after a failure gets the others, and the last may be short */
    PyObject *type, *error, *trace;
    flags |= PyErr_ExceptionMatches(PyExc_StopIteration) ? LEAT_REC_END : LEAT_REC_ERROR;
    PyErr_Fetch(&type, &error, &trace);
    leat_record(LEAT_REC_FETCH, flags, (uint32_t)loader, mark ? mark->iteration : 0, t0, t1);
    PyObject *args = Py_BuildValue("(K)", (unsigned long long)loader);
    call_quietly(on_end, args);
    Py_XDECREF(args);
    PyErr_Restore(type, error, trace);
}

HOT static void next_came(struct mark *mark, unsigned flags, int64_t ready, PyObject *batch,
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

HOT static PyObject *call_next(PyObject *iterator)
{
    return core_vectorcall ? core_vectorcall(next_original, &iterator, 1, NULL)
                           : PyObject_CallFunctionObjArgs(next_original, iterator, NULL);
}

HOT static PyObject *fetch_next(PyObject *iterator, PyObject *unused)
{
    const uint32_t bit = 1u << LEAT_REC_FETCH;
    struct here *here = core_here();
    if (here->inside & bit)
        return call_next(iterator);
    if (!here->spoken && core_speak_first() < 0)
        PyErr_Clear();
    struct mark *mark = read_mark(iterator);
    int64_t ready = -1;
    if (mark && mark->maker != Py_None && !making_wake(mark->maker))
        ready = handover_ready(iterator, mark->maker);
    unsigned flags = ask_nograd();
    here->inside |= bit;
    here->made = 0;
    here->loader = mark ? (int64_t)mark->loader : LOADER_UNKNOWN;
    enum leat_clock_phase phase = clock_phase(flags);
    leat_clock_mark(phase);
    uint64_t t0 = leat_now_ns();
    PyObject *batch = call_next(iterator);
    uint64_t t1 = leat_now_ns();
    if (phase == LEAT_CLOCK_INPUT)
        leat_clock_mark(batch ? LEAT_CLOCK_FORWARD : LEAT_CLOCK_OTHER);
    here->inside &= ~bit;
    if (batch)
        next_came(mark, flags, ready, batch, t0, t1);
    else
        next_failed(mark, flags, t0, t1);
    Py_XDECREF(mark);
    return batch;
}

static void find_grad_function(void)
{
    int plain =
        PyCFunction_CheckExact(grad_enabled) && PyCFunction_GetFlags(grad_enabled) == METH_NOARGS;
    grad_function = plain ? PyCFunction_GetFunction(grad_enabled) : NULL;
    grad_self = plain ? PyCFunction_GetSelf(grad_enabled) : NULL;
}

static PyObject *core_on_next(PyObject *self, PyObject *args)
{
    PyObject *given[6];
    if (!PyArg_ParseTuple(args, "OOOOOO", &given[0], &given[1], &given[2], &given[3], &given[4],
                          &given[5]))
        return NULL;
    core_keep(&next_original, given[0]);
    core_keep(&grad_enabled, given[1]);
    find_grad_function();
    core_keep(&count_samples, given[2]);
    core_keep(&mark_of, given[3]);
    core_keep(&on_end, given[4]);
    core_keep(&tensor_type, given[5]);
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
    {"next_of", core_next_of, METH_O,       "next_of(type): a __next__ for it, recorded." },
    {"on_next", core_on_next, METH_VARARGS,
     "on_next(next, grad_enabled, count_samples, mark_of, on_end, Tensor): what it needs."},
    {NULL,      NULL,         0,            NULL                                          },
};

int next_add(PyObject *module)
{
    no_arguments = PyTuple_New(0);
    str_leat = PyUnicode_InternFromString("_leat");
    str_shape = PyUnicode_InternFromString("shape");
    mark_type = PyType_FromSpec(&mark_spec);
    if (!no_arguments || !str_leat || !str_shape || !mark_type)
        return -1;
    Py_INCREF(mark_type);
    if (PyModule_AddObject(module, "Mark", mark_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, next_methods);
}
