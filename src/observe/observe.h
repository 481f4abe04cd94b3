/* observe.h: what can be seen of a run from outside, without rights.
 *
 * Every reader of /proc and /sys takes a root directory ("/" in life, tests/data/root in tests), so
 * that it is tested anywhere. A file that is missing or unreadable leaves its fields at -1 (or
 * NaN): absent is never zero. Nothing here writes, blocks or keeps state beyond what the caller
 * holds.
 */
#ifndef LEAT_OBSERVE_OBSERVE_H
#define LEAT_OBSERVE_OBSERVE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* ---- one process (proc_process.c): /proc/PID/{stat,status,io,schedstat ...} ------------- */

struct proc_info {
    int64_t pid, ppid;
    char comm[32];
    int64_t start_ticks; /* with the pid, the identity of a process */
    int64_t cpu_ns;      /* user + system, all threads */
    int64_t rss_bytes, shared_bytes;
    int64_t threads, fds, fd_limit;
    /* Context switches, summed over the living threads, at most 64 of them (see proc_process.c).
     * The sum falls when a thread ends: take such a difference as 0. */
    int64_t voluntary, involuntary;
    int64_t minor_faults, major_faults;
    int64_t read_bytes, write_bytes; /* from and to storage */
    int64_t read_calls;
    int64_t run_delay_ns; /* of the main thread: ready to run, but without a CPU */
};
/* 0; -ESRCH when the process is gone. */
int proc_read(const char *root, int64_t pid, struct proc_info *ret_info);
int proc_command(const char *root, int64_t pid, char *ret_text, size_t bytes); /* blanks for NULs */
/* The value of an environment variable of a process at its start; -ENOENT when it has none. */
int proc_environ(const char *root, int64_t pid, const char *name, char *ret_text, size_t bytes);

/* Memory that is the process's own, plus its part of what it shares (PSS): added over a process and
 * its workers, nothing counts twice. 0; -ESRCH or -EACCES. Some ms for a large process. */
int proc_pss(const char *root, int64_t pid, int64_t *ret_bytes);

/* `pid` and all its descendants. The array is the caller's to mem_free. Cost: one readdir of /proc
 * and one stat file a process of the machine. */
int proc_tree(const char *root, int64_t pid, int64_t **ret_pids, size_t *ret_count);

/* The pid that was given last, to a process or a thread; -1 when it cannot be told. As long as it
 * stays the same nobody was born, and the tree need not be searched. */
int64_t proc_last_pid(const char *root);

/* ---- the machine (proc_system.c): /proc/{stat,meminfo,vmstat,pressure/ *}, /dev/shm -------- */

struct sys_info {                       /* totals since boot; take differences */
    int64_t busy_ns, iowait_ns, all_ns; /* summed over the CPUs that we may run on */
    int64_t steal_ns; /* of busy: the hypervisor gave the CPU to another machine */
    int64_t memory_total, memory_available; /* the smaller of machine and cgroup */
    int64_t swap_used_bytes, swap_in_bytes, swap_out_bytes;
    int64_t oom_kills;
    int64_t cpu_stall_us, memory_stall_us, io_stall_us; /* PSI "some" totals */
    int64_t shm_total, shm_used;
};
int sys_read(const char *root, struct sys_info *ret_info);

/* ---- GPUs (nvml.c): libnvidia-ml.so.1 by dlopen ------------------------------------------- */

struct nvml; /* NULL where there is none */
struct gpu_info {
    char uuid[64], name[64];
    double utilization; /* 0..1; NaN unknown */
    int64_t memory_used, memory_total;
    int64_t temperature_c, temperature_limit_c;
    double power_w, power_limit_w;
    int64_t sm_clock_mhz;
    char throttle[64]; /* "" none, or reasons by comma: power_cap, thermal, hw_slowdown ... */
    int64_t pcie_tx_bytes_s, pcie_rx_bytes_s; /* over the last 2 ms, the link's overhead included */
};
/* -ENOENT without the library or without a device; the sentence says which. */
int nvml_open(struct nvml **ret_nvml, struct leat_err *err);
void nvml_close(struct nvml *nvml); /* takes NULL */
int nvml_count(struct nvml *nvml);
const char *nvml_driver(struct nvml *nvml); /* the driver's version; "" unknown */
int nvml_read(struct nvml *nvml, int index, struct gpu_info *ret_info); /* takes 3 to 8 ms */
/* 1 when one of `pids` has a context on this device, else 0. In a container whose process ids NVML
 * does not know, 1 also for a device that one of them only holds open. */
int nvml_uses(struct nvml *nvml, int index, const int64_t *pids, size_t pid_count);

/* ---- BPF (bpf/bpf_try.c) ------------------------------------------------------------------ */

struct bpf_trial {
    int code;              /* 0, or the negative errno of loading */
    const char *why, *way; /* what is missing, how to get it; NULL when code is 0 */
};
/* Loads a two-instruction program of the tracing kind, and drops it. */
void bpf_try(struct bpf_trial *ret_trial);
/* 1 when the kernel describes its own types, without which no program fits all kernels; else 0. */
int bpf_has_types(const char *root);

/* ---- rights (rights.c): what this process may do ------------------------------------------- */

enum { /* the capabilities that matter to observing, as in linux/capability.h */
       RIGHT_SYS_PTRACE = 19,
       RIGHT_SYS_ADMIN = 21,
       RIGHT_PERFMON = 38,
       RIGHT_BPF = 39
};

struct rights_info {
    int64_t uid;           /* effective */
    uint64_t capabilities; /* effective, one bit each; 0 also when unknown */
    int64_t seccomp;       /* 0 none, 1 strict, 2 filter */
    int own_users;         /* in a user namespace of its own: capabilities end at its border */
    int64_t perf_event_paranoid;                     /* -1 allows all; INT64_MIN unknown */
    int64_t unprivileged_bpf_disabled, ptrace_scope; /* -1: the kernel has no such rule */
    char lockdown[24]; /* "none", "integrity", "confidentiality"; "" without lockdown */
};
int rights_read(const char *root, struct rights_info *ret_info);
int rights_has(const struct rights_info *info, int capability); /* 1 or 0 */

#endif
