/* hook_fetcher.c: measures the making of a batch, from inside the fetcher that makes it.
 *
 * torch makes one fetcher for each iteration, in the worker or, with num_workers=0, in the process
 * itself, and calls its fetch(index). Here each fetcher gets a `fetch` attribute, a Fetch object,
 * and a proxy (timed_dataset.c) as its collate function. During a call of fetch the proxy also
 * replaces the dataset, or the dataset's iterator:
 *
 *     fetcher.fetch(index) ──► Fetch: work SAMPLE; IDLE since the last batch (worker)
 *        class's own fetch
 *          dataset[i]      ──► Timed: the user's dataset[i]; SAMPLE ends, the next begins
 *          collate_fn(data)──► Timed: FETCH ends; work COLLATE; the user's collate_fn; COLLATE
 *                          ◄── work NONE; WORKER_FETCH (worker)
 *
 * Between two batches the fetcher's dataset is the user's: loaders that save their state read it.
 * User code never gets a proxy, because it has no reference to the fetcher. All of this is C, so
 * tracebacks have no frames of leat.
 *
 * Cost: a proxy costs 200 to 500 ns per sample, and 10 us per batch. So after the first
 * FIRST_SAMPLES of a process the proxy replaces the dataset in one of several batches only, of
 * fewer the faster the samples are; SAMPLE counts the samples that were measured. Without workers,
 * where the batch's time is the training's, the same holds for whole batches after FIRST_BATCHES;
 * FETCH and COLLATE count those that were measured, and only in them lines are profiled. For the
 * others the fetcher is as torch made it, and the hook of next() counts the batches and resumes the
 * measuring.
 *
 * A dataset that makes a batch at once (__getitems__) has no single samples: each counts with the
 * mean of its batch.
 *
 * IDLE is the time of a worker between two batches of an iteration: it passes the last batch to the
 * feeder thread, frees it, and waits for indices.
 */
#include "timed_dataset.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SLOW_SAMPLE_NS = 1000000, /* a sample; the proxy is 0.05 % of it */
    SLOW_BATCH_NS = 16000000, /* the proxy is 0.06 % of it */
    FIRST_SAMPLES = 256,      /* enough to know their p90 to 2 % of the samples */
    FIRST_BATCHES = 64,       /* enough for a median and a p90 */
    MAX_SAMPLE_INTERVAL = 64, /* samples are measured in at least one of so many measured batches */
    MAX_BATCH_INTERVAL = 16
};

struct fetch {
    PyObject_HEAD PyObject *function; /* owned; fetch() of the fetcher's class */
    PyObject *fetcher; /* owned; a weak reference, since the fetcher owns this object */
    PyObject *proxy;   /* owned; a struct timed */
    PyObject *count;   /* owned; callable(batch, expected) -> samples */
    int iterable;
    uint32_t turn, every;
    int next_hooked; /* next() is hooked, so it can resume the measuring */
    uint32_t paused; /* batches until the measuring is resumed; 0: it is on */
};

static struct current_work work = {.part = WORK_NONE};
static int is_worker;         /* this process is a worker of a DataLoader */
static int worker_id = -1;    /* -1: unknown */
static int has_timed_fetcher; /* this worker has a timed fetcher */
static int64_t worker_loader = LOADER_UNKNOWN;
static uint32_t first_batches; /* measured, up to FIRST_BATCHES */
static uint32_t timed_samples; /* measured, up to FIRST_SAMPLES */
static uint64_t batch_end_ns;  /* end of the worker's last batch in this iteration; 0: none */
static PyObject *fetch_type;
static PyObject *original_create, *on_created, *torch_collate; /* owned */
static PyObject *on_missing;                                   /* owned; callable(text) */
static PyObject *str_fetch, *str_dataset, *str_dataset_iter, *str_collate_fn;

struct current_work *current_work(void)
{
    return &work;
}

uint32_t worker_loader_id(void)
{
    return worker_loader < 0 ? 0 : (uint32_t)worker_loader;
}

void fetcher_after_fork(void)
{
    work.part = WORK_NONE;
    work.asked = 0;
    batch_end_ns = 0;
}

