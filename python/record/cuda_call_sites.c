/* cuda_call_sites.c: at which lines a training copies between host and GPU, and waits for it.
 *
 *     thread of the training                              with the GIL, when a place is new, a few
 *     .to("cuda"), .item(), ...                           times a second, at the end: places_tell()
 *       └ libleat-probe.so counts the call                  for each place with something new:
 *           └ seen(): reads its own stack,                    the line of the user (user_lines.h),
 *             adds to the table of places ──────────────►     once; its sums to the recorder
 *
 * The probe calls seen() in the thread that has just copied or waited, mostly without the GIL. It
 * calls nothing of Python but for the thread's state, reads the stack as it lies in memory
 * (stack_own) and adds to a table of fixed size: every call is counted, none is sampled. Threads
 * without Python code, as those of autograd, are passed over: cuda_calls has their calls too.
 *
 * fork: the probe forgets whom to call in the child, which counts in a table of its own when it is
 * told to watch.
 */
#include "user_lines.h"

#include "record/place_table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { FRAME_WORDS = sizeof(struct stack_frame) / sizeof(uint64_t) };
_Static_assert(FRAME_WORDS == 2 && STACK_FRAMES * FRAME_WORDS == PLACE_WORDS,
               "a stack fits a row of the table");

static struct place_table table;
static struct lines *lines; /* NULL: nobody watches */
static _Atomic int asked;   /* a place is new: its line is to be found while its code is there */

/* What has been told of a row. With the GIL. */
static struct told {
    int found; /* 1: the line is known; -1: it has none */
    struct lines_place at;
    uint64_t n, ns, bytes;
} told[PLACE_ROWS];

static void seen(enum leat_cuda_class class, uint64_t ns, uint64_t bytes)
{
    struct stack_frame frames[STACK_FRAMES];
    int n = stack_own(frames, STACK_FRAMES);
    if (n > 0 && place_table_add(&table, class, (const uint64_t *)frames, n * FRAME_WORDS,
                                 leat_recorder_steps(), ns, bytes))
        asked = 1;
}

static void find_line(const struct place_row *row, struct told *t)
{
    struct stack_frame frames[STACK_FRAMES];
    memcpy(frames, row->stack, (size_t)row->words * sizeof *row->stack);
    t->found = lines_find(lines, frames, row->words / FRAME_WORDS, &t->at) ? 1 : -1;
}

static void tell_row(const struct place_row *row, struct told *t)
{
    uint64_t n = atomic_load(&row->n), ns = atomic_load(&row->ns), bytes = atomic_load(&row->bytes);
    if (n == t->n)
        return;
    if (!t->found)
        find_line(row, t);
    struct leat_cuda_line line = {.what = (enum leat_cuda_class)row->class,
                                  .line = t->at.line,
                                  .file = t->at.file,
                                  .function = t->at.function,
                                  .n = n - t->n,
                                  .ns = ns - t->ns,
                                  .bytes = bytes - t->bytes,
                                  .steps = atomic_load(&row->steps)};
    if (t->found > 0)
        leat_recorder_cuda_line(&line);
    t->n = n;
    t->ns = ns;
    t->bytes = bytes;
}

void places_tell(void)
{
    static int busy; /* finding a line runs Python, which may let another thread come here */
    if (!lines || busy)
        return;
    busy = 1;
    asked = 0;
    for (uint32_t i = 0; i < PLACE_ROWS; i++) {
        const struct place_row *row = place_table_find(&table, i);
        if (row)
            tell_row(row, &told[i]);
    }
    busy = 0;
}

int places_asked(void)
{
    return asked;
}

/* In the child of a fork: the codes that the parent knew are left alone. */
static void forget_in_child(void)
{
    if (!lines)
        return;
    lines = NULL;
    asked = 0;
    memset(&table, 0, sizeof table);
    memset(told, 0, sizeof told);
}

static leat_probe_watch_fn find_probe(void)
{
    return (leat_probe_watch_fn)dlsym(RTLD_DEFAULT, LEAT_PROBE_WATCH);
}

static PyObject *core_has_probe(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(find_probe() != NULL);
}

static PyObject *core_watch_places(PyObject *self, PyObject *describe)
{
    static int handler_set;
    leat_probe_watch_fn watch = find_probe();
    if (lines)
        Py_RETURN_TRUE;
    if (!watch || stack_open() < 0 || !stack_known() || !(lines = lines_new(describe)))
        Py_RETURN_FALSE;
    if (!handler_set)
        handler_set = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    watch(seen);
    Py_RETURN_TRUE;
}

static PyObject *core_tell_places(PyObject *self, PyObject *unused)
{
    places_tell();
    Py_RETURN_NONE;
}

static PyMethodDef places_methods[] = {
    {"has_probe",    core_has_probe,    METH_NOARGS,
     "has_probe() -> whether libleat-probe.so is loaded."                           },
    {"watch_places", core_watch_places, METH_O,
     "watch_places(describe): lines that copy to and from the GPU, or wait for it, are counted "
     "from now on,"
     " where the probe is; False when they cannot be."                              },
    {"tell_places",  core_tell_places,  METH_NOARGS,
     "tell_places(): puts what was counted where leat sees it. close() does so too."},
    {NULL,           NULL,              0,           NULL                           },
};

int places_add(PyObject *module)
{
    return PyModule_AddFunctions(module, places_methods);
}
