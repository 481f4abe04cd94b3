/* timed_dataset.c: a proxy of a dataset and of a collate function; see hook_fetcher.c.
 *
 * One object is both. dataset[i], or next() of the dataset's iterator, makes a sample; a call of
 * the object is the collate. All other attributes are the dataset's.
 */
#include "timed_dataset.h"

#include <string.h>

static PyObject *timed_type, *str_getitems;

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

/* The garbage collector has cleared this proxy; no one should use it then. */
static PyObject *cleared(void)
{
    PyErr_SetString(PyExc_RuntimeError, "leat: the fetcher is gone");
    return NULL;
}

static void add_kept(struct timed *t)
{
    leat_parts(t->loader, LEAT_PART_SAMPLE, t->kept_ns, t->kept);
    t->kept = 0;
}

static void keep(struct timed *t, uint64_t ns)
{
    t->kept_ns[t->kept++] = ns;
    if (t->kept == KEPT_TIMES)
        add_kept(t);
}

static PyObject *sample_ends(struct timed *t, PyObject *sample)
{
    if (sample) {
        uint64_t now = leat_now_ns();
        keep(t, now - t->last_ns);
        t->last_ns = now;
        t->timed++;
        if (now - t->begin_ns >= LONG_BATCH_NS) { /* the batch may take much longer */
            add_kept(t);
            profiler_batch_time(now - t->begin_ns, 0);
        }
    }
    return sample;
}

static PyObject *timed_subscript(struct timed *t, PyObject *key)
{
    return t->data ? sample_ends(t, PyObject_GetItem(t->data, key)) : cleared();
}

static PyObject *timed_next(struct timed *t)
{
    return t->data ? sample_ends(t, PyIter_Next(t->data)) : cleared();
}

static Py_ssize_t timed_length(struct timed *t)
{
    return t->data ? PyObject_Size(t->data) : (cleared(), -1);
}

static PyObject *timed_iter(PyObject *self)
{
    Py_INCREF(self);
    return self;
}

static PyObject *timed_getattr(struct timed *t, PyObject *name)
{
    if (!t->data)
        return cleared();
    PyObject *value = PyObject_GetAttr(t->data, name);
    if (value && (name == str_getitems || PyUnicode_Compare(name, str_getitems) == 0))
        t->whole = 1;
    return value;
}

/* The samples of a batch made at once are counted with their mean. */
static void count_whole(struct timed *t, uint64_t ns)
{
    uint64_t mean = t->samples > 0 ? ns / (uint64_t)t->samples : 0;
    for (Py_ssize_t i = 0; i < t->samples; i++)
        keep(t, mean);
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
    add_kept(t);
}

static PyObject *timed_call(struct timed *t, PyObject *args, PyObject *kwargs)
{
    if (!t->collate)
        return cleared();
    struct traced_thread *thread = traced_thread();
    if (!t->open || t->samples >= 0 || !thread->in_fetcher) /* not the call by the timed fetch */
        return PyObject_Call(t->collate, args, kwargs);
    fetch_ends(t, args);
    thread->batch_samples = t->trusted ? t->samples : 0;
    set_current_work(thread, WORK_COLLATE, t->loader);
    PyObject *batch = PyObject_Call(t->collate, args, kwargs);
    t->end_ns = leat_now_ns();
    if (batch)
        leat_part(t->loader, LEAT_PART_COLLATE, t->end_ns - t->fetched_ns, 0);
    return batch;
}

static PyType_Slot timed_slots[] = {
    {Py_tp_dealloc,   timed_dealloc                           },
    {Py_tp_traverse,  timed_traverse                          },
    {Py_tp_clear,     timed_clear                             },
    {Py_tp_call,      timed_call                              },
    {Py_tp_getattro,  timed_getattr                           },
    {Py_tp_iter,      timed_iter                              },
    {Py_tp_iternext,  timed_next                              },
    {Py_mp_subscript, timed_subscript                         },
    {Py_mp_length,    timed_length                            },
    {Py_tp_doc,       "A proxy of a dataset that measures it."},
    {0,               NULL                                    },
};

static PyType_Spec timed_spec = {
    .name = "leat._record.Timed",
    .basicsize = sizeof(struct timed),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = timed_slots,
};

struct timed *timed_new(uint32_t loader, int single)
{
    struct timed *t = PyObject_GC_New(struct timed, (PyTypeObject *)timed_type);
    if (!t)
        return NULL;
    memset((char *)t + sizeof(PyObject), 0, sizeof *t - sizeof(PyObject));
    t->loader = loader;
    t->single = single;
    PyObject_GC_Track(t);
    return t;
}

void timed_begin(struct timed *t, PyObject *index)
{
    t->open = 1;
    t->asked = index && PyList_Check(index) ? PyList_Size(index) : 0;
    t->samples = -1;
    t->timed = 0;
    t->whole = 0;
    t->end_ns = 0;
    t->begin_ns = t->last_ns = leat_now_ns();
}

void timed_end(struct timed *t)
{
    t->open = 0;
    add_kept(t);
}

int timed_init(void)
{
    timed_type = PyType_FromSpec(&timed_spec);
    str_getitems = PyUnicode_InternFromString("__getitems__");
    return timed_type && str_getitems ? 0 : -1;
}
