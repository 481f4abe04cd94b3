/* hook_queue.c: a batch on its way from the worker to the training loop.
 *
 *     worker, feeder thread          main process, or its pin thread        training loop
 *     dumps(batch)  PICKLE  ──pipe──► loads(bytes)  UNPICKLE ► pin  PIN ───► next()  FETCH, READY
 *
 * dumps and loads replace those of ForkingPickler in multiprocessing.queues only. Every queue of
 * the process uses them, so a call counts only in the feeder thread of this worker's data queue,
 * inside next(), or in a thread that pins. Messages other than batches (end of a stream, exception,
 * start of an epoch) are recognised by their type and not counted.
 *
 * PICKLE includes moving tensors to shared memory; UNPICKLE includes fetching their descriptors
 * from the worker. Neither includes the wait for the batch. next() itself is in hook_next.c.
 */
#include "record_module.h"

/* Set once by the hooks; all owned. */
static PyObject *dumps_original, *loads_original, *pin_original;
static PyObject *not_batches; /* a tuple of the types that are sent instead of a batch */
static PyObject *data_queue;  /* of this worker */
static PyObject *no_arguments, *str_leat, *str_qsize, *str_task_info;

/* Whether a message is (number, batch). */
static int is_batch(PyObject *message)
{
    if (!PyTuple_CheckExact(message) || PyTuple_Size(message) != 2 ||
        !PyLong_Check(PyTuple_GetItem(message, 0)))
        return 0;
    PyObject *type = (PyObject *)Py_TYPE(PyTuple_GetItem(message, 1));
    for (Py_ssize_t i = 0; i < PyTuple_Size(not_batches); i++)
        if (PyTuple_GetItem(not_batches, i) == type)
            return 0;
    return 1;
}

/* The size of a buffer; 0 if it has no length. */
static uint64_t length_of(PyObject *buffer)
{
    Py_ssize_t bytes = PyObject_Size(buffer);
    if (bytes < 0)
        PyErr_Clear();
    return bytes < 0 ? 0 : (uint64_t)bytes;
}

static int is_feeder(void)
{
    PyObject *thread = PyObject_GetAttrString(data_queue, "_thread");
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    unsigned long number = ident && PyLong_Check(ident) ? PyLong_AsUnsignedLong(ident) : 0;
    Py_XDECREF(thread);
    Py_XDECREF(ident);
    if (PyErr_Occurred())
        PyErr_Clear();
    return number == PyThread_get_thread_ident() ? 1 : -1;
}

/* is_batch() of a message to the data queue. torch sends only pairs there, and each batch was made
 * by a fetcher. Otherwise the hooks do not know this torch. */
static int sends_batch(PyObject *message)
{
    int batch = is_batch(message);
    if (!PyTuple_CheckExact(message) || PyTuple_Size(message) != 2)
        report_missing(MISSING_MESSAGES);
    else if (batch && !worker_times_fetcher())
        report_missing(MISSING_FETCHER);
    return batch;
}

static PyObject *py_dumps(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct traced_thread *thread = traced_thread();
    if (data_queue && !thread->feeds)
        thread->feeds = is_feeder();
    if (!data_queue || thread->feeds < 0 || PyTuple_Size(args) != 1 ||
        !sends_batch(PyTuple_GetItem(args, 0)))
        return PyObject_Call(dumps_original, args, kwargs);
    uint64_t t0 = leat_now_ns();
    PyObject *bytes = PyObject_Call(dumps_original, args, kwargs);
    if (bytes)
        leat_part(worker_loader_id(), LEAT_PART_PICKLE, leat_now_ns() - t0, length_of(bytes));
    return bytes;
}

/* The loader whose batches this thread reads or pins now. */
static int64_t loader_of_thread(struct traced_thread *thread)
{
    if (!thread->pin_queue)
        return thread->open & 1u << LEAT_REC_FETCH && !thread->in_fetcher ? thread->fetch_loader
                                                                          : LOADER_UNKNOWN;
    PyObject *number = PyObject_GetAttr(thread->pin_queue, str_leat);
    uint64_t loader = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    if (!PyErr_Occurred())
        return (int64_t)loader;
    PyErr_Clear();
    return LOADER_UNKNOWN;
}

static PyObject *py_loads(PyObject *self, PyObject *args, PyObject *kwargs)
{
    int64_t loader = loader_of_thread(traced_thread());
    if (loader < 0)
        return PyObject_Call(loads_original, args, kwargs);
    uint64_t t0 = leat_now_ns();
    PyObject *message = PyObject_Call(loads_original, args, kwargs);
    uint64_t t1 = leat_now_ns();
    if (message && is_batch(message) && PyTuple_Size(args))
        leat_part((uint32_t)loader, LEAT_PART_UNPICKLE, t1 - t0,
                  length_of(PyTuple_GetItem(args, 0)));
    return message;
}

