/* cgroup.h: how much of the machine this process may use: cgroup v1 and v2, affinity. `leat run`
 * asks it of the run it watches, the loader's engine of the process it is part of. */
#ifndef LEAT_BASE_CGROUP_H
#define LEAT_BASE_CGROUP_H

#include <stdint.h>

/* `root` is "/", or a folder with a recorded machine in it. 0 or -ENOMEM. */
struct cgroup_info {
    double cpus; /* what this process may use: affinity and quota; never below 0.01 */
    int64_t memory_limit_bytes; /* -1: none below the machine's memory */
    int64_t memory_used_bytes;  /* of the group that sets the limit, else of ours; without the page
                                   cache that is given back first */
    int64_t oom_kills;          /* in our group and below */
    int version;                /* 1, 2, or 0 when none is mounted */
};
int cgroup_read(const char *root, struct cgroup_info *ret_info);

#endif
