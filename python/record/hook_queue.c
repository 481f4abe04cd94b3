/* hook_queue.c: a batch on its way from the worker to the loop that asked for it.
 *
 *     worker, feeder thread          main process, or its pin thread          the loop
 *     dumps(batch)  PICKLE  ──pipe──► loads(bytes)  UNPICKLE ► pin  PIN ─────► next()  FETCH, READY
 *
 * dumps and loads take the place of ForkingPickler's in multiprocessing.queues alone. They see
 * every queue of the process, so they count by who calls: the thread that feeds the data queue of
 * this worker; a thread inside next(), or one that pins. What is no batch (the end of a stream, an
 * exception, the answer to a new epoch) is told by its type, and not counted.
 *
 * PICKLE has the move of tensors into shared memory in it, UNPICKLE that of their descriptors, for
 * which the worker's own thread must answer; neither the wait for the batch itself.
 *
 * The loop's end of it is hook_next.c.
 */
#include "record_module.h"

/* Set once by the hooks; all owned. */
static PyObject *dumps_original, *loads_original, *pin_original;
static PyObject *no_batch;   /* a tuple of types that travel in the place of a batch */
static PyObject *data_queue; /* of this worker */
static PyObject *no_arguments, *str_leat, *str_qsize, *str_task_info;

/* Whether what went through the queue is (number, batch). */
static int is_batch(PyObject *message)
{
    if (!PyTuple_CheckExact(message) || PyTuple_Size(message) != 2 ||
        !PyLong_Check(PyTuple_GetItem(message, 0)))
        return 0;
    PyObject *type = (PyObject *)Py_TYPE(PyTuple_GetItem(message, 1));
    for (Py_ssize_t i = 0; i < PyTuple_Size(no_batch); i++)
        if (PyTuple_GetItem(no_batch, i) == type)
            return 0;
    return 1;
}

/* The bytes of a buffer; 0 when it does not say. */
static uint64_t length_of(PyObject *buffer)
{
    Py_ssize_t bytes = PyObject_Size(buffer);
    if (bytes < 0)
        PyErr_Clear();
    return bytes < 0 ? 0 : (uint64_t)bytes;
}

static int ask_feeds(void)
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

/* is_batch() of what goes into the data queue. All that torch puts there is pairs, and a batch has
 * been made by a fetcher: if not, this is another torch than the hooks know. */
static int sends_batch(PyObject *message)
{
    int batch = is_batch(message);
    if (!PyTuple_CheckExact(message) || PyTuple_Size(message) != 2)
        core_missing(SIGNAL_PICKLE);
    else if (batch && !making_met_fetcher())
        core_missing(SIGNAL_FETCHER);
    return batch;
}

static PyObject *core_dumps(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct traced_thread *thread = traced_thread();
    if (data_queue && !thread->feeds)
        thread->feeds = ask_feeds();
    if (!data_queue || thread->feeds < 0 || PyTuple_Size(args) != 1 ||
        !sends_batch(PyTuple_GetItem(args, 0)))
        return PyObject_Call(dumps_original, args, kwargs);
    uint64_t t0 = leat_now_ns();
    PyObject *bytes = PyObject_Call(dumps_original, args, kwargs);
    if (bytes)
        leat_part(making_loader(), LEAT_PART_PICKLE, leat_now_ns() - t0, length_of(bytes));
    return bytes;
}

/* The loader for which this thread takes or pins batches now. */
static int64_t loader_served(struct traced_thread *thread)
{
    if (!thread->pin_queue)
        return thread->open & 1u << LEAT_REC_FETCH && !thread->in_fetcher ? thread->fetch_loader
                                                                          : LOADER_UNKNOWN;
    PyObject *mark = PyObject_GetAttr(thread->pin_queue, str_leat);
    uint64_t loader = mark ? PyLong_AsUnsignedLongLong(mark) : 0;
    Py_XDECREF(mark);
    if (!PyErr_Occurred())
        return (int64_t)loader;
    PyErr_Clear();
    return LOADER_UNKNOWN;
}

