/* _making.c: a batch in the making, timed from inside the fetcher that makes it.
 *
 * torch makes one fetcher for an iteration, in the worker or, with num_workers=0, in the process
 * itself, and calls its fetch(index). Each gets a `fetch` of its own here, a Fetch object. For as
 * long as a call lasts, and no longer, a stand-in takes the place of the fetcher's dataset (or of
 * its iterator) and of its collate function:
 *
 *     fetcher.fetch(index) ──► Fetch: mark SAMPLE; IDLE since the last batch (worker)
 *        class's own fetch
 *          dataset[i]      ──► Timed: the user's dataset[i]; SAMPLE ends, the next begins
 *          collate_fn(data)──► Timed: FETCH ends; mark COLLATE; the user's collate_fn; COLLATE
 *                          ◄── mark NONE; WORKER_FETCH (worker)
 *
 * Between two batches the fetcher is as torch made it, and user code never meets a stand-in: it has
 * no way to the fetcher. As all of this is C, tracebacks show the frames they always showed.
 *
 * A stand-in costs some 100 ns a sample, so where samples take less than QUICK_NS it stands in for
 * the dataset in every SELDOM-th batch only. SAMPLE then counts the samples that were timed; FETCH
 * and COLLATE count every batch. A dataset that is asked for a whole batch (__getitems__) shows no
 * single samples: each is counted with the mean of its batch.
 */
#include "_core_python.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    QUICK_NS = 10000, /* 100 ns are 1 % of it */
    SELDOM = 16 /* 1 % of a 3 us sample, the quickest of a TensorDataset, is 30 ns; 100/16 = 6 */
};

/* Stands in for a dataset or its iterator, and for a collate function. */
struct timed {
    PyObject_HEAD PyObject *data; /* owned; the dataset, or its iterator */
    PyObject *collate;            /* owned */
    uint32_t loader;
    Py_ssize_t asked;   /* indices of this batch; 0: not a list */
    int single;         /* the fetcher asks for one sample and does not make lists of them */
    int whole;          /* __getitems__ was asked for */
    uint32_t timed;     /* samples of this batch that were timed */
    Py_ssize_t samples; /* handed to collate; -1 before */
    uint64_t begin_ns, last_ns, fetched_ns, end_ns;
};

struct fetch {
    PyObject_HEAD PyObject *function; /* owned; fetch() of the fetcher's class */
    PyObject *fetcher;                /* owned; a weak reference: the fetcher owns this */
    PyObject *stand_in;               /* owned; a struct timed */
    PyObject *count;                  /* owned; callable(batch, expected) -> samples */
    int iterable;
    uint32_t turn, every;
};

static struct making making = {.part = MAKING_NONE};
static int worker_id = -1; /* -1: this process is no worker */
static int64_t worker_loader = LOADER_UNKNOWN;
static uint64_t idle_since_ns; /* of the worker; 0: not between two batches */
static PyObject *fetch_type, *timed_type;
static PyObject *create_original, *create_dress; /* owned */
static PyObject *str_fetch, *str_dataset, *str_dataset_iter, *str_collate_fn, *str_getitems;

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
    idle_since_ns = 0;
}

/* The first thread that comes has the mark until it is done. */
static void mark(struct here *here, enum making_part part, uint32_t loader)
{
    if (!here->tid) {
        here->tid = (int32_t)syscall(SYS_gettid);
        here->ident = PyThread_get_thread_ident();
    }
    if (making.part != MAKING_NONE && making.tid != here->tid)
        return;
    making.tid = here->tid;
    making.ident = here->ident;
    making.thread_state = PyThreadState_Get();
    making.loader = loader;
    making.part = part;
}

static int timed_traverse(struct timed *t, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(t));
    Py_VISIT(t->data);
    Py_VISIT(t->collate);
    return 0;
}

static int timed_clear(struct timed *t)
{
    Py_CLEAR(t->data);
    Py_CLEAR(t->collate);
    return 0;
}

static void timed_dealloc(struct timed *t)
{
    PyTypeObject *type = Py_TYPE(t);
    PyObject_GC_UnTrack(t);
    timed_clear(t);
    PyObject_GC_Del(t);
    Py_DECREF(type);
}

