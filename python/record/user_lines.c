/* user_lines.c: see user_lines.h.
 *
 * A stack is a list of codes, known by their addresses, with the position in each. Whoever reads it
 * knows nothing else of them. So a code that is new is described by Python, once, when the maker of
 * batches has time for it; stacks with such a code wait until then. Later stacks are added at once.
 */
#include "user_lines.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_CODES = 4096, /* a power of two; a dataset with its libraries has some hundred */
    /* Different stacks that wait for codes to be described. They are made in one batch, the first,
     * at a hundred a second; a page is taken only when it is needed. */
    MOST_WAITING = 256,
    /* Of the 512 lines that the recorder has room for: the rest is kept for lines of the user. */
    MOST_LIBRARY_LINES = 384
};

/* As in profile/lines.py. */
enum code_kind { USER, INLINE, LIBRARY, DECODE, FETCHER, LOADER, HOOK };

struct code { /* never freed; holds a reference to the code object */
    uintptr_t address;
    enum code_kind kind;
    const char *file, *function;
    int n;
    struct {
        int position, line, decodes;
        int reported; /* as a library's line; under the lock */
    } starts[];
};

struct lines {
    PyObject *describe; /* owned; set once */
    pthread_mutex_t lock;
    /* Under the lock. */
    int n_codes, n_waiting, n_library_lines;
    struct code *codes[MOST_CODES]; /* by address, open addressing */
    struct stack waiting[MOST_WAITING];
};

/* With the lock. NULL: not known yet. */
static struct code *find_code(struct lines *l, uintptr_t address)
{
    unsigned at = (unsigned)(address >> 4) * 2654435761u % MOST_CODES;
    while (l->codes[at] && l->codes[at]->address != address)
        at = (at + 1) % MOST_CODES;
    return l->codes[at];
}