int worker_times_fetcher(void)
{
    return has_timed_fetcher;
}

void report_missing(enum missing_point point)
{
    static const char *const texts[] = {
        [MISSING_DATASET] = "fetcher: data", [MISSING_COLLATE] = "fetcher: collate_fn",
        [MISSING_FETCHER] = "fetcher",       [MISSING_MESSAGES] = "data queue: messages",
        [MISSING_TASKS] = "_task_info",
    };
    static uint32_t reported;
    PyObject *type, *error, *trace;
    if (reported & 1u << point || !on_missing)
        return;
    reported |= 1u << point;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *done = PyObject_CallFunction(on_missing, "s", texts[point]);
    if (!done)
        PyErr_Clear();
    Py_XDECREF(done);
    PyErr_Restore(type, error, trace);
}

/* The first thread keeps it until WORK_NONE. */
void set_current_work(struct traced_thread *thread, enum work_part part, uint32_t loader)
{
    if (!thread->tid) {
        thread->tid = (int32_t)syscall(SYS_gettid);
        thread->ident = PyThread_get_thread_ident();
    }
    if (work.part != WORK_NONE && work.tid != thread->tid)
        return;
    work.tid = thread->tid;
    work.ident = thread->ident;
    work.thread_state = PyThreadState_Get();
    work.loader = loader;
    work.part = part;
}

static int fetch_traverse(struct fetch *f, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(f));
    Py_VISIT(f->function);
    Py_VISIT(f->fetcher);
    Py_VISIT(f->proxy);
    Py_VISIT(f->count);
    return 0;
}

static int fetch_clear(struct fetch *f)
{
    Py_CLEAR(f->function);
    Py_CLEAR(f->fetcher);
    Py_CLEAR(f->proxy);
    Py_CLEAR(f->count);
    return 0;
}

static void fetch_dealloc(struct fetch *f)
{
    PyTypeObject *type = Py_TYPE(f);
    PyObject_GC_UnTrack(f);
    fetch_clear(f);
    PyObject_GC_Del(f);
    Py_DECREF(type);
}

/* The fetch() of the fetcher's class, called as torch calls it. */
static PyObject *call_original(struct fetch *f, PyObject *fetcher, PyObject *args, PyObject *kwargs)
{
    if (!kwargs && PyTuple_Size(args) == 1)
        return PyObject_CallFunctionObjArgs(f->function, fetcher, PyTuple_GetItem(args, 0), NULL);
    PyObject *method = PyObject_CallMethod(f->function, "__get__", "O", fetcher);
    PyObject *batch = method ? PyObject_Call(method, args, kwargs) : NULL;
    Py_XDECREF(method);
    return batch;
}

/* Moves the value of the attribute to *old_value, and sets the attribute to the proxy. */
static int replace_by(PyObject *fetcher, PyObject *name, PyObject *proxy, PyObject **old_value)
{
    PyObject *value = PyObject_GetAttr(fetcher, name);
    if (!value)
        return -1;
    if (value == proxy || (name == str_dataset_iter && !PyIter_Check(value))) {
        Py_DECREF(value);
        return -1;
    }
    PyObject *old = *old_value;
    *old_value = value;
    Py_XDECREF(old);
    return PyObject_SetAttr(fetcher, name, proxy);
}

static PyObject *data_name(const struct fetch *f)
{
    return f->iterable ? str_dataset_iter : str_dataset;
}

/* Replaces the data by the proxy if this batch's samples are to be measured; 1 if it did. */
static int time_data(struct fetch *f, PyObject *fetcher)
{
    struct timed *t = (struct timed *)f->proxy;
    if (f->every > 1 && f->turn++ % f->every)
        return 0;
    if (replace_by(fetcher, data_name(f), f->proxy, &t->data) == 0)
        return 1;
    if (PyErr_Occurred())
        PyErr_Clear();
    report_missing(MISSING_DATASET);
    return 0;
}

static void restore_data(struct fetch *f, PyObject *fetcher)
{
    struct timed *t = (struct timed *)f->proxy;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (PyObject_SetAttr(fetcher, data_name(f), t->data) < 0)
        PyErr_Clear();
    PyErr_Restore(type, error, trace);
}