/* A stand-in that the garbage collector has emptied is out of use; this is for the impossible. */
static PyObject *emptied(void)
{
    PyErr_SetString(PyExc_RuntimeError, "leat: the fetcher is gone");
    return NULL;
}

static PyObject *sample_ends(struct timed *t, PyObject *sample)
{
    if (sample) {
        uint64_t now = leat_now_ns();
        leat_part(t->loader, LEAT_PART_SAMPLE, now - t->last_ns, 0);
        t->last_ns = now;
        t->timed++;
    }
    return sample;
}

static PyObject *timed_subscript(struct timed *t, PyObject *key)
{
    return t->data ? sample_ends(t, PyObject_GetItem(t->data, key)) : emptied();
}

static PyObject *timed_next(struct timed *t)
{
    return t->data ? sample_ends(t, PyIter_Next(t->data)) : emptied();
}

static Py_ssize_t timed_length(struct timed *t)
{
    return t->data ? PyObject_Size(t->data) : (emptied(), -1);
}

static PyObject *timed_iter(PyObject *self)
{
    Py_INCREF(self);
    return self;
}

static PyObject *timed_getattr(struct timed *t, PyObject *name)
{
    if (!t->data)
        return emptied();
    PyObject *value = PyObject_GetAttr(t->data, name);
    if (value && (name == str_getitems || PyUnicode_Compare(name, str_getitems) == 0))
        t->whole = 1;
    return value;
}

/* The samples of a batch that came as a whole; by their mean, as no single one was seen. */
static void count_whole(struct timed *t, uint64_t ns)
{
    uint64_t mean = t->samples > 0 ? ns / (uint64_t)t->samples : 0;
    for (Py_ssize_t i = 0; i < t->samples; i++)
        leat_part(t->loader, LEAT_PART_SAMPLE, mean, 0);
}

static void fetch_ends(struct timed *t, PyObject *args)
{
    PyObject *data = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    t->fetched_ns = leat_now_ns();
    if (t->single)
        t->samples = 1;
    else
        t->samples = data && PyList_Check(data) ? PyList_Size(data) : t->asked;
    leat_part(t->loader, LEAT_PART_FETCH, t->fetched_ns - t->begin_ns, 0);
    if (t->whole && !t->timed)
        count_whole(t, t->fetched_ns - t->begin_ns);
}

static PyObject *timed_call(struct timed *t, PyObject *args, PyObject *kwargs)
{
    if (!t->collate)
        return emptied();
    if (t->samples >= 0) /* not torch's one call */
        return PyObject_Call(t->collate, args, kwargs);
    fetch_ends(t, args);
    mark(core_here(), MAKING_COLLATE, t->loader);
    PyObject *batch = PyObject_Call(t->collate, args, kwargs);
    t->end_ns = leat_now_ns();
    if (batch)
        leat_part(t->loader, LEAT_PART_COLLATE, t->end_ns - t->fetched_ns, 0);
    return batch;
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

/* Keeps what the attribute holds in *place, and puts the stand-in there. Refuses when it stands
 * there already: another thread is in the same fetcher. */
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

static void stand_back(PyObject *fetcher, PyObject *name, PyObject *value)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (PyObject_SetAttr(fetcher, name, value) < 0)
        PyErr_Clear();
    PyErr_Restore(type, error, trace);
}

/* Puts the stand-in where this batch needs it: 1 for collate, 2 for the data. */
static int dress(struct fetch *f, PyObject *fetcher)
{
    struct timed *t = (struct timed *)f->stand_in;
    int dressed = 0;
    if (stand_in(fetcher, str_collate_fn, f->stand_in, &t->collate) == 0) {
        dressed = 1;
        if (f->turn++ % f->every == 0) {
            PyObject *name = f->iterable ? str_dataset_iter : str_dataset;
            if (stand_in(fetcher, name, f->stand_in, &t->data) == 0)
                dressed |= 2;
        }
    }
    if (PyErr_Occurred())
        PyErr_Clear();
    return dressed;
}

