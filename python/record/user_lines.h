/* user_lines.h: from stack samples to lines of code, as leat_recorder_line() takes them.
 *
 *     stack, innermost first     library ◄─ library ◄─ user ◄─ user ◄─ fetcher ◄─ ...
 *                                innermost line         the user's line
 *
 * The time of a stack is added to the innermost line of the user's code, and below it to the
 * innermost line of all if that is a library's. A dataset without user code has only the latter. A
 * comprehension belongs to its line.
 */
#ifndef LEAT_PYTHON_USER_LINES_H
#define LEAT_PYTHON_USER_LINES_H

#include "python_stack.h"

/* The state of a thread, from the kernel. */
enum thread_state { RUNNING, READING, BLOCKED, THREAD_STATES };

struct stack_sample {
    enum leat_part part;
    uint32_t loader;
    int n;
    uint64_t ns[THREAD_STATES]; /* the time that it covers */
    struct stack_frame frames[STACK_FRAMES];
};

struct lines;

/* describe(code) is that of leat.profile.lines. NULL without memory. With the GIL, as lines_free(),
 * which is for lines that have not been used: it keeps the codes they know. */
struct lines *lines_new(PyObject *describe);
void lines_free(struct lines *lines);

/* For stack_read(): whether the frames above a code object are not needed. */
int lines_is_last(uintptr_t code, void *lines);

/* Adds a stack. 1 when lines_describe_codes() must be called for it. No GIL needed. */
int lines_add(struct lines *lines, const struct stack_sample *stack);

/* The user's line of a stack, or the innermost line if there is none. Describes new code objects,
 * so it needs the GIL; keeps the exception that is set. 0: no line. The texts stay valid. */
struct call_site {
    const char *file, *function;
    int line;
};
int lines_find(struct lines *lines, const struct stack_frame *frames, int n,
               struct call_site *ret_site);

/* Describes all code objects of waiting stacks. With the GIL; keeps the exception that is set. */
void lines_describe_codes(struct lines *lines);

#endif
