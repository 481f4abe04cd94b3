/* observe.h: what can be measured of a run from outside, without special rights.
 *
 * Every reader of /proc and /sys takes a root directory ("/", or a folder of tests/data in tests).
 * If a file is missing or unreadable, its fields stay -1 (or NaN), never 0. Nothing here writes,
 * blocks or keeps state of its own.
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
    /* Context switches, summed over at most 64 running threads (see proc_process.c). The sum
     * decreases when a thread ends: treat a negative difference as 0. */
    int64_t voluntary, involuntary;
    int64_t minor_faults, major_faults;
    int64_t read_bytes, write_bytes; /* from and to storage */
    int64_t read_calls;
    int64_t run_delay_ns; /* of the main thread: ready to run, but without a CPU */
};
/* 0; -ESRCH when the process is gone. */
int proc_read(const char *root, int64_t pid, struct proc_info *ret_info);
/* As of waitpid(), of a process that has ended and was not waited for; -EAGAIN while it runs. */
int proc_wait_status(const char *root, int64_t pid, int *ret_status);
int proc_command(const char *root, int64_t pid, char *ret_text,
                 size_t bytes); /* NULs become blanks */
/* The value of an environment variable of a process at its start; -ENOENT when it has none. */
int proc_environ(const char *root, int64_t pid, const char *name, char *ret_text, size_t bytes);

/* Private memory plus a proportional part of shared memory (PSS): in a sum over a process and its
 * workers nothing counts twice. 0; -ESRCH or -EACCES. Takes some ms for a large process. */
int proc_pss(const char *root, int64_t pid, int64_t *ret_bytes);

/* `pid` and all its descendants. The array is the caller's to mem_free. Cost: one readdir of /proc
 * and one stat file per process of the machine. */
int proc_tree(const char *root, int64_t pid, int64_t **ret_pids, size_t *ret_count);

/* The last pid that was assigned, to a process or a thread; -1 when unknown. While it is unchanged
 * no process was started, and the tree need not be read again. */
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

struct nvml;
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
/* 0; -ENOENT without the library, -ENOSYS if it lacks functions, -ENXIO without a loaded driver,
 * -ENODEV without a device, with a sentence. */
int nvml_open(struct nvml **ret_nvml, struct leat_err *err);
void nvml_close(struct nvml *nvml); /* takes NULL */
int nvml_count(struct nvml *nvml);
const char *nvml_driver(struct nvml *nvml); /* the driver's version; "" unknown */
int nvml_read(struct nvml *nvml, int index, struct gpu_info *ret_info); /* takes 3 to 8 ms */
/* 1 when one of `pids` has a context on this device, else 0. In a container whose process ids NVML
 * does not know, 1 also for a device that one of them has only opened. */
int nvml_uses(struct nvml *nvml, int index, const int64_t *pids, size_t pid_count);

/* ---- BPF (bpf/bpf_try.c) ------------------------------------------------------------------ */

struct bpf_trial {
    int code;              /* 0, or the negative errno of loading */
    const char *why, *way; /* what is missing, how to get it; NULL when code is 0 */
};
/* Loads a two-instruction program of the tracing kind, and drops it. */
void bpf_try(struct bpf_trial *ret_trial);
/* 1 when the kernel describes its types (BTF), which portable BPF programs need; else 0. */
int bpf_has_types(const char *root);

/* ---- rights (rights.c): what this process may do ------------------------------------------- */

enum { /* capabilities used for measuring, numbered as in linux/capability.h */
       RIGHT_SYS_PTRACE = 19,
       RIGHT_SYS_ADMIN = 21,
       RIGHT_PERFMON = 38,
       RIGHT_BPF = 39
};

struct rights_info {
    int64_t uid;                 /* effective */
    uint64_t capabilities;       /* effective, one bit each; 0 also when unknown */
    int64_t seccomp;             /* 0 none, 1 strict, 2 filter */
    int own_users;               /* in its own user namespace: capabilities are valid only inside */
    int64_t perf_event_paranoid; /* -1 allows all; INT64_MIN unknown */
    int64_t unprivileged_bpf_disabled, ptrace_scope; /* -1: not in this kernel */
    char lockdown[24]; /* "none", "integrity", "confidentiality"; "" without lockdown */
};
int rights_read(const char *root, struct rights_info *ret_info);
int rights_has(const struct rights_info *info, int capability); /* 1 or 0 */

#endif
