/* hdf5_ask.h: libhdf5 is asked where data lie, by a child process.
 *
 *     this process                      its child
 *     fork() ───────────────────────►   opens the file, describes the datasets
 *     reads, with a limit on bytes  ◄── pipe: the bytes of hdf5_index.h
 *     and on silence, then waits        _exit()
 *
 * libhdf5 trusts its files: a damaged one can make it read wild memory, loop, or ask for all memory
 * there is. None of that may happen to a training, so it happens to a process that lives for some
 * milliseconds, with a limit on its memory and no core file. The child calls nothing but libhdf5,
 * system calls and malloc, which fork() leaves usable; libhdf5 itself is loaded before, as loading
 * is not safe there. Whoever uses the same copy of libhdf5 in another thread at that moment leaves
 * its lock taken in the child, for good: the limit on silence ends that too, but callers should
 * keep other threads out of it (h5py has a lock for that).
 */
#ifndef LEAT_LOAD_SOURCE_HDF5_ASK_H
#define LEAT_LOAD_SOURCE_HDF5_ASK_H

#include "hdf5_library.h"
#include "load/source/array/mapped_file.h"

struct hdf5_question {
    const struct hdf5_library *library;
    const struct mapped_file *file;
    const char *const *names; /* of the datasets */
    uint32_t count;
    int silence_ms; /* the child is ended after so much of it */
};

/* The answer for hdf5_index_parse(); the caller's to mem_free. */
int hdf5_ask(const struct hdf5_question *question, uint8_t **ret_bytes, uint64_t *ret_count,
             struct leat_err *err);

/* What the child does, for hdf5_ask.c: writes the answer to `fd`. */
void hdf5_answer(const struct hdf5_question *question, int fd);

#endif
