/* engine_module.c: the loader of include/leat/loader.h as a Python object.
 *
 * Arguments, GIL, exceptions. Two things are added for Python:
 *
 *   - One thread at a time may call a loader, but Python threads may all do so. So every call takes
 *     the engine's lock, without the GIL. next() releases both every SLICE_MS, so that stats() of
 *     another thread and Ctrl-C work while it waits.
 *   - A consumer may keep every batch. next() returns whether slots run out ("nearly_full"); then
 *     its caller copies the batch and releases the slot.
 */
#include "engine_module.h"

#include "load/loader_report.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 100 /* delay of Ctrl-C that a user does not notice */

struct engine_object {
    PyObject_HEAD;
    struct leat_loader *loader;                  /* owned; NULL once closed */
    PyObject *source;                            /* owned: the threads read its memory */
    pthread_mutex_t lock;                        /* one call at a time on `loader` */
    pid_t pid;                                   /* the process that the lock is of */
    struct leat_layout layouts[LEAT_MAX_FIELDS]; /* of the fields; set once */
};

void *engine_raise(int code, const struct leat_err *err)
{
    const char *text = err->text[0] ? err->text : "the loader failed";
    PyObject *kind = PyExc_ValueError;
    if (code == -ERANGE)
        kind = PyExc_IndexError;
    else if (code == -ENOMEM)
        kind = PyExc_MemoryError;
    else if (code == -LEAT_E_FULL || code == -ECANCELED)
        kind = PyExc_RuntimeError;
    PyObject *said = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    if (!said)
        return NULL;
    if (kind == PyExc_ValueError && -code < 4096 && code != -EINVAL) {
        PyObject *args = Py_BuildValue("(iO)", -code, said);
        if (args)
            PyErr_SetObject(PyExc_OSError, args);
        Py_XDECREF(args);
    } else {
        PyErr_SetObject(kind, said);
    }
    Py_DECREF(said);
    return NULL;
}

/* Takes the lock; 0, or -1 with an exception when the engine is closed. */
static int enter(struct engine_object *self)
{
    if (self->pid != getpid()) { /* after a fork the lock may be held by a thread of the parent */
        pthread_mutex_init(&self->lock, NULL);
        self->pid = getpid();
    }
    if (pthread_mutex_trylock(&self->lock)) {
        Py_BEGIN_ALLOW_THREADS;
        pthread_mutex_lock(&self->lock);
        Py_END_ALLOW_THREADS;
    }
    if (self->loader)
        return 0;
    pthread_mutex_unlock(&self->lock);
    PyErr_SetString(PyExc_RuntimeError, "the engine is closed");
    return -1;
}

static void leave(struct engine_object *self)
{
    pthread_mutex_unlock(&self->lock);
}

