/* python_stack.c: see python_stack.h. */
#include "python_stack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    STATE_BYTES = 512, /* of a thread state; the pointer to the frame is in its first quarter */
    FRAME_BYTES = 256, /* of a frame; all offsets are in its first half */
    WORD = sizeof(uintptr_t),
    MAX_LAYOUTS = 16,
    /* From a code object to its first instruction: 200 bytes in 3.11 to 3.13. */
    MAX_BASE = 1024,
    KNOWN = 3,          /* frames that stack_probe() compares */
    CHECKED_STACKS = 64 /* stacks that stack_own() reads with peek() before it trusts the layout */
};

/* A possible layout of the memory; offsets in bytes. */
struct layout {
    int state; /* in the thread state */
    int hop;   /* in the object that it points to, if that is not the frame; else -1 */
    int code, previous, position;
    int scale; /* of a position that is a number; 0: it is an address, `base` after the code object
                */
    long base;
    int bytes; /* of a frame to read */
};

static struct layout layouts[MAX_LAYOUTS];
static int n_layouts, proven;
static PyObject *code_type; /* owned */
static pid_t self;
static int memory_fd = -1; /* used where process_vm_readv is forbidden */

/* The number of bytes read; fewer at the end of a mapping; 0 on failure. */
static size_t peek(uintptr_t address, void *to, size_t bytes)
{
    ssize_t n;
    if (memory_fd >= 0) {
        n = pread(memory_fd, to, bytes, (off_t)address);
    } else {
        struct iovec here = {to, bytes}, there = {(void *)address, bytes};
        n = process_vm_readv(self, &here, 1, &there, 1, 0);
    }
    return n < 0 ? 0 : (size_t)n;
}

static uintptr_t peek_word(uintptr_t address)
{
    uintptr_t word = 0;
    return peek(address, &word, WORD) == WORD ? word : 0;
}

int stack_open(void)
{
    uintptr_t probe = 1, seen = 0;
    if (self == getpid())
        return 0;
    self = getpid();
    if (memory_fd >= 0)
        close(memory_fd); /* the parent's */
    memory_fd = -1;
    if (peek((uintptr_t)&probe, &seen, WORD) == WORD && seen == probe)
        return 0;
    memory_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (memory_fd >= 0 && peek((uintptr_t)&probe, &seen, WORD) == WORD && seen == probe)
        return 0;
    self = 0;
    return -EPERM;
}

static uintptr_t word_at(const unsigned char *bytes, int offset)
{
    uintptr_t word;
    memcpy(&word, bytes + offset, WORD);
    return word;
}

static int32_t int_at(const unsigned char *bytes, int offset)
{
    int32_t number;
    memcpy(&number, bytes + offset, sizeof number);
    return number;
}

/* The offset of the position: three frames with different positions leave only one. */
static int find_position(unsigned char bytes[KNOWN][FRAME_BYTES], const struct stack_frame *known,
                         struct layout *layout)
{
    for (int at = 0; at + WORD <= FRAME_BYTES; at += WORD) {
        long base = 0;
        int fits = 1;
        for (int i = 0; i < KNOWN && fits; i++) {
            long here = (long)(word_at(bytes[i], at) - known[i].code) - known[i].position;
            fits = here > 0 && here < MAX_BASE && (i == 0 || here == base);
            base = here;
        }
        if (fits) {
            layout->position = at;
            layout->base = base;
            layout->scale = 0;
            return 1;
        }
    }
    for (int scale = 1; scale <= 2; scale++)
        for (int at = 0; at + 4 <= FRAME_BYTES; at += 4) {
            int fits = 1;
            for (int i = 0; i < KNOWN && fits; i++)
                fits = int_at(bytes[i], at) * scale == known[i].position;
            if (fits) {
                layout->position = at;
                layout->scale = scale;
                return 1;
            }
        }
    return 0;
}

static int largest(int a, int b, int c)
{
    int ab = a > b ? a : b;
    return ab > c ? ab : c;
}

