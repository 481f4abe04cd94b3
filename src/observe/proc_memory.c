/* proc_memory.c: the memory that a process adds to its tree. RSS counts pages that forked workers
 * share with their parent once for each worker. */
#include "observe/observe.h"
#include "base/proc_text.h"

#include <inttypes.h>
#include <stdio.h>

int proc_pss(const char *root, int64_t pid, int64_t *ret_bytes)
{
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/smaps_rollup", pid);
    ssize_t got = proc_text_read_at(root, path, text, sizeof text);
    if (got < 0)
        return (int)got;
    int64_t bytes = proc_text_scale(proc_text_field(text, "Pss:"), 1024);
    if (bytes < 0)
        return -ESRCH; /* a process that has just ended has an empty file */
    *ret_bytes = bytes;
    return 0;
}
