/* hook_fetcher.c: a batch in the making, timed from inside the fetcher that makes it.
 *
 * torch makes one fetcher for an iteration, in the worker or, with num_workers=0, in the process
 * itself, and calls its fetch(index). Each gets a `fetch` of its own here, a Fetch object, and a
 * stand-in (timed_dataset.c) in the place of its collate function. A call of fetch also puts the
 * stand-in in the place of the dataset, or of its iterator, for as long as it lasts:
 *
 *     fetcher.fetch(index) ──► Fetch: mark SAMPLE; IDLE since the last batch (worker)
 *        class's own fetch
 *          dataset[i]      ──► Timed: the user's dataset[i]; SAMPLE ends, the next begins
 *          collate_fn(data)──► Timed: FETCH ends; mark COLLATE; the user's collate_fn; COLLATE
 *                          ◄── mark NONE; WORKER_FETCH (worker)
 *
 * So between two batches the fetcher's dataset is what torch put there: loaders that save their
 * state look at it. User code never meets a stand-in: it has no way to the fetcher. As all of this
 * is C, tracebacks show the frames they always showed.
 *
 * A stand-in costs some 200 ns a sample (its time is kept, and added with those of others), and
 * some 500 where the sample has emptied the caches. So after the first SAMPLES of a process it
 * stands in for the dataset the more seldom the quicker the samples are, and SAMPLE counts those
 * that were timed. All of it costs some 10 us a batch when the training in between has emptied the
 * caches; so without workers, where that is the training's own time, batches are timed all only
 * until FIRST of them were, and then the more seldom the quicker they are; FETCH and COLLATE count
 * those that were timed, and only then lines are looked at. In between the fetcher is as
 * torch made it: next(), which is timed in any case, counts the batches and puts Fetch and stand-in
 * back. A dataset that is asked for a whole batch (__getitems__) shows no single samples: each is
 * counted with the mean of its batch.
 *
 * IDLE is what lies between two batches of an iteration in a worker: taking the indices from their
 * queue, for which it waits, and before it handing the last batch to the feeder and letting go of
 * it.
 */
#include "timed_dataset.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SLOW_NS = 1000000,        /* a sample: 500 ns are a twentieth of a per cent of it */
    SLOW_BATCH_NS = 16000000, /* 10 us are a sixteenth of a per cent of it */
    SAMPLES = 256,            /* a p90 of them is known to 2 % of the samples */
    FIRST = 64,               /* a median and a p90 of them can be relied on */
    SELDOM_SAMPLES = 64,      /* of batches, at the most */
    SELDOM = 16
};

struct fetch {
    PyObject_HEAD PyObject *function; /* owned; fetch() of the fetcher's class */
    PyObject *fetcher;                /* owned; a weak reference: the fetcher owns this */
    PyObject *stand_in;               /* owned; a struct timed */
    PyObject *count;                  /* owned; callable(batch, expected) -> samples */
    int iterable;
    uint32_t turn, every;
    int counted; /* next() counts the batches of this fetcher: it may rest */
    uint32_t
        rest; /* batches that are not timed, from here on; not 0: torch's own is in its place */
};

static struct making making = {.part = MAKING_NONE};
static int is_worker;      /* of a DataLoader, this process */
static int worker_id = -1; /* -1: not known */
static int dressed_any;    /* fetchers of this worker were met */
static int64_t worker_loader = LOADER_UNKNOWN;
static uint32_t first_batches; /* timed, until they are FIRST */
static uint32_t timed_samples; /* until they are SAMPLES */
static uint64_t idle_since_ns; /* of the worker; 0: not between two batches */
static PyObject *fetch_type;
static PyObject *create_original, *create_dress, *torch_collate; /* owned */
static PyObject *on_missing;                                     /* owned; callable(text) */
static PyObject *str_fetch, *str_dataset, *str_dataset_iter, *str_collate_fn;

struct making *core_making(void)
{
    return &making;
}

uint32_t making_loader(void)
{
    return worker_loader < 0 ? 0 : (uint32_t)worker_loader;
}

void making_forget(void)
{
    making.part = MAKING_NONE;
    making.asked = 0;
    idle_since_ns = 0;
}

int making_met_fetcher(void)
{
    return dressed_any;
}

void core_missing(enum core_signal signal)
{
    static const char *const texts[] = {
        [SIGNAL_SAMPLE] = "fetcher: data", [SIGNAL_COLLATE] = "fetcher: collate_fn",
        [SIGNAL_FETCHER] = "fetcher",      [SIGNAL_PICKLE] = "data queue: messages",
        [SIGNAL_READY] = "_task_info",
    };
    static uint32_t told;
    PyObject *type, *error, *trace;
    if (told & 1u << signal || !on_missing)
        return;
    told |= 1u << signal;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *done = PyObject_CallFunction(on_missing, "s", texts[signal]);
    if (!done)
        PyErr_Clear();
    Py_XDECREF(done);
    PyErr_Restore(type, error, trace);
}