/* Restores torch's fetch and collate function for some batches. */
static void pause_timing(struct fetch *f, PyObject *fetcher, uint32_t batches)
{
    struct timed *t = (struct timed *)f->proxy;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (PyObject_SetAttr(fetcher, str_collate_fn, t->collate) == 0 &&
        PyObject_DelAttr(fetcher, str_fetch) == 0)
        f->paused = batches;
    PyErr_Restore(type, error, trace);
}

/* Sets the proxy as collate function and Fetch as fetch. -1 on failure. */
static int start_timing(struct fetch *f, PyObject *fetcher)
{
    struct timed *t = (struct timed *)f->proxy;
    if (replace_by(fetcher, str_collate_fn, f->proxy, &t->collate) < 0)
        return -1;
    t->trusted = t->collate == torch_collate;
    return PyObject_SetAttr(fetcher, str_fetch, (PyObject *)f);
}

static void resume_timing(struct fetch *f)
{
    PyObject *fetcher = PyWeakref_GetObject(f->fetcher);
    if (fetcher && fetcher != Py_None && start_timing(f, fetcher) < 0) {
        PyErr_Clear();
        report_missing(MISSING_COLLATE);
    }
}

int fetcher_before_next(PyObject *object)
{
    if ((PyObject *)Py_TYPE(object) != fetch_type)
        return 0;
    struct fetch *f = (struct fetch *)object;
    f->next_hooked = 1;
    if (f->paused > 0 && --f->paused == 0)
        resume_timing(f);
    return 1;
}

/* The samples of a batch that was made without automatic batching. */
static uint32_t count_samples_of(struct fetch *f, PyObject *batch)
{
    PyObject *answer = PyObject_CallFunction(f->count, "On", batch, (Py_ssize_t)0);
    uint64_t count = answer ? PyLong_AsUnsignedLongLong(answer) : 0;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return (uint32_t)count;
}

static void record_batch(struct fetch *f, PyObject *batch)
{
    struct timed *t = (struct timed *)f->proxy;
    unsigned flags = 0;
    uint32_t samples = 0;
    if (!batch) {
        if (PyErr_ExceptionMatches(PyExc_StopIteration))
            return;
        flags = LEAT_REC_ERROR;
    } else if (t->single) {
        samples = count_samples_of(f, batch);
    } else if (t->samples > 0) {
        samples = (uint32_t)t->samples;
    }
    leat_record(LEAT_REC_WORKER_FETCH, flags, (uint32_t)worker_id, LEAT_FETCH_ARG(0, samples),
                t->begin_ns, t->end_ns);
}

static void batch_begins(struct traced_thread *thread, struct timed *t, PyObject *args)
{
    timed_begin(t, PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL);
    if (batch_end_ns)
        leat_part(t->loader, LEAT_PART_IDLE, t->begin_ns - batch_end_ns, 0);
    thread->in_fetcher = 1;
    set_current_work(thread, WORK_SAMPLE, t->loader);
}

static void describe_codes(void)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    profiler_describe_codes();
    PyErr_Restore(type, error, trace);
}

/* Measures one of so many: of fast ones fewer. */
static uint32_t interval_of(uint64_t ns, uint64_t slow_ns, uint32_t most)
{
    uint64_t every = ns ? slow_ns / ns : most;
    return every < 1 ? 1 : every > most ? most : (uint32_t)every;
}

static uint32_t batches_every(const struct fetch *f, const struct timed *t)
{
    if (is_worker || !t->end_ns || !f->next_hooked)
        return 1;
    if (first_batches < FIRST_BATCHES) {
        first_batches++;
        return 1;
    }
    return interval_of(t->end_ns - t->begin_ns, SLOW_BATCH_NS, MAX_BATCH_INTERVAL);
}

