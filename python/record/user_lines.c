/* user_lines.c: see user_lines.h.
 *
 * A stack sample is a list of addresses of code objects, with the position in each. Python
 * describes each new code object once, between two batches. Stacks that contain an undescribed one
 * wait until then; later ones are added at once.
 */
#include "user_lines.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CODES = 4096, /* a power of two; a dataset and its libraries have some hundred */
    /* Different stacks that wait for descriptions. They come from one batch, the first, at a
     * hundred a second. A page of this memory is used only when it is needed. */
    MAX_WAITING = 256,
    /* Of the recorder's 512 lines: the others are for the user's lines. */
    MAX_LIBRARY_LINES = 384
};

/* As in profile/lines.py. */
enum code_kind { USER, INLINE, LIBRARY, DECODE, FETCHER, LOADER, HOOK };

struct code { /* never freed; owns a reference to the code object, so the address stays valid */
    uintptr_t address;
    enum code_kind kind;
    const char *file, *function;
    int n;
    struct {
        int position, line, decodes;
        int reported; /* as a library line; under the lock */
    } starts[];
};

struct lines {
    PyObject *describe; /* owned; set once */
    pthread_mutex_t lock;
    /* Under the lock. */
    int n_codes, n_waiting, n_library_lines;
    struct code *codes[MAX_CODES]; /* by address, open addressing */
    struct stack_sample waiting[MAX_WAITING];
};

/* With the lock. NULL: not described. */
static struct code *find_code(struct lines *l, uintptr_t address)
{
    unsigned at = (unsigned)(address >> 4) * 2654435761u % MAX_CODES;
    while (l->codes[at] && l->codes[at]->address != address)
        at = (at + 1) % MAX_CODES;
    return l->codes[at];
}

static void add_code(struct lines *l, struct code *code)
{
    unsigned at = (unsigned)(code->address >> 4) * 2654435761u % MAX_CODES;
    while (l->codes[at])
        at = (at + 1) % MAX_CODES;
    l->codes[at] = code;
    l->n_codes++;
}

static int start_of(const struct code *code, int position)
{
    int i = 0;
    while (i + 1 < code->n && code->starts[i + 1].position <= position)
        i++;
    return i;
}

/* A frame of a stack, with the description of its code. */
struct code_line {
    const struct code *code;
    int start; /* index into starts */
};

static int line_of(struct code_line at)
{
    return at.code->n ? at.code->starts[at.start].line : 0;
}

/* With the lock. The i-th frame of a stack; code is NULL if the frame is to be ignored. */
static struct code_line frame_line(struct lines *l, const struct stack_sample *stack, int i)
{
    const struct stack_frame *frame = &stack->frames[i];
    struct code_line at = {frame->code ? find_code(l, frame->code) : NULL, 0};
    if (at.code && at.code->kind == HOOK)
        at.code = NULL;
    if (at.code)
        at.start = start_of(at.code, frame->position);
    return at;
}

static int add_line(const struct stack_sample *stack, struct code_line at, int below, int decodes)
{
    struct leat_line line = {.loader = stack->loader,
                             .part = stack->part,
                             .below = below,
                             .line = line_of(at),
                             .file = at.code->file,
                             .function = at.code->function,
                             .library = at.code->kind > INLINE,
                             .read_ns = stack->ns[READING],
                             .blocked_ns = stack->ns[BLOCKED],
                             .decode_ns = decodes ? stack->ns[RUNNING] : 0};
    line.ns = stack->ns[RUNNING] + line.read_ns + line.blocked_ns;
    return leat_recorder_line(&line);
}

/* Libraries have many lines that are seen once. They must not fill the table. */
static int library_line_fits(struct lines *l, struct code_line at)
{
    struct code *code = find_code(l, at.code->address);
    if (!code->n)
        return 0;
    if (!code->starts[at.start].reported && l->n_library_lines < MAX_LIBRARY_LINES) {
        code->starts[at.start].reported = 1;
        l->n_library_lines++;
    }
    return code->starts[at.start].reported;
}

/* The innermost line of a stack, and the innermost of the user's. */
struct stack_lines {
    struct code_line inner, user; /* code is NULL: none */
    int decodes;
};

