/* hook_next.c: next() of a loader's iterator.
 *
 * Each call is a FETCH record with the number of samples, and counts the batches that were ready.
 * An iterator carries an Iteration object as its attribute `_leat`.
 */
#include "record_module.h"

#include "record/probe_abi.h"

/* Set once by the hooks; all owned. */
static PyObject *next_original;
static PyObject *grad_enabled, *count_samples, *iteration_of, *on_end;
static PyObject *str_leat, *iteration_type;

/* What next() needs to know of an iterator. */
struct iteration {
    PyObject_HEAD PyObject
        *maker; /* owned: the iterator's data queue, its Fetch (hook_fetcher.c), or None */
    uint64_t loader, iteration, size;
};

static PyObject *iteration_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned long long loader, iteration, size;
    PyObject *maker;
    if (!PyArg_ParseTuple(args, "KKKO", &loader, &iteration, &size, &maker))
        return NULL;
    struct iteration *it =
        (struct iteration *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!it)
        return NULL;
    it->loader = loader;
    it->iteration = iteration;
    it->size = size;
    keep_reference(&it->maker, maker);
    return (PyObject *)it;
}

static int iteration_traverse(struct iteration *it, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(it));
    Py_VISIT(it->maker);
    return 0;
}

static int iteration_clear(struct iteration *it)
{
    Py_CLEAR(it->maker);
    return 0;
}

static void iteration_dealloc(struct iteration *it)
{
    PyTypeObject *type = Py_TYPE(it);
    PyObject_GC_UnTrack(it);
    iteration_clear(it);
    PyObject_GC_Del(it);
    Py_DECREF(type);
}

static PyType_Slot iteration_slots[] = {
    {Py_tp_new,      iteration_new                                                },
    {Py_tp_dealloc,  iteration_dealloc                                            },
    {Py_tp_traverse, iteration_traverse                                           },
    {Py_tp_clear,    iteration_clear                                              },
    {Py_tp_doc,      "Iteration(loader, iteration << 32, batch size or 0, maker)."},
    {0,              NULL                                                         },
};

static PyType_Spec iteration_spec = {
    .name = "leat._record.Iteration",
    .basicsize = sizeof(struct iteration),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = iteration_slots,
};

static PyObject *make_iteration(PyObject *iterator)
{
    PyErr_Clear();
    return PyObject_CallFunctionObjArgs(iteration_of, iterator, NULL);
}

/* The Iteration of an iterator, owned; made if DataLoader.__iter__ did not. NULL without an
 * exception if it cannot be made. */
static struct iteration *find_iteration(PyObject *iterator)
{
    PyObject *it = PyObject_GetAttr(iterator, str_leat);
    if (!it)
        it = make_iteration(iterator);
    if (it && (PyObject *)Py_TYPE(it) == iteration_type)
        return (struct iteration *)it;
    PyErr_Clear();
    Py_XDECREF(it);
    return NULL;
}

/* How many samples a batch has: what its fetcher counted in this next(), or else what samples()
 * of hooks/loaders.py finds. */
static uint64_t count_of(PyObject *batch, const struct iteration *it)
{
    struct traced_thread *thread = traced_thread();
    if (thread->batch_samples > 0)
        return (uint64_t)thread->batch_samples & UINT32_MAX;
    PyObject *answer =
        PyObject_CallFunction(count_samples, "OK", batch, (unsigned long long)(it ? it->size : 0));
    uint64_t count = answer ? PyLong_AsUnsignedLongLong(answer) : 0;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return count & UINT32_MAX;
}

static void call_ignoring_errors(PyObject *callable, PyObject *args)
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