/* The first thread that comes has the mark until it is done. */
void making_mark(struct traced_thread *thread, enum making_part part, uint32_t loader)
{
    if (!thread->tid) {
        thread->tid = (int32_t)syscall(SYS_gettid);
        thread->ident = PyThread_get_thread_ident();
    }
    if (making.part != MAKING_NONE && making.tid != thread->tid)
        return;
    making.tid = thread->tid;
    making.ident = thread->ident;
    making.thread_state = PyThreadState_Get();
    making.loader = loader;
    making.part = part;
}

static int fetch_traverse(struct fetch *f, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(f));
    Py_VISIT(f->function);
    Py_VISIT(f->fetcher);
    Py_VISIT(f->stand_in);
    Py_VISIT(f->count);
    return 0;
}

static int fetch_clear(struct fetch *f)
{
    Py_CLEAR(f->function);
    Py_CLEAR(f->fetcher);
    Py_CLEAR(f->stand_in);
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

/* The class's own fetch, as torch would have called it. */
static PyObject *call_plain(struct fetch *f, PyObject *fetcher, PyObject *args, PyObject *kwargs)
{
    if (!kwargs && PyTuple_Size(args) == 1)
        return PyObject_CallFunctionObjArgs(f->function, fetcher, PyTuple_GetItem(args, 0), NULL);
    PyObject *method = PyObject_CallMethod(f->function, "__get__", "O", fetcher);
    PyObject *batch = method ? PyObject_Call(method, args, kwargs) : NULL;
    Py_XDECREF(method);
    return batch;
}

/* Keeps what the attribute holds in *place, and puts the stand-in there. */
static int stand_in(PyObject *fetcher, PyObject *name, PyObject *stand, PyObject **place)
{
    PyObject *value = PyObject_GetAttr(fetcher, name);
    if (!value)
        return -1;
    if (value == stand || (name == str_dataset_iter && !PyIter_Check(value))) {
        Py_DECREF(value);
        return -1;
    }
    PyObject *old = *place;
    *place = value;
    Py_XDECREF(old);
    return PyObject_SetAttr(fetcher, name, stand);
}

static PyObject *data_name(const struct fetch *f)
{
    return f->iterable ? str_dataset_iter : str_dataset;
}

/* Puts the stand-in before the data when it is this batch's turn; 1 if it did. */
static int dress(struct fetch *f, PyObject *fetcher)
{
    struct timed *t = (struct timed *)f->stand_in;
    if (f->every > 1 && f->turn++ % f->every)
        return 0;
    if (stand_in(fetcher, data_name(f), f->stand_in, &t->data) == 0)
        return 1;
    if (PyErr_Occurred())
        PyErr_Clear();
    core_missing(SIGNAL_SAMPLE);
    return 0;
}

static void undress(struct fetch *f, PyObject *fetcher)
{
    struct timed *t = (struct timed *)f->stand_in;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (PyObject_SetAttr(fetcher, data_name(f), t->data) < 0)
        PyErr_Clear();
    PyErr_Restore(type, error, trace);
}

/* Puts torch's own fetch and collate function back for some batches. */
static void go_to_rest(struct fetch *f, PyObject *fetcher, uint32_t batches)
{
    struct timed *t = (struct timed *)f->stand_in;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (PyObject_SetAttr(fetcher, str_collate_fn, t->collate) == 0 &&
        PyObject_DelAttr(fetcher, str_fetch) == 0)
        f->rest = batches;
    PyErr_Restore(type, error, trace);
}

/* The stand-in before the collate function, and Fetch in the place of fetch; -1 if it cannot be. */
static int take_place(struct fetch *f, PyObject *fetcher)
{
    struct timed *t = (struct timed *)f->stand_in;
    if (stand_in(fetcher, str_collate_fn, f->stand_in, &t->collate) < 0)
        return -1;
    t->trusted = t->collate == torch_collate;
    return PyObject_SetAttr(fetcher, str_fetch, (PyObject *)f);
}

static void wake_now(struct fetch *f)
{
    PyObject *fetcher = PyWeakref_GetObject(f->fetcher);
    if (fetcher && fetcher != Py_None && take_place(f, fetcher) < 0) {
        PyErr_Clear();
        core_missing(SIGNAL_COLLATE);
    }
}

int making_wake(PyObject *object)
{
    if ((PyObject *)Py_TYPE(object) != fetch_type)
        return 0;
    struct fetch *f = (struct fetch *)object;
    f->counted = 1;
    if (f->rest > 0 && --f->rest == 0)
        wake_now(f);
    return 1;
}

/* How many samples a batch has that was made without lists of them. */
static uint32_t ask_count(struct fetch *f, PyObject *batch)
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
    struct timed *t = (struct timed *)f->stand_in;
    unsigned flags = 0;
    uint32_t samples = 0;
    if (!batch) {
        if (PyErr_ExceptionMatches(PyExc_StopIteration))
            return;
        flags = LEAT_REC_ERROR;
    } else if (t->single) {
        samples = ask_count(f, batch);
    } else if (t->samples > 0) {
        samples = (uint32_t)t->samples;
    }
    leat_record(LEAT_REC_WORKER_FETCH, flags, (uint32_t)worker_id, LEAT_FETCH_ARG(0, samples),
                t->begin_ns, t->end_ns);
}