/* With the lock. Frames above the fetcher, and the iterator that calls it, are not part of making a
 * batch. */
static struct stack_lines find_stack_lines(struct lines *l, const struct stack_sample *stack)
{
    struct code_line inner = {0}, user = {0};
    int decodes = 0;
    for (int i = 0; i < stack->n; i++) {
        struct code_line at = frame_line(l, stack, i);
        if (!at.code)
            continue;
        enum code_kind kind = at.code->kind;
        if (kind == LOADER || (inner.code && kind == FETCHER))
            break;
        /* A comprehension belongs to its line, if that line calls it. */
        if (user.code && (kind > INLINE || line_of(at) != line_of(user) ||
                          strcmp(at.code->file, user.code->file) != 0))
            break;
        if (!inner.code) {
            inner = at;
            decodes = at.code->n && at.code->starts[at.start].decodes;
        }
        decodes |= kind == DECODE;
        if (kind <= INLINE)
            user = at;
        if (kind == USER || kind == FETCHER)
            break;
    }
    return (struct stack_lines){inner, user, decodes};
}

/* With the lock. Adds a stack to the user's line, and to the innermost line if that is a library's
 * below it. */
static void add_stack(struct lines *l, const struct stack_sample *stack)
{
    struct stack_lines at = find_stack_lines(l, stack);
    if (!at.inner.code)
        return;
    int slot = at.user.code ? add_line(stack, at.user, -1, at.decodes) : -1;
    if (at.inner.code->kind > INLINE &&
        (!at.user.code || (slot >= 0 && library_line_fits(l, at.inner))))
        add_line(stack, at.inner, slot, at.decodes);
}

/* With the lock. Whether all code objects of a stack are described. */
static int is_known(struct lines *l, const struct stack_sample *stack)
{
    for (int i = 0; i < stack->n; i++)
        if (stack->frames[i].code && !find_code(l, stack->frames[i].code))
            return 0;
    return 1;
}

static int same_stack(const struct stack_sample *a, const struct stack_sample *b)
{
    return a->n == b->n && a->part == b->part && a->loader == b->loader &&
           memcmp(a->frames, b->frames, (size_t)a->n * sizeof *a->frames) == 0;
}

/* With the lock. Keeps a stack until its code objects are described. If the list is full, its time
 * is added to the last one of the list. */
static void keep_waiting(struct lines *l, const struct stack_sample *stack)
{
    int i = 0;
    while (i < l->n_waiting && !same_stack(&l->waiting[i], stack))
        i++;
    if (i == l->n_waiting && i < MAX_WAITING) {
        l->waiting[i] = *stack;
        l->n_waiting++;
        return;
    }
    if (i == MAX_WAITING)
        i--;
    for (int k = 0; k < THREAD_STATES; k++)
        l->waiting[i].ns[k] += stack->ns[k];
}

/* With the lock. Adds the waiting stacks whose code objects are described now. */
static void add_known_stacks(struct lines *l)
{
    int left = 0;
    for (int i = 0; i < l->n_waiting; i++) {
        if (is_known(l, &l->waiting[i]))
            add_stack(l, &l->waiting[i]);
        else if (left++ != i)
            l->waiting[left - 1] = l->waiting[i];
    }
    l->n_waiting = left;
}

/* From the answer of describe(), for a code object whose reference it takes. */
static struct code *make_code(PyObject *object, PyObject *answer)
{
    int kind;
    const char *file, *function;
    PyObject *numbers;
    if (!answer ||
        !PyArg_ParseTuple(answer, "iyyO!", &kind, &file, &function, &PyTuple_Type, &numbers))
        return NULL;
    int n = (int)(PyTuple_Size(numbers) / 3);
    struct code *code = malloc(sizeof *code + (size_t)n * sizeof *code->starts);
    if (!code)
        return NULL;
    *code = (struct code){.address = (uintptr_t)object,
                          .kind = (enum code_kind)kind,
                          .file = strdup(file),
                          .function = strdup(function),
                          .n = n};
    for (int i = 0; i < n; i++) {
        code->starts[i].position = (int)PyLong_AsLong(PyTuple_GetItem(numbers, 3 * i));
        code->starts[i].line = (int)PyLong_AsLong(PyTuple_GetItem(numbers, 3 * i + 1));
        code->starts[i].decodes = (int)PyLong_AsLong(PyTuple_GetItem(numbers, 3 * i + 2));
        code->starts[i].reported = 0;
    }
    return code;
}