static PyObject *py_pin(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct traced_thread *thread = traced_thread();
    int64_t loader = thread->in_pin_memory ? LOADER_UNKNOWN : loader_of_thread(thread);
    PyObject *data = PyTuple_Size(args) ? PyTuple_GetItem(args, 0) : NULL;
    if (loader < 0 || !data || data == Py_None)
        return PyObject_Call(pin_original, args, kwargs);
    for (Py_ssize_t i = 0; i < PyTuple_Size(not_batches); i++)
        if (PyTuple_GetItem(not_batches, i) == (PyObject *)Py_TYPE(data))
            return PyObject_Call(pin_original, args, kwargs);
    thread->in_pin_memory = 1;
    uint64_t t0 = leat_now_ns();
    PyObject *pinned = PyObject_Call(pin_original, args, kwargs);
    thread->in_pin_memory = 0;
    if (pinned)
        leat_part((uint32_t)loader, LEAT_PART_PIN, leat_now_ns() - t0, 0);
    return pinned;
}

/* How many batches that came out of order are kept in the iterator. A task is (worker,) before its
 * batch has come, (worker, batch) then. -1 if one is neither. */
static int64_t count_kept(PyObject *tasks)
{
    int64_t kept = 0;
    Py_ssize_t at = 0;
    PyObject *key, *value;
    if (!PyDict_Check(tasks))
        return -1;
    while (PyDict_Next(tasks, &at, &key, &value)) {
        Py_ssize_t size = PyTuple_CheckExact(value) ? PyTuple_Size(value) : 0;
        if (size != 1 && size != 2)
            return -1;
        kept += size == 2;
    }
    return kept;
}

int64_t ready_batches(PyObject *iterator, PyObject *queue)
{
    PyObject *method = PyObject_GetAttr(queue, str_qsize);
    PyObject *size = method ? PyObject_Call(method, no_arguments, NULL) : NULL;
    PyObject *tasks = size ? PyObject_GetAttr(iterator, str_task_info) : NULL;
    int64_t waiting = tasks ? PyLong_AsLongLong(size) : -1;
    int64_t kept = tasks ? count_kept(tasks) : -1;
    Py_XDECREF(method);
    Py_XDECREF(size);
    Py_XDECREF(tasks);
    if (PyErr_Occurred())
        PyErr_Clear();
    if (waiting >= 0 && kept >= 0)
        return waiting + kept;
    report_missing(MISSING_TASKS);
    return -1;
}

static PyObject *set_queue_functions(PyObject *self, PyObject *args)
{
    PyObject *given[4];
    if (!PyArg_ParseTuple(args, "OOOO!", &given[0], &given[1], &given[2], &PyTuple_Type, &given[3]))
        return NULL;
    keep_reference(&dumps_original, given[0]);
    keep_reference(&loads_original, given[1]);
    keep_reference(&pin_original, given[2]);
    keep_reference(&not_batches, given[3]);
    Py_RETURN_NONE;
}

static PyObject *set_data_queue(PyObject *self, PyObject *queue)
{
    keep_reference(&data_queue, queue);
    Py_RETURN_NONE;
}

static PyObject *set_pin_queue(PyObject *self, PyObject *queue)
{
    struct traced_thread *thread = traced_thread();
    if (queue == Py_None)
        Py_CLEAR(thread->pin_queue);
    else
        keep_reference(&thread->pin_queue, queue);
    Py_RETURN_NONE;
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void)) function

static PyMethodDef queue_methods[] = {
    {"dumps",               WITH_KEYWORDS(py_dumps), METH_VARARGS | METH_KEYWORDS, "ForkingPickler.dumps."},
    {"loads",               WITH_KEYWORDS(py_loads), METH_VARARGS | METH_KEYWORDS, "ForkingPickler.loads."},
    {"pin_memory",          WITH_KEYWORDS(py_pin),   METH_VARARGS | METH_KEYWORDS, "torch's pin_memory."  },
    {"set_queue_functions", set_queue_functions,     METH_VARARGS,
     "set_queue_functions(dumps, loads, pin_memory, types that are no batch): what they call."            },
    {"set_data_queue",      set_data_queue,          METH_O,
     "set_data_queue(queue): the data queue of this worker."                                              },
    {"set_pin_queue",       set_pin_queue,           METH_O,
     "set_pin_queue(queue or None): this thread pins what it takes from it; its loader is "
     "queue._leat."                                                                                       },
    {NULL,                  NULL,                    0,                            NULL                   },
};

int hook_queue_add(PyObject *module)
{
    no_arguments = PyTuple_New(0);
    str_leat = PyUnicode_InternFromString("_leat");
    str_qsize = PyUnicode_InternFromString("qsize");
    str_task_info = PyUnicode_InternFromString("_task_info");
    if (!no_arguments || !str_leat || !str_qsize || !str_task_info)
        return -1;
    return PyModule_AddFunctions(module, queue_methods);
}
