/* cgroup.h: how much of the machine this process may use: cgroup v1 and v2, affinity. `leat run`
 * uses it for the run it measures, the loader's engine for its own process. */
#ifndef LEAT_BASE_CGROUP_H
#define LEAT_BASE_CGROUP_H

#include <stdint.h>

/* The CPUs this process may run on: its affinity, or "Cpus_allowed_list" of a recorded machine.
 * `count` is 0 when that is not known. `root` is "/", or a folder with a recorded machine in it. */
#define CPUS_MOST (1 << 16)
struct cpus_allowed {
    int64_t count;
    uint8_t bits[CPUS_MOST / 8];
};
void cpus_allowed_read(const char *root, struct cpus_allowed *ret_cpus);

static inline int cpus_allows(const struct cpus_allowed *cpus, int64_t cpu)
{
    return cpu >= 0 && cpu < CPUS_MOST && cpus->bits[cpu / 8] >> cpu % 8 & 1;
}

/* 0 or -ENOMEM. */
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
