/* record_module.c: the recorder (include/leat/recorder.h) as a Python module.
 *
 * Here are arguments, the GIL and exceptions. The Python files in python/leat decide what is
 * recorded and when; src/record records it. Built against the limited API of Python 3.9, so that
 * one file serves every later Python.
 */
#include "record_module.h"

#include "record/probe_abi.h"
#include "record/recorder_calls.h"

#include <stdio.h>

static __thread struct traced_thread this_thread;

static PyObject *on_first_span; /* owned; called before the first span of training of each thread */
static PyObject
    *tick; /* owned; called after a span at `due_ns`, and when leat has stopped recording */
static PyObject *str_phases;
static uint64_t due_ns = UINT64_MAX;

struct traced_thread *traced_thread(void)
{
    return &this_thread;
}

static PyObject *py_open(PyObject *self, PyObject *unused)
{
    int result;
    Py_BEGIN_ALLOW_THREADS;
    result = leat_recorder_open();
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(result);
}

static PyObject *py_close(PyObject *self, PyObject *unused)
{
    call_sites_report();
    leat_recorder_close();
    Py_RETURN_NONE;
}

static PyObject *py_recording(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(leat_recording());
}

static PyObject *py_now_ns(PyObject *self, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(leat_now_ns());
}

static PyObject *py_record(PyObject *self, PyObject *args)
{
    Py_ssize_t count = PyTuple_Size(args);
    if (count < 5 || count > 6) {
        PyErr_SetString(PyExc_TypeError, "record(kind, flags, id, arg, t0[, t1]) takes 5 or 6");
        return NULL;
    }
    /* first, so that the span does not contain the work below */
    uint64_t t1 = count == 5 ? leat_now_ns() : PyLong_AsUnsignedLongLong(PyTuple_GetItem(args, 5));
    unsigned long kind = PyLong_AsUnsignedLong(PyTuple_GetItem(args, 0));
    unsigned long flags = PyLong_AsUnsignedLong(PyTuple_GetItem(args, 1));
    unsigned long id = PyLong_AsUnsignedLong(PyTuple_GetItem(args, 2));
    uint64_t arg = PyLong_AsUnsignedLongLong(PyTuple_GetItem(args, 3));
    uint64_t t0 = PyLong_AsUnsignedLongLong(PyTuple_GetItem(args, 4));
    if (PyErr_Occurred())
        return NULL;
    if (kind >= LEAT_REC_KINDS) {
        PyErr_Format(PyExc_ValueError, "record: there is no kind %lu", kind);
        return NULL;
    }
    if (kind != LEAT_REC_NONE) /* used to measure the cost of a hook; not recorded */
        leat_record((enum leat_record_kind)kind, (unsigned)flags, (uint32_t)id, arg, t0, t1);
    return PyBool_FromLong(leat_recording());
}

static int check_span(long span)
{
    if (span >= 0 && span < SPAN_KINDS)
        return (int)span;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "unknown kind of span: %ld", span);
    return -1;
}

static int span_of(PyObject *value)
{
    return check_span(PyLong_AsLong(value));
}

