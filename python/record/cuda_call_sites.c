/* cuda_call_sites.c: the call sites at which a training copies between host and GPU, or waits for
 * it.
 *
 *     thread of the training                              call_sites_report(): with the GIL, when a
 *     .to("cuda"), .item(), ...                           call site is new, a few times a second,
 *       └ libleat-probe.so counts the call                and at the end:
 *           └ count_call(): reads its own stack,            for each row with new counts:
 *             adds to the table ───────────────────────►      the user's line (user_lines.h), once;
 *                                                             the counts to the recorder
 *
 * The probe calls count_call() in the thread that has copied or waited, usually without the GIL. It
 * calls nothing of Python except to get the thread's state, reads the stack from memory (stack_own)
 * and adds to a table of fixed size: every call is counted, none is sampled. Threads without Python
 * code, such as those of autograd, are ignored; cuda_calls has their calls too.
 *
 * After a fork the child has no watcher, and starts with an empty table when it sets one.
 */
#include "user_lines.h"

#include "record/call_site_table.h"
#include "record/probe_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { FRAME_WORDS = sizeof(struct stack_frame) / sizeof(uint64_t) };
_Static_assert(FRAME_WORDS == 2 && STACK_FRAMES * FRAME_WORDS == CALL_SITE_WORDS,
               "a stack fits a row of the table");

static struct call_site_table table;
static struct lines *lines;       /* NULL: not watching */
static _Atomic int new_call_site; /* a call site is new: find its line while its code exists */

/* What was reported of each row of the table. With the GIL. */
static struct reported {
    int found; /* 1: its line was found; -1: it has none */
    struct call_site at;
    uint64_t n, ns, bytes;
} reported[CALL_SITES];

static void count_call(enum leat_cuda_class class, uint64_t ns, uint64_t bytes)
{
    struct stack_frame frames[STACK_FRAMES];
    int n = stack_own(frames, STACK_FRAMES);
    if (n > 0 && call_site_add(&table, class, (const uint64_t *)frames, n * FRAME_WORDS,
                               leat_recorder_steps(), ns, bytes))
        new_call_site = 1;
}

static void find_line(const struct call_site_row *row, struct reported *t)
{
    struct stack_frame frames[STACK_FRAMES];
    memcpy(frames, row->stack, (size_t)row->words * sizeof *row->stack);
    t->found = lines_find(lines, frames, row->words / FRAME_WORDS, &t->at) ? 1 : -1;
}

static void report_row(const struct call_site_row *row, struct reported *t)
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

void call_sites_report(void)
{
    static int busy; /* finding a line runs Python code, which may switch to another thread */
    if (!lines || busy)
        return;
    busy = 1;
    new_call_site = 0;
    for (uint32_t i = 0; i < CALL_SITES; i++) {
        const struct call_site_row *row = call_site_find(&table, i);
        if (row)
            report_row(row, &reported[i]);
    }
    busy = 0;
}

int call_sites_pending(void)
{
    return new_call_site;
}

/* In the child of a fork. References to code objects are kept. */
static void forget_in_child(void)
{
    if (!lines)
        return;
    lines = NULL;
    new_call_site = 0;
    memset(&table, 0, sizeof table);
    memset(reported, 0, sizeof reported);
}

static leat_probe_watch_fn find_probe(void)
{
    return (leat_probe_watch_fn)dlsym(RTLD_DEFAULT, LEAT_PROBE_WATCH);
}

static PyObject *py_has_probe(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(find_probe() != NULL);
}

static PyObject *py_watch_call_sites(PyObject *self, PyObject *describe)
{
    static int handler_set;
    leat_probe_watch_fn watch = find_probe();
    if (lines)
        Py_RETURN_TRUE;
    if (!watch || stack_open() < 0 || !stack_known() || !(lines = lines_new(describe)))
        Py_RETURN_FALSE;
    if (!handler_set)
        handler_set = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    watch(count_call);
    Py_RETURN_TRUE;
}

static PyObject *py_report_call_sites(PyObject *self, PyObject *unused)
{
    call_sites_report();
    Py_RETURN_NONE;
}

static PyMethodDef call_site_methods[] = {
    {"has_probe",         py_has_probe,         METH_NOARGS, "has_probe() -> whether libleat-probe.so is loaded."},
    {"watch_call_sites",  py_watch_call_sites,  METH_O,
     "watch_call_sites(describe): lines that copy to and from the GPU, or wait for it, are counted "
     "from now on,"
     " where the probe is; False when they cannot be."                                                           },
    {"report_call_sites", py_report_call_sites, METH_NOARGS,
     "report_call_sites(): passes the counts to the recorder; close() does so too."                              },
    {NULL,                NULL,                 0,           NULL                                                },
};

int cuda_call_sites_add(PyObject *module)
{
    return PyModule_AddFunctions(module, call_site_methods);
}