static PyObject *core_loads(PyObject *self, PyObject *args, PyObject *kwargs)
{
    int64_t loader = loader_served(traced_thread());
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

static PyObject *core_pin(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct traced_thread *thread = traced_thread();
    int64_t loader = thread->in_pin_memory ? LOADER_UNKNOWN : loader_served(thread);
    PyObject *data = PyTuple_Size(args) ? PyTuple_GetItem(args, 0) : NULL;
    if (loader < 0 || !data || data == Py_None)
        return PyObject_Call(pin_original, args, kwargs);
    for (Py_ssize_t i = 0; i < PyTuple_Size(no_batch); i++)
        if (PyTuple_GetItem(no_batch, i) == (PyObject *)Py_TYPE(data))
            return PyObject_Call(pin_original, args, kwargs);
    thread->in_pin_memory = 1;
    uint64_t t0 = leat_now_ns();
    PyObject *pinned = PyObject_Call(pin_original, args, kwargs);
    thread->in_pin_memory = 0;
    if (pinned)
        leat_part((uint32_t)loader, LEAT_PART_PIN, leat_now_ns() - t0, 0);
    return pinned;
}

/* How many of the batches that came out of order wait in the iterator: a task without its batch is
 * (worker,), with it (worker, batch). -1 when one is neither. */
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

int64_t handover_ready(PyObject *iterator, PyObject *queue)
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
    core_missing(SIGNAL_READY);
    return -1;
}

static PyObject *core_handover(PyObject *self, PyObject *args)
{
    PyObject *given[4];
    if (!PyArg_ParseTuple(args, "OOOO!", &given[0], &given[1], &given[2], &PyTuple_Type, &given[3]))
        return NULL;
    core_keep(&dumps_original, given[0]);
    core_keep(&loads_original, given[1]);
    core_keep(&pin_original, given[2]);
    core_keep(&no_batch, given[3]);
    Py_RETURN_NONE;
}

static PyObject *core_feeds(PyObject *self, PyObject *queue)
{
    core_keep(&data_queue, queue);
    Py_RETURN_NONE;
}

static PyObject *core_serves(PyObject *self, PyObject *queue)
{
    struct traced_thread *thread = traced_thread();
    if (queue == Py_None)
        Py_CLEAR(thread->pin_queue);
    else
        core_keep(&thread->pin_queue, queue);
    Py_RETURN_NONE;
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void)) function

static PyMethodDef handover_methods[] = {
    {"dumps",      WITH_KEYWORDS(core_dumps), METH_VARARGS | METH_KEYWORDS, "ForkingPickler.dumps."                       },
    {"loads",      WITH_KEYWORDS(core_loads), METH_VARARGS | METH_KEYWORDS, "ForkingPickler.loads."                       },
    {"pin_memory", WITH_KEYWORDS(core_pin),   METH_VARARGS | METH_KEYWORDS, "torch's pin_memory."                         },
    {"handover",   core_handover,             METH_VARARGS,
     "handover(dumps, loads, pin_memory, types that are no batch): what they call."                                       },
    {"feeds",      core_feeds,                METH_O,                       "feeds(queue): the data queue of this worker."},
    {"serves",     core_serves,               METH_O,
     "serves(queue or None): this thread pins what it takes from it; its loader is queue._leat."                          },
    {NULL,         NULL,                      0,                            NULL                                          },
};

int handover_add(PyObject *module)
{
    no_arguments = PyTuple_New(0);
    str_leat = PyUnicode_InternFromString("_leat");
    str_qsize = PyUnicode_InternFromString("qsize");
    str_task_info = PyUnicode_InternFromString("_task_info");
    if (!no_arguments || !str_leat || !str_qsize || !str_task_info)
        return -1;
    return PyModule_AddFunctions(module, handover_methods);
}
