/* hook_optimizer.c: backward and optimizer steps.
 *
 * hooks/training.py installs these functions and handles the rare cases: closures and nested steps.
 */
#include "record_module.h"

#include "record/probe_abi.h"

#include <stddef.h>
#include <structmember.h>

static int backwards; /* open in all threads */
static int trained;   /* there was a backward in this process */

/* When this rank had all gradients of the open backward and DistributedDataParallel began to wait
 * for the other ranks; 0: not yet, or there is no DistributedDataParallel. */
static uint64_t reduction_ns;
#define REDUCTION_MIN_NS 20000 /* shorter: nothing was waited for */

/* Set once by the hooks; all owned. */
static PyObject *begin_rare, *number_of, *is_nested;
static PyObject *str_leat;
static PyObject *backward_type;

/* Replaces torch.autograd.backward. functools.wraps() fills its `dict`. */
struct backward {
    PyObject_HEAD PyObject *original, *dict; /* owned */
    enum leat_record_kind kind;
};

static PyObject *backward_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *original;
    int kind = LEAT_REC_BACKWARD;
    if (!PyArg_ParseTuple(args, "O|i", &original, &kind))
        return NULL;
    if (kind < 0 || kind >= LEAT_REC_KINDS)
        return PyErr_Format(PyExc_ValueError, "there is no kind %d", kind);
    struct backward *b = (struct backward *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!b)
        return NULL;
    b->kind = (enum leat_record_kind)kind;
    keep_reference(&b->original, original);
    return (PyObject *)b;
}

static int backward_traverse(struct backward *b, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(b));
    Py_VISIT(b->original);
    Py_VISIT(b->dict);
    return 0;
}

static int backward_clear(struct backward *b)
{
    Py_CLEAR(b->original);
    Py_CLEAR(b->dict);
    return 0;
}

static void backward_dealloc(struct backward *b)
{
    PyTypeObject *type = Py_TYPE(b);
    PyObject_GC_UnTrack(b);
    backward_clear(b);
    PyObject_GC_Del(b);
    Py_DECREF(type);
}

static void record_reduction(uint64_t t1)
{
    if (t1 >= reduction_ns + REDUCTION_MIN_NS)
        leat_record(LEAT_REC_SYNC, 0, leat_recorder_name("gradient reduction"), 0, reduction_ns,
                    t1);
    reduction_ns = 0;
}

static int backward_begins(struct backward *b, struct traced_thread *thread)
{
    if (span_begin(thread, b->kind) <= 0)
        return 0;
    backwards++;
    trained = 1;
    leat_gpu_phase(LEAT_CLOCK_BACKWARD);
    return 1;
}

static PyObject *backward_ends(struct backward *b, struct traced_thread *thread, PyObject *result)
{
    uint64_t t1 = leat_now_ns();
    backwards--;
    if (reduction_ns)
        record_reduction(t1);
    leat_gpu_phase(LEAT_CLOCK_OTHER);
    span_end(thread, b->kind, result ? 0 : LEAT_REC_ERROR, 0, 0, t1);
    return result;
}

static PyObject *backward_call(struct backward *b, PyObject *args, PyObject *kwargs)
{
    struct traced_thread *thread = traced_thread();
    if (!backward_begins(b, thread))
        return PyObject_Call(b->original, args, kwargs);
    return backward_ends(b, thread, PyObject_Call(b->original, args, kwargs));
}

static PyObject *backward_dict(struct backward *b, void *unused)
{
    if (!b->dict && !(b->dict = PyDict_New()))
        return NULL;
    Py_INCREF(b->dict);
    return b->dict;
}

/* Pickled and copied by its name, as a function is. */
static PyObject *backward_reduce(struct backward *b, PyObject *unused)
{
    return PyObject_GetAttrString((PyObject *)b, "__qualname__");
}

static PyMethodDef backward_methods[] = {
    {"__reduce__", (PyCFunction)backward_reduce, METH_NOARGS, NULL},
    {NULL,         NULL,                         0,           NULL},
};

static PyGetSetDef backward_getset[] = {
    {"__dict__", (getter)backward_dict, NULL, NULL, NULL},
    {NULL,       NULL,                  NULL, NULL, NULL},
};

static PyMemberDef backward_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(struct backward, dict), READONLY,            NULL},
    {NULL,                0,                       0,                               0,             NULL},
};

static PyType_Slot backward_slots[] = {
    {Py_tp_new,      backward_new                           },
    {Py_tp_dealloc,  backward_dealloc                       },
    {Py_tp_traverse, backward_traverse                      },
    {Py_tp_clear,    backward_clear                         },
    {Py_tp_call,     backward_call                          },
    {Py_tp_members,  backward_members                       },
    {Py_tp_getset,   backward_getset                        },
    {Py_tp_methods,  backward_methods                       },
    {Py_tp_doc,      "Backward(original[, kind]), recorded."},
    {0,              NULL                                   },
};

static PyType_Spec backward_spec = {
    .name = "leat._record.Backward",
    .basicsize = sizeof(struct backward),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = backward_slots,
};

/* The usual step: one argument, no closure, and no other step is open. */
static PyObject *begin_step(PyObject *self, PyObject *given)
{
    struct traced_thread *thread = traced_thread();
    PyObject *optimizer, *args, *kwargs;
    if (!PyArg_ParseTuple(given, "OOO", &optimizer, &args, &kwargs))
        return NULL;
    if (!PyTuple_Check(args) || PyTuple_Size(args) != 1 || !PyDict_Check(kwargs) ||
        PyDict_Size(kwargs) || thread->open & 1u << LEAT_REC_OPTIMIZER)
        return PyObject_Call(begin_rare, given, NULL);
    span_begin(thread, LEAT_REC_OPTIMIZER);
    leat_gpu_phase(LEAT_CLOCK_OPTIMIZER);
    Py_RETURN_NONE;
}

