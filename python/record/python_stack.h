/* python_stack.h: the Python stack of another thread of this process, read without stopping it.
 *
 * A profiler that takes the GIL sees a thread only where it releases the GIL, not where it spends
 * its time. So the stack is read from memory, at the moment of the sample, by a system call that
 * fails at an invalid address. The sampled thread is not affected.
 *
 * The layout of the memory differs between versions of Python. It is determined in the running
 * interpreter: stack_probe() is called inside calls that it knows, searches the memory of its own
 * thread for them, and accepts a layout only if it gives the whole stack, with all positions, in
 * two situations. Without a layout, no stack is read.
 *
 *     thread state ──► (C frame ──►) frame ──► previous frame ──► ...
 *                                    code, position
 *
 * A stack that changes while it is read may contain a frame that has just ended. So an address is a
 * code object only if stack_code() returns it.
 */
#ifndef LEAT_PYTHON_STACK_H
#define LEAT_PYTHON_STACK_H

#include "record_module.h"

#include <stdint.h>

enum { STACK_FRAMES = 96 };

struct stack_frame {
    uintptr_t code;   /* address of the code object; 0: ignore this frame */
    int64_t position; /* of the current instruction, as f_lasti */
};

/* Prepares reading the memory of this process; call it again after a fork. 0 or a negative errno.
 */
int stack_open(void);

/* Finds the layout. With the GIL, for `situation` 0 and then 1, inside at least three calls of
 * different functions. Returns how many layouts fit. */
int stack_probe(int situation);
int stack_known(void); /* 1 when a layout was found */

/* The stack of a thread, innermost first, up to the frame for whose code `last` returns 1. No GIL
 * needed. Returns the number of frames; 0 when it cannot be read. */
int stack_read(const void *thread_state, int (*last)(uintptr_t code, void *context), void *context,
               struct stack_frame *ret, int most);

/* The stack of the calling thread, with or without the GIL; 0 also for a thread without Python
 * code. It does not change meanwhile, so after some checks it is read directly instead of by a
 * system call: 100 ns instead of some microseconds. */
int stack_own(struct stack_frame *ret, int most);

/* A new reference to the code object at an address, or NULL. With the GIL. Release it with
 * Py_DecRef(), not with the macro: see python_stack.c. */
PyObject *stack_code(uintptr_t address);

#endif