int first_training_span(void)
{
    this_thread.trains = 1;
    if (!on_first_span)
        return 0;
    PyObject *args = PyTuple_New(0);
    PyObject *result = args ? PyObject_Call(on_first_span, args, NULL) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

int span_begin(struct traced_thread *thread, int span)
{
    const uint32_t training = 1u << LEAT_REC_FETCH | 1u << LEAT_REC_ITER | 1u << LEAT_REC_BACKWARD |
                              1u << LEAT_REC_OPTIMIZER;
    if (span == LEAT_REC_OPTIMIZER)
        thread->steps++;
    if (thread->open & 1u << span)
        return 0;
    if (!thread->trains && 1u << span & training && first_training_span() < 0)
        PyErr_Clear();
    thread->open |= 1u << span;
    if (span == LEAT_REC_BACKWARD)
        leat_recorder_nest(1);
    if (span == LEAT_REC_FETCH)
        thread->fetch_loader = LOADER_UNKNOWN;
    thread->t0_ns[span] = leat_now_ns();
    return 1;
}

void span_end(struct traced_thread *thread, int span, unsigned flags, uint32_t id, uint64_t arg,
              uint64_t t1)
{
    if (!(thread->open & 1u << span) || (span == LEAT_REC_OPTIMIZER && --thread->steps > 0))
        return;
    thread->open &= ~(1u << span);
    int kind = span < LEAT_REC_KINDS ? span : LEAT_REC_NAMED;
    if (kind != LEAT_REC_NONE) /* used to measure the cost of a hook; not recorded */
        leat_record((enum leat_record_kind)kind, flags, id, arg, thread->t0_ns[span], t1);
    if (span == LEAT_REC_BACKWARD)
        leat_recorder_nest(-1);
}

void span_drop(struct traced_thread *thread, int span)
{
    thread->open &= ~(1u << span);
    if (span == LEAT_REC_OPTIMIZER)
        thread->steps = 0;
}

static void call_tick(void)
{
    PyObject *result = PyObject_CallFunctionObjArgs(tick, NULL);
    if (!result)
        PyErr_Clear();
    Py_XDECREF(result);
}

void tick_if_due(uint64_t now_ns)
{
    if (call_sites_pending())
        call_sites_report();
    if (tick && (now_ns >= due_ns || !leat_recording()))
        call_tick();
}

static PyObject *py_collective(PyObject *self, PyObject *begins)
{
    leat_gpu_phase(begins == Py_True ? LEAT_CLOCK_COLLECTIVE : LEAT_CLOCK_RESUMED);
    Py_RETURN_NONE;
}

static PyObject *begin(PyObject *self, PyObject *value)
{
    int span = span_of(value);
    return span < 0 ? NULL : PyBool_FromLong(span_begin(traced_thread(), span));
}

static PyObject *end(PyObject *self, PyObject *args)
{
    uint64_t t1 = leat_now_ns();
    int span;
    unsigned flags, id;
    unsigned long long arg;
    if (!PyArg_ParseTuple(args, "iIIK", &span, &flags, &id, &arg) || check_span(span) < 0)
        return NULL;
    span_end(traced_thread(), span, flags, id, arg, t1);
    tick_if_due(t1);
    Py_RETURN_NONE;
}

static PyObject *py_inside(PyObject *self, PyObject *value)
{
    int span = span_of(value);
    return span < 0 ? NULL : PyBool_FromLong(this_thread.open >> span & 1);
}

static PyObject *drop(PyObject *self, PyObject *value)
{
    int span = span_of(value);
    if (span < 0)
        return NULL;
    span_drop(traced_thread(), span);
    Py_RETURN_NONE;
}

/* The start times of this thread's open phase() blocks, the innermost last: a list in the dict
 * that Python keeps for each thread and frees with it. Borrowed; NULL without an exception when
 * there is none. */
static PyObject *phase_list(void)
{
    PyObject *dict = PyThreadState_GetDict();
    return dict ? PyDict_GetItemWithError(dict, str_phases) : NULL;
}

static PyObject *phase_begin(PyObject *self, PyObject *t0_ns)
{
    PyObject *list = phase_list();
    if (!list && !PyErr_Occurred()) {
        PyObject *dict = PyThreadState_GetDict(), *made = dict ? PyList_New(0) : NULL;
        if (made && PyDict_SetItem(dict, str_phases, made) == 0)
            list = made;
        Py_XDECREF(made); /* the dict holds it */
    }
    if (!list || PyList_Append(list, t0_ns) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *phase_end(PyObject *self, PyObject *unused)
{
    PyObject *list = phase_list();
    Py_ssize_t n = list ? PyList_Size(list) : 0;
    if (PyErr_Occurred())
        return NULL;
    if (n == 0)
        return PyLong_FromLong(0);
    PyObject *t0_ns = PyList_GetItem(list, n - 1);
    Py_INCREF(t0_ns);
    if (PyList_SetSlice(list, n - 1, n, NULL) < 0) {
        Py_DECREF(t0_ns);
        return NULL;
    }
    return t0_ns;
}

static PyObject *py_is_computing(PyObject *self, PyObject *unused)
{
    uint32_t blocked = 1u << LEAT_REC_FETCH | 1u << LEAT_REC_SYNC;
    return PyBool_FromLong(this_thread.trains && !(this_thread.open & blocked));
}

static PyObject *py_after_fork(PyObject *self, PyObject *unused)
{
    Py_XDECREF(this_thread.pin_queue);
    this_thread = (struct traced_thread){.fetch_loader = LOADER_UNKNOWN};
    if (phase_list())
        PyDict_DelItem(PyThreadState_GetDict(), str_phases);
    PyErr_Clear();
    fetcher_after_fork();
    optimizer_after_fork();
    Py_RETURN_NONE;
}

static PyObject *py_on_first_span(PyObject *self, PyObject *callable)
{
    keep_reference(&on_first_span, callable);
    Py_RETURN_NONE;
}

static PyObject *py_on_tick(PyObject *self, PyObject *callable)
{
    keep_reference(&tick, callable);
    Py_RETURN_NONE;
}

static PyObject *py_set_due(PyObject *self, PyObject *value)
{
    uint64_t ns = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred())
        return NULL;
    due_ns = ns;
    Py_RETURN_NONE;
}

static PyObject *py_nest(PyObject *self, PyObject *change)
{
    long value = PyLong_AsLong(change);
    if (value == -1 && PyErr_Occurred())
        return NULL;
    leat_recorder_nest((int)value);
    Py_RETURN_NONE;
}

static PyObject *py_name(PyObject *self, PyObject *args)
{
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    return PyLong_FromUnsignedLong(leat_recorder_name(name));
}

static PyObject *py_loader(PyObject *self, PyObject *args)
{
    struct leat_loader_info info = {0};
    const char *dataset, *where;
    long long length;
    int batch_size, num_workers, prefetch_factor, pin_memory, persistent_workers, iterable, own,
        engine_readable;
    if (!PyArg_ParseTuple(args, "Liiiiiiiiss", &length, &batch_size, &num_workers, &prefetch_factor,
                          &pin_memory, &persistent_workers, &iterable, &own, &engine_readable,
                          &dataset, &where))
        return NULL;
    info.dataset_length = length;
    info.batch_size = batch_size;
    info.num_workers = num_workers;
    info.prefetch_factor = prefetch_factor;
    info.pin_memory = pin_memory;
    info.persistent_workers = persistent_workers;
    info.iterable = iterable;
    info.own = own;
    info.engine_readable = engine_readable;
    snprintf(info.dataset, sizeof info.dataset, "%s", dataset);
    snprintf(info.where, sizeof info.where, "%s", where);
    return PyLong_FromUnsignedLong(leat_recorder_loader(&info));
}

static PyObject *py_role(PyObject *self, PyObject *args)
{
    int role, worker_id = -1;
    if (!PyArg_ParseTuple(args, "i|i", &role, &worker_id))
        return NULL;
    if (role < LEAT_ROLE_OTHER || role > LEAT_ROLE_WORKER) {
        PyErr_Format(PyExc_ValueError, "role: there is no role %d", role);
        return NULL;
    }
    leat_recorder_role((enum leat_role)role, worker_id);
    Py_RETURN_NONE;
}

static PyObject *py_rank(PyObject *self, PyObject *args)
{
    int rank, local_rank, world_size;
    if (!PyArg_ParseTuple(args, "iii", &rank, &local_rank, &world_size))
        return NULL;
    leat_recorder_rank(rank, local_rank, world_size);
    Py_RETURN_NONE;
}

static PyObject *py_signals(PyObject *self, PyObject *signals)
{
    unsigned long value = PyLong_AsUnsignedLong(signals);
    if (PyErr_Occurred())
        return NULL;
    leat_recorder_signals((unsigned)value);
    Py_RETURN_NONE;
}

static PyObject *py_cost(PyObject *self, PyObject *cost_ns)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(cost_ns);
    if (PyErr_Occurred())
        return NULL;
    leat_recorder_cost(value);
    Py_RETURN_NONE;
}

static PyObject *py_fact(PyObject *self, PyObject *args)
{
    const char *key, *value;
    if (!PyArg_ParseTuple(args, "ss", &key, &value))
        return NULL;
    leat_recorder_fact(key, value);
    Py_RETURN_NONE;
}

static PyMethodDef record_methods[] = {
    {"open",          py_open,          METH_NOARGS,  "open() -> 0, or a negative errno."                       },
    {"close",         py_close,         METH_NOARGS,  "close(): a clean end; later records are dropped."        },
    {"recording",     py_recording,     METH_NOARGS,  "recording() -> bool."                                    },
    {"now_ns",        py_now_ns,        METH_NOARGS,  "now_ns() -> CLOCK_MONOTONIC in nanoseconds."             },
    {"record",        py_record,        METH_VARARGS, "record(kind, flags, id, arg, t0[, t1=now]) -> bool."     },
    {"begin",         begin,            METH_O,       "begin(kind) -> False if inside such a span already."     },
    {"end",           end,              METH_VARARGS, "end(kind, flags, id, arg)."                              },
    {"collective",    py_collective,    METH_O,
     "collective(begins): of this thread, for the GPU's clock."                                                 },
    {"inside",        py_inside,        METH_O,       "inside(kind) -> whether this thread is in such a span."  },
    {"drop",          drop,             METH_O,       "drop(span): forgets the open span."                      },
    {"phase_begin",   phase_begin,      METH_O,       "phase_begin(t0_ns): of this thread."                     },
    {"phase_end",     phase_end,        METH_NOARGS,
     "phase_end() -> t0_ns of the innermost; 0: none is open."                                                  },
    {"is_computing",  py_is_computing,  METH_NOARGS,
     "is_computing() -> whether a wait of this thread counts."                                                  },
    {"after_fork",    py_after_fork,    METH_NOARGS,  "after_fork(): after a fork, in the child."               },
    {"on_first_span", py_on_first_span, METH_O,
     "on_first_span(callable): before a thread's first span."                                                   },
    {"on_tick",       py_on_tick,       METH_O,       "on_tick(callable): what due() is for."                   },
    {"due",           py_set_due,       METH_O,       "due(time_ns): when a span's end is to call on_tick's."   },
    {"nest",          py_nest,          METH_O,       "nest(+1 or -1): this thread enters or leaves a backward."},
    {"name",          py_name,          METH_VARARGS, "name(text) -> id."                                       },
    {"loader",        py_loader,        METH_VARARGS, "loader(the fields of leat_loader_info) -> id."           },
    {"role",          py_role,          METH_VARARGS, "role(role[, worker_id])."                                },
    {"rank",          py_rank,          METH_VARARGS, "rank(rank, local_rank, world_size)."                     },
    {"signals",       py_signals,       METH_O,       "signals(bits): adds to those already set."               },
    {"cost",          py_cost,          METH_O,       "cost(ns_per_record)."                                    },
    {"fact",          py_fact,          METH_VARARGS, "fact(key, value)."                                       },
    {NULL,            NULL,             0,            NULL                                                      },
};

static struct PyModuleDef record_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_record",
    .m_doc = "leat's recorder; see include/leat/recorder.h.",
    .m_size = -1,
    .m_methods = record_methods,
};