/* next() raised: the iteration has ended, or failed. */
static void next_raised(struct iteration *it, unsigned flags, uint64_t t0, uint64_t t1)
{
    uint64_t loader = it ? it->loader : 0;
    PyObject *type, *error, *trace;
    flags |= PyErr_ExceptionMatches(PyExc_StopIteration) ? LEAT_REC_END : LEAT_REC_ERROR;
    PyErr_Fetch(&type, &error, &trace);
    leat_record(LEAT_REC_FETCH, flags, (uint32_t)loader, it ? it->iteration : 0, t0, t1);
    PyObject *args = Py_BuildValue("(K)", (unsigned long long)loader);
    call_ignoring_errors(on_end, args);
    Py_XDECREF(args);
    PyErr_Restore(type, error, trace);
}

static void next_returned(struct iteration *it, unsigned flags, int64_t ready, PyObject *batch,
                          uint64_t t0, uint64_t t1)
{
    uint32_t loader = it ? (uint32_t)it->loader : 0;
    uint64_t arg = (it ? it->iteration : 0) | count_of(batch, it);
    leat_record(LEAT_REC_FETCH, flags, loader, arg, t0, t1);
    if (ready >= 0)
        leat_ready(loader, (uint64_t)ready);
    tick_if_due(t1);
}

/* In a process that trains, a batch requested without gradients is for an evaluation. */
static enum leat_clock_phase clock_phase(unsigned flags)
{
    return flags & LEAT_REC_NOGRAD && had_backward() ? LEAT_CLOCK_SKIPPED : LEAT_CLOCK_INPUT;
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
    struct iteration *it = find_iteration(iterator);
    int64_t ready = -1;
    if (it && it->maker != Py_None && !fetcher_before_next(it->maker))
        ready = ready_batches(iterator, it->maker);
    unsigned flags = nograd_flag();
    thread->open |= bit;
    thread->batch_samples = 0;
    thread->fetch_loader = it ? (int64_t)it->loader : LOADER_UNKNOWN;
    enum leat_clock_phase phase = clock_phase(flags);
    leat_gpu_phase(phase);
    uint64_t t0 = leat_now_ns();
    PyObject *batch = call_next(iterator);
    uint64_t t1 = leat_now_ns();
    if (phase == LEAT_CLOCK_INPUT)
        leat_gpu_phase(batch ? LEAT_CLOCK_FORWARD : LEAT_CLOCK_OTHER);
    thread->open &= ~bit;
    if (batch)
        next_returned(it, flags, ready, batch, t0, t1);
    else
        next_raised(it, flags, t0, t1);
    Py_XDECREF(it);
    return batch;
}

static PyObject *set_next_functions(PyObject *self, PyObject *args)
{
    PyObject *given[5];
    if (!PyArg_ParseTuple(args, "OOOOO", &given[0], &given[1], &given[2], &given[3], &given[4]))
        return NULL;
    keep_reference(&next_original, given[0]);
    keep_reference(&grad_enabled, given[1]);
    keep_reference(&count_samples, given[2]);
    keep_reference(&iteration_of, given[3]);
    keep_reference(&on_end, given[4]);
    Py_RETURN_NONE;
}

static PyMethodDef next_method = {"__next__", fetch_next, METH_NOARGS, "The next batch, recorded."};

static PyObject *make_next(PyObject *self, PyObject *type)
{
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "next_of() takes a type");
    return PyDescr_NewMethod((PyTypeObject *)type, &next_method);
}

static PyMethodDef next_methods[] = {
    {"make_next",          make_next,          METH_O,       "make_next(type): a __next__ for it, recorded."},
    {"set_next_functions", set_next_functions, METH_VARARGS,
     "set_next_functions(next, grad_enabled, count_samples, iteration_of, on_end): what it calls."          },
    {NULL,                 NULL,               0,            NULL                                           },
};

int hook_next_add(PyObject *module)
{
    str_leat = PyUnicode_InternFromString("_leat");
    iteration_type = PyType_FromSpec(&iteration_spec);
    if (!str_leat || !iteration_type)
        return -1;
    Py_INCREF(iteration_type);
    if (PyModule_AddObject(module, "Iteration", iteration_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, next_methods);
}