static void add_code(struct lines *l, struct code *code)
{
    unsigned at = (unsigned)(code->address >> 4) * 2654435761u % MOST_CODES;
    while (l->codes[at])
        at = (at + 1) % MOST_CODES;
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

/* A frame of a stack, with what is known of its code. */
struct place {
    const struct code *code;
    int start; /* which of the code's */
};

static int line_of(struct place at)
{
    return at.code->n ? at.code->starts[at.start].line : 0;
}

/* With the lock. The i-th frame of a stack; code is NULL when it is to be passed over. */
static struct place place_of(struct lines *l, const struct stack *stack, int i)
{
    const struct stack_frame *frame = &stack->frames[i];
    struct place at = {frame->code ? find_code(l, frame->code) : NULL, 0};
    if (at.code && at.code->kind == HOOK)
        at.code = NULL;
    if (at.code)
        at.start = start_of(at.code, frame->position);
    return at;
}

static int add_line(const struct stack *stack, struct place at, int below, int decodes)
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

/* A library has many lines that are seen once. They must not take the room of what matters. */
static int may_report(struct lines *l, struct place at)
{
    struct code *code = find_code(l, at.code->address);
    if (!code->n)
        return 0;
    if (!code->starts[at.start].reported && l->n_library_lines < MOST_LIBRARY_LINES) {
        code->starts[at.start].reported = 1;
        l->n_library_lines++;
    }
    return code->starts[at.start].reported;
}

/* Where a stack is whose codes are all known: its innermost line and that of the user. */
struct places {
    struct place inner, user; /* code is NULL: there is none */
    int decodes;
};

/* With the lock. What is above the fetcher, and the iterator that asks it, is not the making of a
 * batch. */
static struct places find_places(struct lines *l, const struct stack *stack)
{
    struct place inner = {0}, user = {0};
    int decodes = 0;
    for (int i = 0; i < stack->n; i++) {
        struct place at = place_of(l, stack, i);
        if (!at.code)
            continue;
        enum code_kind kind = at.code->kind;
        if (kind == LOADER || (inner.code && kind == FETCHER))
            break;
        /* A comprehension belongs to its line, as long as that is what called it. */
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
    return (struct places){inner, user, decodes};
}

/* With the lock. Adds a stack to its user's line, and to the innermost line where that is one of a
 * library below it. */
static void add_stack(struct lines *l, const struct stack *stack)
{
    struct places at = find_places(l, stack);
    if (!at.inner.code)
        return;
    int slot = at.user.code ? add_line(stack, at.user, -1, at.decodes) : -1;
    if (at.inner.code->kind > INLINE && (!at.user.code || (slot >= 0 && may_report(l, at.inner))))
        add_line(stack, at.inner, slot, at.decodes);
}

/* With the lock. Whether nothing has to be asked for this stack. */
static int is_known(struct lines *l, const struct stack *stack)
{
    for (int i = 0; i < stack->n; i++)
        if (stack->frames[i].code && !find_code(l, stack->frames[i].code))
            return 0;
    return 1;
}

static int same_stack(const struct stack *a, const struct stack *b)
{
    return a->n == b->n && a->part == b->part && a->loader == b->loader &&
           memcmp(a->frames, b->frames, (size_t)a->n * sizeof *a->frames) == 0;
}

/* With the lock. A stack for which there is no room is as good as the next one like the others:
 * its time goes to the last that waits. */
static void keep_waiting(struct lines *l, const struct stack *stack)
{
    int i = 0;
    while (i < l->n_waiting && !same_stack(&l->waiting[i], stack))
        i++;
    if (i == l->n_waiting && i < MOST_WAITING) {
        l->waiting[i] = *stack;
        l->n_waiting++;
        return;
    }
    if (i == MOST_WAITING)
        i--;
    for (int k = 0; k < DOINGS; k++)
        l->waiting[i].ns[k] += stack->ns[k];
}

/* With the lock. Adds what waited for codes that are known now. */
static void settle(struct lines *l)
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

/* The answer of describe() about a code, which it takes over. */
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

/* With the lock. A frame that led nowhere, or that there is no room for, is passed over. */
static void pass_over(struct lines *l, uintptr_t address)
{
    for (int i = 0; i < l->n_waiting; i++)
        for (int k = 0; k < l->waiting[i].n; k++)
            if (l->waiting[i].frames[k].code == address)
                l->waiting[i].frames[k].code = 0;
}

/* With the GIL, without the lock: describe() is Python, and may let other threads run. */
static void learn(struct lines *l, uintptr_t address)
{
    PyObject *object = l->n_codes < MOST_CODES / 2 ? stack_code(address) : NULL;
    PyObject *answer = object ? PyObject_CallFunctionObjArgs(l->describe, object, NULL) : NULL;
    struct code *code = make_code(object, answer);
    PyErr_Clear();
    Py_XDECREF(answer);
    pthread_mutex_lock(&l->lock);
    if (code && code->file && code->function && !find_code(l, address))
        add_code(l, code); /* with the reference to the object: its address is its name */
    else {
        pass_over(l, address);
        Py_DecRef(object); /* takes NULL */
    }
    pthread_mutex_unlock(&l->lock);
}

/* With the lock. The next code to be described, or 0. */
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

void lines_answer(struct lines *l)
{
    PyObject *type, *value, *trace;
    uintptr_t address;
    PyErr_Fetch(&type, &value, &trace); /* of the user's dataset, perhaps */
    pthread_mutex_lock(&l->lock);
    while ((address = find_unknown(l))) {
        pthread_mutex_unlock(&l->lock);
        learn(l, address);
        pthread_mutex_lock(&l->lock);
    }
    settle(l);
    pthread_mutex_unlock(&l->lock);
    PyErr_Restore(type, value, trace);
}

int lines_find(struct lines *l, const struct stack_frame *frames, int n,
               struct lines_place *ret_place)
{
    struct stack stack = {.n = n < STACK_FRAMES ? n : STACK_FRAMES};
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    memcpy(stack.frames, frames, (size_t)stack.n * sizeof *frames);
    for (int i = 0; i < stack.n; i++) {
        pthread_mutex_lock(&l->lock);
        int known = !stack.frames[i].code || find_code(l, stack.frames[i].code);
        pthread_mutex_unlock(&l->lock);
        if (!known)
            learn(l, stack.frames[i].code);
    }
    pthread_mutex_lock(&l->lock);
    struct places at = find_places(l, &stack);
    pthread_mutex_unlock(&l->lock);
    PyErr_Restore(type, value, trace);
    struct place place = at.user.code ? at.user : at.inner;
    if (!place.code)
        return 0;
    *ret_place = (struct lines_place){place.code->file, place.code->function, line_of(place)};
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

int lines_add(struct lines *l, const struct stack *stack)
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
    core_keep(&l->describe, describe);
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

void lines_free(struct lines *l)
{
    if (l)
        Py_XDECREF(l->describe);
    free(l);
}