static void batch_begins(struct traced_thread *thread, struct timed *t, PyObject *args)
{
    timed_begin(t, PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL);
    if (idle_since_ns)
        leat_part(t->loader, LEAT_PART_IDLE, t->begin_ns - idle_since_ns, 0);
    thread->in_fetcher = 1;
    making_mark(thread, MAKING_SAMPLE, t->loader);
}

static void answer_sampler(void)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    sampler_answer();
    PyErr_Restore(type, error, trace);
}

/* One of how many is to be timed. */
static uint32_t how_seldom(uint64_t ns, uint64_t slow_ns, uint32_t most)
{
    uint64_t every = ns ? slow_ns / ns : most;
    return every < 1 ? 1 : every > most ? most : (uint32_t)every;
}

static uint32_t batches_every(const struct fetch *f, const struct timed *t)
{
    if (is_worker || !t->end_ns || !f->counted)
        return 1;
    if (first_batches < FIRST) {
        first_batches++;
        return 1;
    }
    return how_seldom(t->end_ns - t->begin_ns, SLOW_BATCH_NS, SELDOM);
}

static uint32_t samples_every(const struct timed *t)
{
    if (timed_samples < SAMPLES)
        timed_samples += t->whole && t->samples > 0 ? (uint32_t)t->samples : t->timed;
    if (t->samples <= 0 || timed_samples < SAMPLES)
        return 1;
    return how_seldom((t->fetched_ns - t->begin_ns) / (uint64_t)t->samples, SLOW_NS,
                      SELDOM_SAMPLES);
}

static void batch_ends(struct traced_thread *thread, struct fetch *f, PyObject *fetcher,
                       PyObject *batch)
{
    struct timed *t = (struct timed *)f->stand_in;
    thread->in_fetcher = 0;
    timed_end(t);
    making_mark(thread, MAKING_NONE, t->loader);
    if (batch && t->samples < 0) /* it was not by way of the stand-in that it was collated */
        core_missing(SIGNAL_COLLATE);
    uint32_t every = batches_every(f, t);
    f->every = samples_every(t) / every; /* of the batches that are timed */
    if (every > 1)
        go_to_rest(f, fetcher, every - 1);
    if (is_worker) {
        if (!t->end_ns)
            t->end_ns = leat_now_ns();
        record_batch(f, batch);
        idle_since_ns = t->end_ns;
    }
    sampler_hear((t->end_ns ? t->end_ns : leat_now_ns()) - t->begin_ns, 1);
    if (making.asked)
        answer_sampler();
}

static PyObject *call_timed(struct traced_thread *thread, struct fetch *f, PyObject *fetcher,
                            PyObject *args, PyObject *kwargs)
{
    int dressed = dress(f, fetcher);
    batch_begins(thread, (struct timed *)f->stand_in, args);
    PyObject *batch = call_plain(f, fetcher, args, kwargs);
    if (dressed)
        undress(f, fetcher);
    batch_ends(thread, f, fetcher, batch);
    return batch;
}

