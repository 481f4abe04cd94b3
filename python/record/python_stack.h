/* python_stack.h: the Python stack of another thread of this process, read without stopping it.
 *
 * Whoever takes the GIL to look at a thread sees it where it gives the GIL up, not where it spends
 * its time: at the end of a call, at a jump back, in the read that happens to release it. So the
 * stack is read as it lies in memory, at the moment of the sample, by a system call that fails
 * where a pointer leads nowhere. The thread that is read notices nothing.
 *
 * Where things lie differs between versions of Python. It is not looked up in a table of versions
 * but found out in this very interpreter: stack_probe() is called at the bottom of calls that it
 * knows, looks for what it knows in the memory of its own thread, and believes an answer only if it
 * gives the whole stack, instruction by instruction, in two different situations. Where it finds
 * none, nothing is read.
 *
 *     thread state ──► (C frame ──►) frame ──► previous frame ──► ...
 *                                    code, position
 *
 * A stack that changes while it is read may give a frame that has just ended. The caller must not
 * believe that a code is one before stack_code() has said so.
 */
#ifndef LEAT_PYTHON_STACK_H
#define LEAT_PYTHON_STACK_H

#include "record_module.h"

#include <stdint.h>

enum { STACK_FRAMES = 96 };

struct stack_frame {
    uintptr_t code;   /* address of the code object; 0: to be passed over */
    int64_t position; /* of the executing instruction, as f_lasti has it */
};

/* Readies the reading of this process's memory; again after a fork. 0 or a negative errno. */
int stack_open(void);

/* Takes part in finding the layout; with the GIL, from `situation` 0 and then 1, at the bottom of
 * at least three calls of different functions. Returns how many answers are left. */
int stack_probe(int situation);
int stack_known(void); /* 1 when the layout has been found */

/* The stack of a thread, innermost first, until `last` says so of a code. No GIL needed. Returns
 * the number of frames; 0 when it cannot be read. */
int stack_read(const void *thread_state, int (*last)(uintptr_t code, void *context), void *context,
               struct stack_frame *ret, int most);

/* The stack of the calling thread, with or without the GIL; 0 as well for a thread that has none.
 * It stands still, so it is not copied by the kernel but looked at, once that has gone well often
 * enough: some 100 ns instead of some microseconds. */
int stack_own(struct stack_frame *ret, int most);

/* A new reference to the code object at an address, or NULL when there is none. With the GIL. It is
 * given back by Py_DecRef(), never by the macro: see there. */
PyObject *stack_code(uintptr_t address);

#endif