/* Whether the innermost frame is at an address; this gives the rest of the layout. */
static int find_frame(uintptr_t address, const struct stack_frame *known, struct layout *layout)
{
    unsigned char bytes[KNOWN][FRAME_BYTES];
    if (address % WORD != 0 || peek(address, bytes[0], FRAME_BYTES) < FRAME_BYTES)
        return 0;
    for (int code = 0; code < FRAME_BYTES; code += WORD) {
        if (word_at(bytes[0], code) != known[0].code)
            continue;
        for (int previous = 0; previous < FRAME_BYTES; previous += WORD) {
            int i = 1;
            while (i < KNOWN) {
                uintptr_t next = word_at(bytes[i - 1], previous);
                if (next % WORD != 0 || peek(next, bytes[i], FRAME_BYTES) < FRAME_BYTES ||
                    word_at(bytes[i], code) != known[i].code)
                    break;
                i++;
            }
            if (i < KNOWN || !find_position(bytes, known, layout))
                continue;
            layout->code = code;
            layout->previous = previous;
            layout->bytes = largest(code, previous, layout->position) + WORD;
            return 1;
        }
    }
    return 0;
}

static void find_layouts(const struct stack_frame *known)
{
    unsigned char state[STATE_BYTES];
    size_t bytes = peek((uintptr_t)PyThreadState_Get(), state, sizeof state);
    n_layouts = 0;
    for (int hop = -1; hop <= WORD; hop = hop < 0 ? 0 : hop + WORD)
        for (size_t at = 0; at + WORD <= bytes && n_layouts < MAX_LAYOUTS; at += WORD) {
            struct layout *layout = &layouts[n_layouts];
            uintptr_t address = word_at(state, (int)at);
            *layout = (struct layout){.state = (int)at, .hop = hop};
            if (hop >= 0)
                address = peek_word(address + (uintptr_t)hop);
            if (address && find_frame(address, known, layout))
                n_layouts++;
        }
}

static struct stack_frame frame_at(const struct layout *layout, const unsigned char *bytes)
{
    uintptr_t code = word_at(bytes, layout->code);
    long position = layout->scale ? (long)int_at(bytes, layout->position) * layout->scale
                                  : (long)(word_at(bytes, layout->position) - code) - layout->base;
    return (struct stack_frame){code, position};
}

static int read_by(const struct layout *layout, const void *thread_state,
                   int (*last)(uintptr_t code, void *context), void *context,
                   struct stack_frame *ret, int most)
{
    unsigned char bytes[FRAME_BYTES];
    uintptr_t frame = peek_word((uintptr_t)thread_state + (uintptr_t)layout->state);
    if (frame && layout->hop >= 0)
        frame = peek_word(frame + (uintptr_t)layout->hop);
    int n = 0;
    while (frame && n < most &&
           peek(frame, bytes, (size_t)layout->bytes) == (size_t)layout->bytes) {
        ret[n++] = frame_at(layout, bytes);
        if (last && last(ret[n - 1].code, context))
            break;
        frame = word_at(bytes, layout->previous);
    }
    return n;
}

static long attribute(PyObject *thing, const char *name)
{
    PyObject *value = PyObject_GetAttrString(thing, name);
    long number = value ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    return number;
}

/* The stack of the calling thread, by Python's own interface. */
static int walk(struct stack_frame *ret, int most)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    int n = 0;
    Py_XINCREF(frame);
    while (frame && frame != Py_None && n < most) {
        PyObject *code = PyObject_GetAttrString(frame, "f_code");
        ret[n++] = (struct stack_frame){(uintptr_t)code, attribute(frame, "f_lasti")};
        if (code && !code_type) {
            code_type = (PyObject *)Py_TYPE(code);
            Py_INCREF(code_type);
        }
        Py_XDECREF(code); /* the frame keeps it */
        PyObject *back = PyObject_GetAttrString(frame, "f_back");
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
    return n;
}