static PyObject *make_number(PyObject *optimizer)
{
    PyErr_Clear();
    PyObject *number = PyObject_CallFunctionObjArgs(number_of, optimizer, NULL);
    if (!number)
        PyErr_Clear();
    return number;
}

/* A number for each optimizer, kept in its attribute `_leat`. */
static uint64_t read_number(PyObject *optimizer)
{
    PyObject *number = PyObject_GetAttr(optimizer, str_leat);
    if (!number)
        number = make_number(optimizer);
    uint64_t value = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return value;
}

static unsigned nested_flag(void)
{
    PyObject *nested = PyObject_CallFunctionObjArgs(is_nested, NULL);
    if (!nested)
        PyErr_Clear();
    Py_XDECREF(nested);
    return nested == Py_True ? LEAT_REC_NESTED : 0;
}

static PyObject *end_step(PyObject *self, PyObject *given)
{
    uint64_t t1 = leat_now_ns();
    PyObject *optimizer, *args, *kwargs;
    if (!PyArg_ParseTuple(given, "OOO", &optimizer, &args, &kwargs))
        return NULL;
    unsigned flags = backwards ? nested_flag() : 0;
    uint64_t number = read_number(optimizer);
    span_end(traced_thread(), LEAT_REC_OPTIMIZER, flags, (uint32_t)number, 0, t1);
    leat_gpu_phase(LEAT_CLOCK_OTHER);
    tick_if_due(t1);
    Py_RETURN_NONE;
}

/* A step begins while another seems to be open. `frames` calls of step() are on this thread's call
 * stack. An open step that is not on it has failed, and is dropped. */
static PyObject *correct_steps(PyObject *self, PyObject *frames)
{
    struct traced_thread *thread = traced_thread();
    long steps = PyLong_AsLong(frames);
    if (steps == -1 && PyErr_Occurred())
        return NULL;
    steps += thread->scalers;
    if (steps > 1) {
        thread->steps = (int)steps;
    } else {
        span_drop(thread, LEAT_REC_OPTIMIZER);
        span_begin(thread, LEAT_REC_OPTIMIZER);
    }
    Py_RETURN_NONE;
}

/* GradScaler.step() is an optimizer step, also when it skips the optimizer's. */
static PyObject *begin_scaler(PyObject *self, PyObject *unused)
{
    struct traced_thread *thread = traced_thread();
    if (!span_begin(thread, LEAT_REC_OPTIMIZER) && !thread->scalers) {
        span_drop(thread, LEAT_REC_OPTIMIZER); /* a failed step was still open */
        span_begin(thread, LEAT_REC_OPTIMIZER);
    }
    thread->scalers++;
    Py_RETURN_NONE;
}

static PyObject *end_scaler(PyObject *self, PyObject *args)
{
    uint64_t t1 = leat_now_ns();
    struct traced_thread *thread = traced_thread();
    unsigned flags, number;
    if (!PyArg_ParseTuple(args, "II", &flags, &number))
        return NULL;
    thread->steps = thread->scalers--; /* the steps inside have ended or failed */
    span_end(thread, LEAT_REC_OPTIMIZER, flags, number, 0, t1);
    tick_if_due(t1);
    Py_RETURN_NONE;
}

/* Called by autograd at the end of a backward, in any thread. */
static PyObject *gradients_ready(PyObject *self, PyObject *unused)
{
    if (backwards && !reduction_ns)
        reduction_ns = leat_now_ns();
    Py_RETURN_NONE;
}

static PyObject *set_step_functions(PyObject *self, PyObject *args)
{
    PyObject *given[3];
    if (!PyArg_ParseTuple(args, "OOO", &given[0], &given[1], &given[2]))
        return NULL;
    keep_reference(&begin_rare, given[0]);
    keep_reference(&number_of, given[1]);
    keep_reference(&is_nested, given[2]);
    Py_RETURN_NONE;
}

int had_backward(void)
{
    return trained;
}

void optimizer_after_fork(void)
{
    backwards = trained = 0;
    reduction_ns = 0;
}

static PyMethodDef optimizer_methods[] = {
    {"begin_step",         begin_step,         METH_VARARGS, "begin_step(optimizer, args, kwargs) of a hook."   },
    {"end_step",           end_step,           METH_VARARGS, "end_step(optimizer, args, kwargs) of a hook."     },
    {"correct_steps",      correct_steps,      METH_O,       "correct_steps(calls of step() on the call stack)."},
    {"begin_scaler",       begin_scaler,       METH_NOARGS,  "begin_scaler(): GradScaler.step() begins."        },
    {"end_scaler",         end_scaler,         METH_VARARGS, "end_scaler(flags, optimizer)."                    },
    {"set_step_functions", set_step_functions, METH_VARARGS,
     "set_step_functions(begin_rare, number_of, is_nested)."                                                    },
    {"gradients_ready",    gradients_ready,    METH_NOARGS,
     "gradients_ready(): the gradients of this rank are there, those of others are waited for."                 },
    {NULL,                 NULL,               0,            NULL                                               },
};

int hook_optimizer_add(PyObject *module)
{
    str_leat = PyUnicode_InternFromString("_leat");
    backward_type = PyType_FromSpec(&backward_spec);
    if (!str_leat || !backward_type)
        return -1;
    Py_INCREF(backward_type);
    if (PyModule_AddObject(module, "Backward", backward_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, optimizer_methods);
}