static uint32_t samples_every(const struct timed *t)
{
    if (timed_samples < FIRST_SAMPLES)
        timed_samples += t->whole && t->samples > 0 ? (uint32_t)t->samples : t->timed;
    if (t->samples <= 0 || timed_samples < FIRST_SAMPLES)
        return 1;
    return interval_of((t->fetched_ns - t->begin_ns) / (uint64_t)t->samples, SLOW_SAMPLE_NS,
                       MAX_SAMPLE_INTERVAL);
}

static void batch_ends(struct traced_thread *thread, struct fetch *f, PyObject *fetcher,
                       PyObject *batch)
{
    struct timed *t = (struct timed *)f->proxy;
    thread->in_fetcher = 0;
    timed_end(t);
    set_current_work(thread, WORK_NONE, t->loader);
    if (batch && t->samples < 0) /* its collate function was not called by way of the proxy */
        report_missing(MISSING_COLLATE);
    uint32_t every = batches_every(f, t);
    f->every = samples_every(t) / every; /* counted in measured batches */
    if (every > 1)
        pause_timing(f, fetcher, every - 1);
    if (is_worker) {
        if (!t->end_ns)
            t->end_ns = leat_now_ns();
        record_batch(f, batch);
        batch_end_ns = t->end_ns;
    }
    profiler_batch_time((t->end_ns ? t->end_ns : leat_now_ns()) - t->begin_ns, 1);
    if (work.asked)
        describe_codes();
}

static PyObject *call_timed(struct traced_thread *thread, struct fetch *f, PyObject *fetcher,
                            PyObject *args, PyObject *kwargs)
{
    int data_timed = time_data(f, fetcher);
    batch_begins(thread, (struct timed *)f->proxy, args);
    PyObject *batch = call_original(f, fetcher, args, kwargs);
    if (data_timed)
        restore_data(f, fetcher);
    batch_ends(thread, f, fetcher, batch);
    return batch;
}

static PyObject *fetch_call(struct fetch *f, PyObject *args, PyObject *kwargs)
{
    PyObject *fetcher = f->fetcher ? PyWeakref_GetObject(f->fetcher) : NULL;
    if (!fetcher || fetcher == Py_None) { /* cannot happen: the caller holds the fetcher */
        PyErr_SetString(PyExc_RuntimeError, "leat: the fetcher is gone");
        return NULL;
    }
    struct traced_thread *thread = traced_thread();
    int open = ((struct timed *)f->proxy)->open; /* another thread is in the same fetcher */
    PyObject *batch;
    Py_INCREF(fetcher);
    Py_INCREF(f);
    if (thread->in_fetcher || open || !leat_recording())
        batch = call_original(f, fetcher, args, kwargs);
    else
        batch = call_timed(thread, f, fetcher, args, kwargs);
    Py_DECREF(f);
    Py_DECREF(fetcher);
    return batch;
}

static PyType_Slot fetch_slots[] = {
    {Py_tp_dealloc,  fetch_dealloc             },
    {Py_tp_traverse, fetch_traverse            },
    {Py_tp_clear,    fetch_clear               },
    {Py_tp_call,     fetch_call                },
    {Py_tp_doc,      "A fetcher's timed fetch."},
    {0,              NULL                      },
};

