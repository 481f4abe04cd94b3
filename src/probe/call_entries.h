/* call_entries.h: the entries of an object's tables through which it calls a function of another
 * (GOT), and where they lead.
 *
 * PyTorch asks for its device ten thousand times in a step of small kernels. What the probe does
 * with it while it is not wanted, next to nothing, is then the largest part of what leat costs. So
 * while it is not wanted, the entry of the library that asks is pointed past the probe, to where a
 * call would have gone without it; and back.
 *
 * An entry is one word, which is written whole: a thread that calls meanwhile goes the one way or
 * the other. Where the loader has made a table read-only, its page is made writable for that
 * moment.
 */
#ifndef LEAT_PROBE_CALL_ENTRIES_H
#define LEAT_PROBE_CALL_ENTRIES_H

#include <stdatomic.h>
#include <stdint.h>

enum { CALL_ENTRIES = 4 };

struct call_entries {
    _Atomic uintptr_t *at[CALL_ENTRIES];
    int count;
    uintptr_t fixed_low, fixed_high; /* what lies between is read-only */
};

/* The entries for `name` of the object that `caller` lies in which lead to `function` now. The
 * object stays loaded from then on. */
struct call_entries call_entries_find(const void *caller, const char *name, const void *function);

/* 0, or -1 when some could not be written: those lead where they did. */
int call_entries_point(const struct call_entries *entries, const void *function);

#endif
