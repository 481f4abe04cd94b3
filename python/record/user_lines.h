/* user_lines.h: from stacks to lines of code, in the terms of the user (leat_recorder_line).
 *
 *     stack, innermost first     library ◄─ library ◄─ user ◄─ user ◄─ fetcher ◄─ ...
 *                                innermost line         the user's line
 *
 * The time of a stack goes to the innermost line that is the user's own, and, below that, to the
 * innermost line of all where that is a library's. A dataset that is all library has no line of the
 * user: then the innermost stands alone. A comprehension belongs to its line.
 */
#ifndef LEAT_PYTHON_LINES_H
#define LEAT_PYTHON_LINES_H

#include "python_stack.h"

/* What a thread was doing, as the kernel says. */
enum doing { RUNNING, READING, BLOCKED, DOINGS };

struct stack {
    enum leat_part part;
    uint32_t loader;
    int n;
    uint64_t ns[DOINGS]; /* what it stands for */
    struct stack_frame frames[STACK_FRAMES];
};

struct lines;

/* describe(code) is that of leat.profile.lines. NULL without memory. With the GIL, as lines_free(),
 * which is for lines that have not been used: it keeps the codes they know. */
struct lines *lines_new(PyObject *describe);
void lines_free(struct lines *lines);

/* For stack_read(): whether what is above a code does not matter. */
int lines_is_last(uintptr_t code, void *lines);

/* Adds a stack. 1 when lines_answer() is needed for it. No GIL needed. */
int lines_add(struct lines *lines, const struct stack *stack);

/* The line of the user that a stack stands at, or the innermost of all where there is none of the
 * user. Describes the codes that are not known, so with the GIL; keeps the exception that is set. 0
 * when it stands nowhere. The texts stay. */
struct lines_place {
    const char *file, *function;
    int line;
};
int lines_find(struct lines *lines, const struct stack_frame *frames, int n,
               struct lines_place *ret_place);

/* Describes all codes that are waited for. With the GIL; keeps the exception that is set. */
void lines_answer(struct lines *lines);

#endif