static PyType_Spec fetch_spec = {
    .name = "leat._record.Fetch",
    .basicsize = sizeof(struct fetch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = fetch_slots,
};

/* A new Fetch, owned; not set in the fetcher. */
static PyObject *new_fetch(PyObject *fetcher, PyObject *count, struct timed *t, int iterable)
{
    struct fetch *f = PyObject_GC_New(struct fetch, (PyTypeObject *)fetch_type);
    if (!f)
        return NULL;
    memset((char *)f + sizeof(PyObject), 0, sizeof *f - sizeof(PyObject));
    keep_reference(&f->proxy, (PyObject *)t);
    keep_reference(&f->count, count);
    f->iterable = iterable;
    f->every = 1;
    PyObject_GC_Track(f);
    f->function = PyObject_GetAttr((PyObject *)Py_TYPE(fetcher), str_fetch);
    f->fetcher = f->function ? PyWeakref_NewRef(fetcher, NULL) : NULL;
    if (f->fetcher)
        return (PyObject *)f;
    Py_DECREF(f);
    return NULL;
}

static PyObject *py_time_fetcher(PyObject *self, PyObject *args)
{
    PyObject *fetcher, *count;
    unsigned loader;
    int iterable, single;
    if (!PyArg_ParseTuple(args, "OOIpp", &fetcher, &count, &loader, &iterable, &single))
        return NULL;
    struct timed *t = timed_new(loader, single);
    PyObject *fetch = t ? new_fetch(fetcher, count, t, iterable) : NULL;
    int bad = !fetch || start_timing((struct fetch *)fetch, fetcher) < 0;
    Py_XDECREF(fetch);
    Py_XDECREF(t);
    if (bad)
        return NULL;
    has_timed_fetcher = 1;
    batch_end_ns = 0; /* the time between two iterations is not idle time */
    Py_RETURN_NONE;
}

/* torch's create_fetcher, which may run user code (iter(dataset)). C, so that a traceback has no
 * frame of leat. */
static PyObject *py_create_fetcher(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct traced_thread *thread = traced_thread();
    thread->creating++;
    PyObject *fetcher = PyObject_Call(original_create, args, kwargs);
    thread->creating--;
    if (fetcher && on_created && !thread->creating && !thread->in_fetcher) {
        PyObject *done = PyObject_CallFunctionObjArgs(on_created, fetcher, NULL);
        if (!done)
            PyErr_Clear();
        Py_XDECREF(done);
    }
    return fetcher;
}

static PyObject *set_create_function(PyObject *self, PyObject *args)
{
    PyObject *original, *callable, *collate;
    if (!PyArg_ParseTuple(args, "OOO", &original, &callable, &collate))
        return NULL;
    keep_reference(&original_create, original);
    keep_reference(&on_created, callable);
    keep_reference(&torch_collate, collate);
    Py_RETURN_NONE;
}

static PyObject *py_worker(PyObject *self, PyObject *args)
{
    int id, loader;
    if (!PyArg_ParseTuple(args, "ii", &id, &loader))
        return NULL;
    is_worker = 1;
    has_timed_fetcher = 0; /* that was the parent, before a fork */
    worker_id = id;
    worker_loader = loader;
    leat_recorder_worker_loader(loader);
    Py_RETURN_NONE;
}

static PyObject *py_on_missing(PyObject *self, PyObject *callable)
{
    keep_reference(&on_missing, callable);
    Py_RETURN_NONE;
}

static PyObject *py_current_work(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("iiKI", work.part, work.tid, (unsigned long long)work.ident, work.loader);
}

/* clang-format off */
static PyMethodDef fetcher_methods[] = {
    {"create_fetcher", (PyCFunction)(void (*)(void))py_create_fetcher,
     METH_VARARGS | METH_KEYWORDS, "torch's create_fetcher; then calls on_created."},
    {"set_create_function", set_create_function, METH_VARARGS,
     "set_create_function(original, callable, collate): callable(fetcher) for each that is made."},
    {"time_fetcher", py_time_fetcher, METH_VARARGS,
     "time_fetcher(fetcher, count, loader, iterable, single)."},
    {"worker", py_worker, METH_VARARGS,
     "worker(id, loader): this process makes its batches; -1: not known."},
    {"on_missing", py_on_missing, METH_O, "on_missing(callable): callable(what), once for each."},
    {"current_work", py_current_work, METH_NOARGS, "current_work() -> (part or -1, tid, ident, loader)."},
    {NULL, NULL, 0, NULL},
};
/* clang-format on */

int hook_fetcher_add(PyObject *module)
{
    str_fetch = PyUnicode_InternFromString("fetch");
    str_dataset = PyUnicode_InternFromString("dataset");
    str_dataset_iter = PyUnicode_InternFromString("dataset_iter");
    str_collate_fn = PyUnicode_InternFromString("collate_fn");
    fetch_type = PyType_FromSpec(&fetch_spec);
    if (!str_fetch || !str_dataset || !str_dataset_iter || !str_collate_fn || !fetch_type ||
        timed_init() < 0)
        return -1;
    return PyModule_AddFunctions(module, fetcher_methods);
}