/* ((kind, multiple, most, value), ...), one for each field; None: lists. */
static int parse_layouts(PyObject *given, const struct leat_source *source,
                         struct leat_layout *ret_layouts)
{
    if (!given || given == Py_None)
        return 0;
    if (!PyTuple_Check(given) || PyTuple_Size(given) != (Py_ssize_t)leat_source_fields(source)) {
        PyErr_SetString(PyExc_ValueError, "there is one layout for each field");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(given); i++) {
        int kind;
        long long multiple, most;
        if (!PyArg_ParseTuple(PyTuple_GetItem(given, i), "iLLd", &kind, &multiple, &most,
                              &ret_layouts[i].value))
            return -1;
        ret_layouts[i].kind = (enum leat_layout_kind)kind;
        ret_layouts[i].multiple = multiple;
        ret_layouts[i].most = most;
    }
    return 0;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source",         "batch_size",   "drop_last",  "order",
                            "seed",           "rank",         "world_size", "threads",
                            "ahead",          "memory_bytes", "on_error",   "recorder_loader",
                            "layouts",        "autotune",     "device",     "device_bytes",
                            "current_stream", "resident",     NULL};
    struct leat_loader_options options = {0};
    PyObject *source_object, *layouts = NULL;
    int order = 0, on_error = 0;
    long long batch_size;
    unsigned long long seed = 0, memory_bytes = 0, device_bytes = 0, current_stream = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OL|iiKiiiiKiiOiiKKi", names, &source_object, &batch_size,
            &options.drop_last, &order, &seed, &options.rank, &options.world_size, &options.threads,
            &options.ahead, &memory_bytes, &on_error, &options.recorder_loader, &layouts,
            &options.autotune, &options.device, &device_bytes, &current_stream, &options.resident))
        return NULL;
    struct leat_source *source = engine_source_of(source_object);
    if (!source)
        return NULL;
    options.batch_size = batch_size;
    options.order = (enum leat_order)order;
    options.seed = seed;
    options.memory_bytes = memory_bytes;
    options.device_bytes = device_bytes;
    options.current_stream = (int (*)(int32_t, void **))(uintptr_t)current_stream;
    options.on_error = (enum leat_on_error)on_error;
    struct engine_object *self =
        (struct engine_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    self->pid = getpid();
    Py_INCREF(source_object);
    self->source = source_object;
    if (parse_layouts(layouts, source, self->layouts) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    options.layouts = self->layouts;
    struct leat_err err = {{0}};
    int bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = leat_loader_new(source, &options, &self->loader, &err);
    Py_END_ALLOW_THREADS;
    if (bad < 0) {
        self->loader = NULL;
        Py_DECREF(self);
        return engine_raise(bad, &err);
    }
    return (PyObject *)self;
}

static void engine_dealloc(PyObject *object)
{
    struct engine_object *self = (struct engine_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    struct leat_loader *loader = self->loader;
    if (loader) {
        Py_BEGIN_ALLOW_THREADS; /* its threads end first */
        leat_loader_close(loader);
        Py_END_ALLOW_THREADS;
    }
    Py_XDECREF(self->source);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *engine_close(PyObject *object, PyObject *unused)
{
    struct engine_object *self = (struct engine_object *)object;
    if (self->loader)
        leat_loader_stop(self->loader); /* next() of another thread returns */
    if (enter(self) < 0) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    struct leat_loader *loader = self->loader;
    self->loader = NULL;
    leave(self);
    Py_BEGIN_ALLOW_THREADS;
    leat_loader_close(loader);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* A call that may take long, without the GIL; then its result or its exception. */
#define CALL(self, result, err, call)                                                              \
    do {                                                                                           \
        if (enter(self) < 0)                                                                       \
            return NULL;                                                                           \
        Py_BEGIN_ALLOW_THREADS;                                                                    \
        result = (call);                                                                           \
        Py_END_ALLOW_THREADS;                                                                      \
        leave(self);                                                                               \
        if (result < 0)                                                                            \
            return engine_raise(result, &err);                                                     \
    } while (0)

/* A loader's seed is set when it is made. An epoch with another seed begins with a state: that of
 * the loader, moved to the first sample of the epoch. */
static int start_with_seed(struct leat_loader *loader, uint64_t epoch, uint64_t seed,
                           struct leat_err *err)
{
    struct leat_loader_state state;
    int bad = leat_loader_state(loader, &state, err);
    if (bad < 0)
        return bad;
    state.seed = seed;
    state.epoch = epoch;
    state.position = state.spare = 0;
    state.end = state.samples;
    return leat_loader_resume(loader, &state, err);
}

static PyObject *engine_start(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"epoch", "seed", NULL};
    struct engine_object *self = (struct engine_object *)object;
    struct leat_err err = {{0}};
    unsigned long long epoch, seed = 0;
    PyObject *given = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|O", names, &epoch, &given))
        return NULL;
    if (given != Py_None) {
        seed = PyLong_AsUnsignedLongLong(given);
        if (PyErr_Occurred())
            return NULL;
    }
    int result;
    CALL(self, result, err,
         given == Py_None ? leat_loader_start(self->loader, epoch, &err)
                          : start_with_seed(self->loader, epoch, seed, &err));
    Py_RETURN_NONE;
}

/* The state as the numbers of its fields, in their order: printable, JSON, and independent of the
 * byte order. */
#define STATE_FORMAT "(IIKKLLLLLLiiLLii)"

static PyObject *engine_state(PyObject *object, PyObject *unused)
{
    struct engine_object *self = (struct engine_object *)object;
    struct leat_loader_state s;
    struct leat_err err = {{0}};
    int result;
    CALL(self, result, err, leat_loader_state(self->loader, &s, &err));
    return Py_BuildValue(STATE_FORMAT, s.version, s.order, (unsigned long long)s.seed,
                         (unsigned long long)s.epoch, (long long)s.samples, (long long)s.block,
                         (long long)s.mix, (long long)s.window, (long long)s.position,
                         (long long)s.spare, s.rank, s.world_size, (long long)s.batch_size,
                         (long long)s.end, s.drop_last, s.skips);
}

static PyObject *engine_resume(PyObject *object, PyObject *args)
{
    struct engine_object *self = (struct engine_object *)object;
    struct leat_loader_state s = {0};
    unsigned long long seed, epoch;
    long long samples, block, mix, window, position, spare, batch_size, end;
    if (!PyArg_ParseTuple(args, STATE_FORMAT, &s.version, &s.order, &seed, &epoch, &samples, &block,
                          &mix, &window, &position, &spare, &s.rank, &s.world_size, &batch_size,
                          &end, &s.drop_last, &s.skips))
        return NULL;
    s.seed = seed;
    s.epoch = epoch;
    s.samples = samples;
    s.block = block;
    s.mix = mix;
    s.window = window;
    s.position = position;
    s.spare = spare;
    s.batch_size = batch_size;
    s.end = end;
    struct leat_err err = {{0}};
    int result;
    CALL(self, result, err, leat_loader_resume(self->loader, &s, &err));
    Py_RETURN_NONE;
}

/* submit(address, samples): int64 indices at that address. */
static PyObject *engine_submit(PyObject *object, PyObject *args)
{
    struct engine_object *self = (struct engine_object *)object;
    unsigned long long address;
    long long samples;
    struct leat_err err = {{0}};
    int result;
    if (!PyArg_ParseTuple(args, "KL", &address, &samples))
        return NULL;
    CALL(self, result, err,
         leat_loader_submit(self->loader, (const int64_t *)(uintptr_t)address, samples, &err));
    return PyBool_FromLong(result);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* As leat_loader_next(), in slices; -EINTR with an exception set. */
static int wait_for_batch(struct engine_object *self, int64_t timeout_ms,
                          struct leat_batch **ret_batch, int *ret_nearly_full, struct leat_err *err)
{
    int64_t until_ms = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
    for (;;) {
        int64_t left_ms = timeout_ms < 0 ? SLICE_MS : until_ms - now_ms();
        int result;
        if (enter(self) < 0)
            return -EINTR;
        Py_BEGIN_ALLOW_THREADS;
        result = leat_loader_next(self->loader,
                                  left_ms < 0 ? 0 : (int)(left_ms < SLICE_MS ? left_ms : SLICE_MS),
                                  ret_batch, err);
        if (result > 0)
            *ret_nearly_full = leat_loader_nearly_full(self->loader);
        Py_END_ALLOW_THREADS;
        leave(self);
        if (result != -ETIMEDOUT)
            return result;
        if (PyErr_CheckSignals() < 0)
            return -EINTR;
        if (timeout_ms >= 0 && now_ms() >= until_ms)
            return -ETIMEDOUT;
    }
}

/* next(timeout_ms, stream) -> (nearly_full, fields), None at the end of the epoch, False when it
 * took too long. The CUDA stream waits for a batch on a device. */
static PyObject *engine_next(PyObject *object, PyObject *args)
{
    struct engine_object *self = (struct engine_object *)object;
    struct leat_batch *batch;
    struct leat_err err = {{0}};
    int nearly_full = 0;
    long long timeout_ms;
    unsigned long long stream = 0;
    if (!PyArg_ParseTuple(args, "L|K", &timeout_ms, &stream))
        return NULL;
    int result = wait_for_batch(self, timeout_ms, &batch, &nearly_full, &err);
    if (result == -EINTR && PyErr_Occurred())
        return NULL;
    if (result == -ETIMEDOUT)
        Py_RETURN_FALSE;
    if (result == 0)
        Py_RETURN_NONE;
    if (result < 0)
        return engine_raise(result, &err);
    int failed;
    Py_BEGIN_ALLOW_THREADS;
    failed = leat_batch_wait(batch, (void *)(uintptr_t)stream, &err);
    Py_END_ALLOW_THREADS;
    if (failed < 0) {
        leat_batch_unref(batch);
        return engine_raise(failed, &err);
    }
    PyObject *fields = engine_batch_fields(batch, engine_source_of(self->source), self->layouts);
    leat_batch_unref(batch);
    return fields ? Py_BuildValue("(iN)", nearly_full, fields) : NULL;
}

static PyObject *engine_stats(PyObject *object, PyObject *unused)
{
    struct engine_object *self = (struct engine_object *)object;
    struct leat_loader_stats s;
    if (enter(self) < 0)
        return NULL;
    leat_loader_stats(self->loader, &s);
    leave(self);
#define U(field) #field, (unsigned long long)s.field
#define I(field) #field, (int)s.field
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsKsKsKsisisisisKsKsKsKsiss}", U(elapsed_ns),
                         U(batches), U(samples), U(bytes), U(waits), U(wait_ns), U(help_ns),
                         U(order_ns), U(read_ns), U(layout_ns), U(idle_ns), U(ready_sum), U(errors),
                         U(full), I(threads), I(ahead), I(slots), I(slots_held), U(slot_bytes),
                         U(memory_bytes), U(memory_most_bytes), U(pace_changes), I(resident),
                         "pace", s.pace);
#undef U
#undef I
}

/* errors(first) -> [(epoch, index, text)], those from number `first` on that are kept. */
static PyObject *engine_errors(PyObject *object, PyObject *value)
{
    struct engine_object *self = (struct engine_object *)object;
    struct leat_loader_error found[64];
    size_t first = PyLong_AsSize_t(value), count;
    if (first == (size_t)-1 && PyErr_Occurred())
        return NULL;
    PyObject *list = PyList_New(0);
    while (list) {
        if (enter(self) < 0) {
            Py_DECREF(list);
            return NULL;
        }
        count = leat_loader_errors(self->loader, first, found, sizeof found / sizeof *found);
        leave(self);
        for (size_t i = 0; list && i < count; i++) {
            PyObject *text =
                PyUnicode_DecodeUTF8(found[i].text, (Py_ssize_t)strlen(found[i].text), "replace");
            PyObject *row = text ? Py_BuildValue("(KLN)", (unsigned long long)found[i].epoch,
                                                 (long long)found[i].index, text)
                                 : NULL;
            if (!row || PyList_Append(list, row) < 0) {
                Py_DECREF(list);
                list = NULL;
            }
            Py_XDECREF(row);
        }
        if (!count)
            break;
        first += count;
    }
    return list;
}

static PyMethodDef engine_methods[] = {
    {"start",  (PyCFunction)(void (*)(void))engine_start, METH_VARARGS | METH_KEYWORDS,
     "start(epoch, seed=None): begins it at its first batch; seed: other than the loader's."                                                },
    {"resume", engine_resume,                             METH_VARARGS,                 "resume(state): begins where the state stands."     },
    {"state",  engine_state,                              METH_NOARGS,                  "state() -> a tuple of numbers, for resume()."      },
    {"submit", engine_submit,                             METH_VARARGS,                 "submit(address, samples) -> whether it was taken." },
    {"next",   engine_next,                               METH_VARARGS,                 "next(timeout_ms, stream) -> (nearly_full, fields)."},
    {"stats",  engine_stats,                              METH_NOARGS,                  "stats() -> dict."                                  },
    {"errors", engine_errors,                             METH_O,                       "errors(first) -> [(epoch, index, text)]."          },
    {"close",  engine_close,                              METH_NOARGS,                  "close(): ends the threads."                        },
    {NULL,     NULL,                                      0,                            NULL                                                },
};

static PyType_Slot engine_slots[] = {
    {Py_tp_new,     engine_new                                  },
    {Py_tp_dealloc, engine_dealloc                              },
    {Py_tp_methods, engine_methods                              },
    {Py_tp_doc,     "A loader over a source; see leat/loader.h."},
    {0,             NULL                                        },
};

static PyType_Spec engine_spec = {
    .name = "leat._engine.Engine",
    .basicsize = sizeof(struct engine_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = engine_slots,
};

static int engine_add(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&engine_spec);
    if (!type || PyModule_AddObject(module, "Engine", type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    int bad = engine_source_add(module);
    bad |= PyModule_AddIntConstant(module, "ORDER_SEQUENTIAL", LEAT_ORDER_SEQUENTIAL);
    bad |= PyModule_AddIntConstant(module, "ORDER_FULL", LEAT_ORDER_FULL);
    bad |= PyModule_AddIntConstant(module, "ORDER_QUASI", LEAT_ORDER_QUASI);
    bad |= PyModule_AddIntConstant(module, "ORDER_WINDOW", LEAT_ORDER_WINDOW);
    bad |= PyModule_AddIntConstant(module, "ORDER_GIVEN", LEAT_ORDER_GIVEN);
    bad |= PyModule_AddIntConstant(module, "ON_ERROR_RAISE", LEAT_ERROR_RAISE);
    bad |= PyModule_AddIntConstant(module, "ON_ERROR_SKIP", LEAT_ERROR_SKIP);
    bad |= PyModule_AddIntConstant(module, "ON_ERROR_REPLACE", LEAT_ERROR_REPLACE);
    bad |= PyModule_AddIntConstant(module, "LAYOUT_LIST", LEAT_LAYOUT_LIST);
    bad |= PyModule_AddIntConstant(module, "LAYOUT_PAD", LEAT_LAYOUT_PAD);
    bad |= PyModule_AddIntConstant(module, "LAYOUT_CONCAT", LEAT_LAYOUT_CONCAT);
    bad |= PyModule_AddIntConstant(module, "STATE_VERSION", LEAT_STATE_VERSION);
    return bad;
}

static struct PyModuleDef engine_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_engine",
    .m_doc = "leat's loader; see include/leat/loader.h.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__engine(void); /* called by name only */

PyMODINIT_FUNC PyInit__engine(void)
{
    const struct leat_recorder_calls *calls = PyCapsule_Import(LEAT_RECORDER_CAPSULE, 0);
    if (!calls)
        return NULL;
    loader_report_to(calls);
    PyObject *module = PyModule_Create(&engine_module);
    if (module && engine_add(module) < 0) {
        Py_DECREF(module);
        module = NULL;
    }
    return module;
}