/* Every frame that Python knows must be in the stack read from memory, in the same order. Between
 * them may be frames that Python hides, where C calls Python. */
static int is_consistent(const struct layout *layout, const struct stack_frame *known, int n_known)
{
    struct stack_frame seen[STACK_FRAMES];
    int n = read_by(layout, PyThreadState_Get(), NULL, NULL, seen, STACK_FRAMES), found = 0;
    for (int i = 0; i < n && found < n_known; i++)
        if (seen[i].code == known[found].code && seen[i].position == known[found].position)
            found++;
    return n >= KNOWN && (found == n_known || n == STACK_FRAMES);
}

int stack_probe(int situation)
{
    struct stack_frame known[STACK_FRAMES];
    int n_known = walk(known, STACK_FRAMES);
    if (n_known < KNOWN)
        return 0;
    if (situation == 0)
        find_layouts(known);
    int left = 0;
    for (int i = 0; i < n_layouts; i++)
        if (is_consistent(&layouts[i], known, n_known))
            layouts[left++] = layouts[i];
    n_layouts = left;
    proven = situation > 0 && left > 0;
    return left;
}

int stack_known(void)
{
    return proven;
}

int stack_read(const void *thread_state, int (*last)(uintptr_t code, void *context), void *context,
               struct stack_frame *ret, int most)
{
    return proven && thread_state ? read_by(&layouts[0], thread_state, last, context, ret, most)
                                  : 0;
}

/* As read_by() for the calling thread, whose frames exist during the call. */
static int walk_own(const struct layout *layout, const unsigned char *state,
                    struct stack_frame *ret, int most)
{
    uintptr_t frame = word_at(state, layout->state);
    if (frame && layout->hop >= 0)
        frame = word_at((const unsigned char *)frame, layout->hop);
    int n = 0;
    for (; frame && n < most; frame = word_at((const unsigned char *)frame, layout->previous))
        ret[n++] = frame_at(layout, (const unsigned char *)frame);
    return n;
}

/* Whether a stack read with peek() ends at its outermost frame. */
static int is_whole(const struct layout *layout, const void *state, int n, int most)
{
    uintptr_t frame = peek_word((uintptr_t)state + (uintptr_t)layout->state);
    if (frame && layout->hop >= 0)
        frame = peek_word(frame + (uintptr_t)layout->hop);
    for (int i = 0; i < n && frame; i++)
        frame = peek_word(frame + (uintptr_t)layout->previous);
    return frame == 0 || n == most;
}

int stack_own(struct stack_frame *ret, int most)
{
    static atomic_int checked; /* -1: a stack did not end as expected; do not try again */
    const void *state = proven ? PyGILState_GetThisThreadState() : NULL;
    int so_far = atomic_load_explicit(&checked, memory_order_relaxed);
    if (!state || so_far < 0)
        return 0;
    if (so_far >= CHECKED_STACKS)
        return walk_own(&layouts[0], state, ret, most);
    int n = read_by(&layouts[0], state, NULL, NULL, ret, most);
    if (!is_whole(&layouts[0], state, n, most)) {
        atomic_store(&checked, -1);
        return 0;
    }
    if (n > 0)
        atomic_compare_exchange_strong(&checked, &so_far, so_far + 1);
    return n;
}

/* An address read from memory may no longer be a code object. A freed object has a link or zero in
 * place of its reference count; an object that reuses the memory has another type.
 *
 * A code object of the interpreter itself, such as that of the frame which 3.13 puts between a
 * class call and __init__, may be in read-only memory. The macros of the stable ABI change its
 * reference count and crash; the functions check it. */
PyObject *stack_code(uintptr_t address)
{
    uintptr_t head[2];
    if (!code_type || address % WORD != 0 || peek(address, head, sizeof head) != sizeof head)
        return NULL;
    if (head[1] != (uintptr_t)code_type || head[0] == 0 || head[0] >> 32 != 0)
        return NULL;
    PyObject *code = (PyObject *)address;
    Py_IncRef(code);
    return code;
}