static void undress(struct fetch *f, PyObject *fetcher, int dressed)
{
    struct timed *t = (struct timed *)f->stand_in;
    if (dressed & 1)
        stand_back(fetcher, str_collate_fn, t->collate);
    if (dressed & 2)
        stand_back(fetcher, f->iterable ? str_dataset_iter : str_dataset, t->data);
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

static void batch_begins(struct here *here, struct timed *t, PyObject *args)
{
    PyObject *index = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    t->asked = index && PyList_Check(index) ? PyList_Size(index) : 0;
    t->begin_ns = t->last_ns = leat_now_ns();
    t->samples = -1;
    t->timed = 0;
    t->whole = 0;
    t->end_ns = 0;
    if (idle_since_ns)
        leat_part(t->loader, LEAT_PART_IDLE, t->begin_ns - idle_since_ns, 0);
    here->making = 1;
    mark(here, MAKING_SAMPLE, t->loader);
}

static void batch_ends(struct here *here, struct fetch *f, PyObject *batch)
{
    struct timed *t = (struct timed *)f->stand_in;
    here->making = 0;
    mark(here, MAKING_NONE, t->loader);
    if (!t->end_ns)
        t->end_ns = leat_now_ns();
    if (t->samples > 0)
        f->every = t->fetched_ns - t->begin_ns < (uint64_t)t->samples * QUICK_NS ? SELDOM : 1;
    if (worker_id >= 0) {
        record_batch(f, batch);
        idle_since_ns = t->end_ns;
    }
    if (making.asked)
        sampler_answer();
}

static PyObject *fetch_call(struct fetch *f, PyObject *args, PyObject *kwargs)
{
    PyObject *fetcher = f->fetcher ? PyWeakref_GetObject(f->fetcher) : NULL;
    struct here *here = core_here();
    if (!fetcher || fetcher == Py_None)
        return emptied();
    Py_INCREF(fetcher);
    Py_INCREF(f);
    PyObject *batch;
    int dressed = here->making || !leat_recording() ? 0 : dress(f, fetcher);
    if (!dressed) {
        batch = call_plain(f, fetcher, args, kwargs);
    } else {
        batch_begins(here, (struct timed *)f->stand_in, args);
        batch = call_plain(f, fetcher, args, kwargs);
        undress(f, fetcher, dressed);
        batch_ends(here, f, batch);
    }
    Py_DECREF(f);
    Py_DECREF(fetcher);
    return batch;
}

static PyType_Slot timed_slots[] = {
    {Py_tp_dealloc,   timed_dealloc             },
    {Py_tp_traverse,  timed_traverse            },
    {Py_tp_clear,     timed_clear               },
    {Py_tp_call,      timed_call                },
    {Py_tp_getattro,  timed_getattr             },
    {Py_tp_iter,      timed_iter                },
    {Py_tp_iternext,  timed_next                },
    {Py_mp_subscript, timed_subscript           },
    {Py_mp_length,    timed_length              },
    {Py_tp_doc,       "Stands in for a dataset."},
    {0,               NULL                      },
};

static PyType_Spec timed_spec = {
    .name = "leat._core.Timed",
    .basicsize = sizeof(struct timed),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = timed_slots,
};

static PyType_Slot fetch_slots[] = {
    {Py_tp_dealloc,  fetch_dealloc             },
    {Py_tp_traverse, fetch_traverse            },
    {Py_tp_clear,    fetch_clear               },
    {Py_tp_call,     fetch_call                },
    {Py_tp_doc,      "A fetcher's timed fetch."},
    {0,              NULL                      },
};

static PyType_Spec fetch_spec = {
    .name = "leat._core.Fetch",
    .basicsize = sizeof(struct fetch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = fetch_slots,
};

static PyObject *new_fetch(PyObject *fetcher, PyObject *count, uint32_t loader, int iterable,
                           int single)
{
    struct timed *t = PyObject_GC_New(struct timed, (PyTypeObject *)timed_type);
    struct fetch *f = t ? PyObject_GC_New(struct fetch, (PyTypeObject *)fetch_type) : NULL;
    if (t) {
        memset((char *)t + sizeof(PyObject), 0, sizeof *t - sizeof(PyObject));
        t->loader = loader;
        t->single = single;
        PyObject_GC_Track(t);
    }
    if (!f) {
        Py_XDECREF(t);
        return NULL;
    }
    memset((char *)f + sizeof(PyObject), 0, sizeof *f - sizeof(PyObject));
    f->stand_in = (PyObject *)t;
    f->iterable = iterable;
    f->every = 1;
    f->count = count;
    Py_INCREF(count);
    PyObject_GC_Track(f);
    f->function = PyObject_GetAttr((PyObject *)Py_TYPE(fetcher), str_fetch);
    f->fetcher = PyWeakref_NewRef(fetcher, NULL);
    if (f->function && f->fetcher)
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
    PyObject *fetch = new_fetch(fetcher, count, loader, iterable, single);
    int bad = fetch ? PyObject_SetAttr(fetcher, str_fetch, fetch) : -1;
    Py_XDECREF(fetch);
    if (bad)
        return NULL;
    idle_since_ns = 0; /* what lies between two iterations is no wait for indices */
    Py_RETURN_NONE;
}

/* torch's create_fetcher, which may run user code (iter(dataset)): so it has no frame of leat's. */
static PyObject *core_create_fetcher(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct here *here = core_here();
    here->creating++;
    PyObject *fetcher = PyObject_Call(create_original, args, kwargs);
    here->creating--;
    if (fetcher && create_dress && !here->creating && !here->making) {
        PyObject *done = PyObject_CallFunctionObjArgs(create_dress, fetcher, NULL);
        if (!done)
            PyErr_Clear();
        Py_XDECREF(done);
    }
    return fetcher;
}

static PyObject *core_on_create(PyObject *self, PyObject *args)
{
    PyObject *original, *callable;
    if (!PyArg_ParseTuple(args, "OO", &original, &callable))
        return NULL;
    core_keep(&create_original, original);
    core_keep(&create_dress, callable);
    Py_RETURN_NONE;
}

static PyObject *core_worker(PyObject *self, PyObject *args)
{
    int id, loader;
    if (!PyArg_ParseTuple(args, "ii", &id, &loader))
        return NULL;
    worker_id = id;
    worker_loader = loader;
    leat_recorder_worker_loader(loader);
    Py_RETURN_NONE;
}

static PyObject *core_made_now(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("iiKI", making.part, making.tid, (unsigned long long)making.ident,
                         making.loader);
}

static PyMethodDef making_methods[] = {
    {"create_fetcher", (PyCFunction)(void (*)(void))core_create_fetcher,
     METH_VARARGS | METH_KEYWORDS,                                                     "torch's create_fetcher, and a look at what it made."},
    {"on_create",      core_on_create,                                   METH_VARARGS,
     "on_create(original, callable): callable(fetcher) for each that create_fetcher() makes."                                               },
    {"time_fetcher",   core_time_fetcher,                                METH_VARARGS,
     "time_fetcher(fetcher, count, loader, iterable, single)."                                                                              },
    {"worker",         core_worker,                                      METH_VARARGS, "worker(id, loader): this process makes its batches."},
    {"made_now",       core_made_now,                                    METH_NOARGS,  "made_now() -> (part or -1, tid, ident, loader)."    },
    {NULL,             NULL,                                             0,            NULL                                                 },
};

static int make_names(void)
{
    str_fetch = PyUnicode_InternFromString("fetch");
    str_dataset = PyUnicode_InternFromString("dataset");
    str_dataset_iter = PyUnicode_InternFromString("dataset_iter");
    str_collate_fn = PyUnicode_InternFromString("collate_fn");
    str_getitems = PyUnicode_InternFromString("__getitems__");
    return str_fetch && str_dataset && str_dataset_iter && str_collate_fn && str_getitems ? 0 : -1;
}

int making_add(PyObject *module)
{
    timed_type = PyType_FromSpec(&timed_spec);
    fetch_type = PyType_FromSpec(&fetch_spec);
    if (!timed_type || !fetch_type || make_names() < 0)
        return -1;
    return PyModule_AddFunctions(module, making_methods);
}