/* Kinds have the names of recorder.h's list; the others have a prefix. */
static int add_constants(PyObject *module)
{
    int bad = PyModule_AddStringConstant(module, "VERSION", LEAT_VERSION);
    PyObject *calls = PyCapsule_New((void *)&leat_recorder_calls, LEAT_RECORDER_CAPSULE, NULL);
    if (!calls || PyModule_AddObject(module, "calls", calls) < 0) {
        Py_XDECREF(calls);
        return -1;
    }
#define ADD(name, value) bad |= PyModule_AddIntConstant(module, name, value)
    ADD("NONE", LEAT_REC_NONE);
#define X(name, text) ADD(#name, LEAT_REC_##name);
    LEAT_RECORD_KINDS(X)
#undef X
    ADD("CHECKPOINT", SPAN_CHECKPOINT);
    ADD("CLIPPING", SPAN_CLIPPING);
    ADD("FLAG_END", LEAT_REC_END);
    ADD("FLAG_NOGRAD", LEAT_REC_NOGRAD);
    ADD("FLAG_ERROR", LEAT_REC_ERROR);
    ADD("FLAG_NESTED", LEAT_REC_NESTED);
    ADD("FLAG_RESERVED", LEAT_REC_RESERVED);
    ADD("FLAG_SPLIT", LEAT_REC_SPLIT);
    ADD("FLAG_RETRIES", LEAT_REC_RETRIES);
    ADD("SIGNAL_FETCH", LEAT_SIGNAL_FETCH);
    ADD("SIGNAL_BACKWARD", LEAT_SIGNAL_BACKWARD);
    ADD("SIGNAL_OPTIMIZER", LEAT_SIGNAL_OPTIMIZER);
    ADD("SIGNAL_SYNC", LEAT_SIGNAL_SYNC);
    ADD("SIGNAL_H2D", LEAT_SIGNAL_H2D);
    ADD("SIGNAL_WORKER", LEAT_SIGNAL_WORKER);
    ADD("SIGNAL_STEP", LEAT_SIGNAL_STEP);
#define X(name, text) ADD("PART_" #name, LEAT_PART_##name);
    LEAT_PARTS(X)
#undef X
    ADD("ROLE_OTHER", LEAT_ROLE_OTHER);
    ADD("ROLE_MAIN", LEAT_ROLE_MAIN);
    ADD("ROLE_WORKER", LEAT_ROLE_WORKER);
#undef ADD
    return bad;
}

PyMODINIT_FUNC PyInit__record(void); /* found by its name */

PyMODINIT_FUNC PyInit__record(void)
{
    PyObject *module = PyModule_Create(&record_module);
    str_phases = PyUnicode_InternFromString("leat.phases");
    if (module && (!str_phases || add_constants(module) < 0 || hook_fetcher_add(module) < 0 ||
                   hook_queue_add(module) < 0 || hook_next_add(module) < 0 ||
                   hook_optimizer_add(module) < 0 || line_profiler_add(module) < 0 ||
                   cuda_call_sites_add(module) < 0)) {
        Py_DECREF(module);
        module = NULL;
    }
    return module;
}