static PyObject *fetch_call(struct fetch *f, PyObject *args, PyObject *kwargs)
{
    PyObject *fetcher = f->fetcher ? PyWeakref_GetObject(f->fetcher) : NULL;
    if (!fetcher || fetcher == Py_None) { /* cannot be: who calls this holds the fetcher */
        PyErr_SetString(PyExc_RuntimeError, "leat: the fetcher is gone");
        return NULL;
    }
    struct traced_thread *thread = traced_thread();
    int open = ((struct timed *)f->stand_in)->open; /* another thread is in the same fetcher */
    PyObject *batch;
    Py_INCREF(fetcher);
    Py_INCREF(f);
    if (thread->in_fetcher || open || !leat_recording())
        batch = call_plain(f, fetcher, args, kwargs);
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

/* A Fetch for the fetcher, owned; not in its place yet. */
static PyObject *new_fetch(PyObject *fetcher, PyObject *count, struct timed *t, int iterable)
{
    struct fetch *f = PyObject_GC_New(struct fetch, (PyTypeObject *)fetch_type);
    if (!f)
        return NULL;
    memset((char *)f + sizeof(PyObject), 0, sizeof *f - sizeof(PyObject));
    core_keep(&f->stand_in, (PyObject *)t);
    core_keep(&f->count, count);
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

static PyObject *core_time_fetcher(PyObject *self, PyObject *args)
{
    PyObject *fetcher, *count;
    unsigned loader;
    int iterable, single;
    if (!PyArg_ParseTuple(args, "OOIpp", &fetcher, &count, &loader, &iterable, &single))
        return NULL;
    struct timed *t = timed_new(loader, single);
    PyObject *fetch = t ? new_fetch(fetcher, count, t, iterable) : NULL;
    int bad = !fetch || take_place((struct fetch *)fetch, fetcher) < 0;
    Py_XDECREF(fetch);
    Py_XDECREF(t);
    if (bad)
        return NULL;
    dressed_any = 1;
    idle_since_ns = 0; /* what lies between two iterations is no wait for indices */
    Py_RETURN_NONE;
}

/* torch's create_fetcher, which may run user code (iter(dataset)): so it has no frame of leat's. */
static PyObject *core_create_fetcher(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct traced_thread *thread = traced_thread();
    thread->creating++;
    PyObject *fetcher = PyObject_Call(create_original, args, kwargs);
    thread->creating--;
    if (fetcher && create_dress && !thread->creating && !thread->in_fetcher) {
        PyObject *done = PyObject_CallFunctionObjArgs(create_dress, fetcher, NULL);
        if (!done)
            PyErr_Clear();
        Py_XDECREF(done);
    }
    return fetcher;
}

static PyObject *core_on_create(PyObject *self, PyObject *args)
{
    PyObject *original, *callable, *collate;
    if (!PyArg_ParseTuple(args, "OOO", &original, &callable, &collate))
        return NULL;
    core_keep(&create_original, original);
    core_keep(&create_dress, callable);
    core_keep(&torch_collate, collate);
    Py_RETURN_NONE;
}

static PyObject *core_worker(PyObject *self, PyObject *args)
{
    int id, loader;
    if (!PyArg_ParseTuple(args, "ii", &id, &loader))
        return NULL;
    is_worker = 1;
    dressed_any = 0; /* the parent's own, before a fork */
    worker_id = id;
    worker_loader = loader;
    leat_recorder_worker_loader(loader);
    Py_RETURN_NONE;
}

static PyObject *core_on_missing(PyObject *self, PyObject *callable)
{
    core_keep(&on_missing, callable);
    Py_RETURN_NONE;
}

static PyObject *core_made_now(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("iiKI", making.part, making.tid, (unsigned long long)making.ident,
                         making.loader);
}

/* clang-format off */
static PyMethodDef making_methods[] = {
    {"create_fetcher", (PyCFunction)(void (*)(void))core_create_fetcher,
     METH_VARARGS | METH_KEYWORDS, "torch's create_fetcher, and a look at what it made."},
    {"on_create", core_on_create, METH_VARARGS,
     "on_create(original, callable, collate): callable(fetcher) for each that is made."},
    {"time_fetcher", core_time_fetcher, METH_VARARGS,
     "time_fetcher(fetcher, count, loader, iterable, single)."},
    {"worker", core_worker, METH_VARARGS,
     "worker(id, loader): this process makes its batches; -1: not known."},
    {"on_missing", core_on_missing, METH_O, "on_missing(callable): callable(what), once for each."},
    {"made_now", core_made_now, METH_NOARGS, "made_now() -> (part or -1, tid, ident, loader)."},
    {NULL, NULL, 0, NULL},
};
/* clang-format on */

int making_add(PyObject *module)
{
    str_fetch = PyUnicode_InternFromString("fetch");
    str_dataset = PyUnicode_InternFromString("dataset");
    str_dataset_iter = PyUnicode_InternFromString("dataset_iter");
    str_collate_fn = PyUnicode_InternFromString("collate_fn");
    fetch_type = PyType_FromSpec(&fetch_spec);
    if (!str_fetch || !str_dataset || !str_dataset_iter || !str_collate_fn || !fetch_type ||
        timed_init() < 0)
        return -1;
    return PyModule_AddFunctions(module, making_methods);
}