/* With the lock. A frame without a code object, or without space for its description, is ignored.
 */
static void ignore_code(struct lines *l, uintptr_t address)
{
    for (int i = 0; i < l->n_waiting; i++)
        for (int k = 0; k < l->waiting[i].n; k++)
            if (l->waiting[i].frames[k].code == address)
                l->waiting[i].frames[k].code = 0;
}

/* With the GIL, without the lock: describe() is Python code, and may switch to other threads. */
static void describe_code(struct lines *l, uintptr_t address)
{
    PyObject *object = l->n_codes < MAX_CODES / 2 ? stack_code(address) : NULL;
    PyObject *answer = object ? PyObject_CallFunctionObjArgs(l->describe, object, NULL) : NULL;
    struct code *code = make_code(object, answer);
    PyErr_Clear();
    Py_XDECREF(answer);
    pthread_mutex_lock(&l->lock);
    if (code && code->file && code->function && !find_code(l, address))
        add_code(l, code); /* owns the reference to the object from here on */
    else {
        ignore_code(l, address);
        Py_DecRef(object); /* takes NULL */
    }
    pthread_mutex_unlock(&l->lock);
}

/* With the lock. The next code object to describe, or 0. */
static uintptr_t find_unknown(struct lines *l)
{
    for (int i = 0; i < l->n_waiting; i++)
        for (int k = 0; k < l->waiting[i].n; k++) {
            uintptr_t address = l->waiting[i].frames[k].code;
            if (address && !find_code(l, address))
                return address;
        }
    return 0;
}

void lines_describe_codes(struct lines *l)
{
    PyObject *type, *value, *trace;
    uintptr_t address;
    PyErr_Fetch(&type, &value, &trace); /* may be of the user's dataset */
    pthread_mutex_lock(&l->lock);
    while ((address = find_unknown(l))) {
        pthread_mutex_unlock(&l->lock);
        describe_code(l, address);
        pthread_mutex_lock(&l->lock);
    }
    add_known_stacks(l);
    pthread_mutex_unlock(&l->lock);
    PyErr_Restore(type, value, trace);
}

int lines_find(struct lines *l, const struct stack_frame *frames, int n, struct call_site *ret_site)
{
    struct stack_sample stack = {.n = n < STACK_FRAMES ? n : STACK_FRAMES};
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    memcpy(stack.frames, frames, (size_t)stack.n * sizeof *frames);
    for (int i = 0; i < stack.n; i++) {
        pthread_mutex_lock(&l->lock);
        int known = !stack.frames[i].code || find_code(l, stack.frames[i].code);
        pthread_mutex_unlock(&l->lock);
        if (!known)
            describe_code(l, stack.frames[i].code);
    }
    pthread_mutex_lock(&l->lock);
    struct stack_lines at = find_stack_lines(l, &stack);
    pthread_mutex_unlock(&l->lock);
    PyErr_Restore(type, value, trace);
    struct code_line found = at.user.code ? at.user : at.inner;
    if (!found.code)
        return 0;
    *ret_site = (struct call_site){found.code->file, found.code->function, line_of(found)};
    return 1;
}

int lines_is_last(uintptr_t address, void *lines)
{
    struct lines *l = lines;
    pthread_mutex_lock(&l->lock);
    struct code *code = find_code(l, address);
    pthread_mutex_unlock(&l->lock);
    return code && (code->kind == USER || code->kind == FETCHER || code->kind == LOADER);
}

int lines_add(struct lines *l, const struct stack_sample *stack)
{
    pthread_mutex_lock(&l->lock);
    int known = is_known(l, stack);
    if (known)
        add_stack(l, stack);
    else
        keep_waiting(l, stack);
    pthread_mutex_unlock(&l->lock);
    return !known;
}

struct lines *lines_new(PyObject *describe)
{
    struct lines *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    keep_reference(&l->describe, describe);
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

void lines_free(struct lines *l)
{
    if (l)
        Py_XDECREF(l->describe);
    free(l);
}
