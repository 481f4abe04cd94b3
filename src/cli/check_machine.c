/* check_machine.c: GPUs, limits and rights: what of this machine leat could use. */
#include "cli/check.h"

#include "base/cgroup.h"
#include "observe/observe.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB (1024.0 * 1024)
#define GIB (1024 * MIB)

static void amount(int64_t bytes, char *ret_text, size_t size)
{
    if ((double)bytes >= GIB)
        snprintf(ret_text, size, "%.1f GiB", (double)bytes / GIB);
    else
        snprintf(ret_text, size, "%.0f MiB", (double)bytes / MIB);
}

static void say_gpus(struct check_item *item, struct nvml *nvml)
{
    int count = nvml_count(nvml);
    struct gpu_info first = {0}, gpu;
    json_t *names = json_array();
    int alike = 1;
    for (int i = 0; i < count; i++) {
        if (nvml_read(nvml, i, &gpu) < 0)
            continue;
        if (i == 0)
            first = gpu;
        alike = alike && strcmp(first.name, gpu.name) == 0;
        json_array_append_new(names, json_string(gpu.name));
    }
    check_fact(item, "count", json_integer(count));
    check_fact(item, "names", names);
    char memory[64] = "";
    if (first.memory_total > 0)
        amount(first.memory_total, memory, sizeof memory);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (!*visible || strcmp(visible, "-1") == 0)) {
        check_say(item, CHECK_LIMITED, "%d x %s, but CUDA_VISIBLE_DEVICES hides all from PyTorch.",
                  count, first.name);
        snprintf(item->way, sizeof item->way, "unset CUDA_VISIBLE_DEVICES");
    } else {
        check_say(item, CHECK_OK, "%d x %s%s%s%s", count, first.name, alike ? "" : " and others",
                  memory[0] ? ", " : "", memory);
    }
}

static void check_gpu(struct check *check)
{
    struct leat_err err = {0};
    struct nvml *nvml = NULL;
    struct check_item *gpu = check_add(check, CHECK_MACHINE, "gpu");
    struct check_item *library = check_add(check, CHECK_MACHINE, "nvml");
    if (nvml_open(&nvml, &err) == 0) {
        const char *driver = nvml_driver(nvml);
        say_gpus(gpu, nvml);
        check_fact(library, "driver", json_text_or_null(*driver ? driver : NULL));
        check_say(library, CHECK_OK, "Driver %s", *driver ? driver : "of unknown version");
        nvml_close(nvml);
        return;
    }
    check_fact(gpu, "count", json_integer(0));
    check_say(library, CHECK_MISSING, "%s", err.text);
    snprintf(library->way, sizeof library->way,
             "It comes with NVIDIA's driver; nvidia-smi must work. In a container: docker run "
             "--gpus all");
    if (access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0) {
        check_say(gpu, CHECK_MISSING,
                  "An NVIDIA driver is loaded, but its library cannot be used (see nvml).");
        snprintf(gpu->way, sizeof gpu->way,
                 "In a container: docker run --gpus all, with the NVIDIA container toolkit");
    } else if (access("/dev/kfd", F_OK) == 0) {
        check_say(gpu, CHECK_MISSING,
                  "There is an AMD GPU; leat reads the counters of NVIDIA's "
                  "only. Steps and phases are seen all the same.");
        snprintf(gpu->way, sizeof gpu->way, "rocm-smi shows its counters, beside the run");
    } else {
        check_say(gpu, CHECK_MISSING,
                  "None that can be seen; training on the CPU is seen in full.");
        snprintf(gpu->way, sizeof gpu->way, "Where there is an NVIDIA GPU: see nvml");
    }
}

static void check_limits(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "cgroup");
    struct cgroup_info group;
    struct sys_info machine;
    if (cgroup_read("/", &group) < 0 || sys_read("/", &machine) < 0) {
        check_say(item, CHECK_MISSING, "The limits of this process cannot be read.");
        snprintf(item->way, sizeof item->way, "mount -t proc proc /proc");
        return;
    }
    char memory[64] = "memory unlimited", limit[48];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (group.memory_limit_bytes >= 0) {
        amount(group.memory_limit_bytes, limit, sizeof limit);
        snprintf(memory, sizeof memory, "%s of memory", limit);
    }
    check_fact(item, "version", json_integer(group.version));
    check_fact(item, "cpus", json_number_or_null(group.cpus));
    check_fact(item, "memory_limit_bytes",
               group.memory_limit_bytes < 0 ? json_null() : json_integer(group.memory_limit_bytes));
    int tight = group.cpus < (double)cpus || group.memory_limit_bytes >= 0;
    char version[32] = "no cgroup";
    if (group.version)
        snprintf(version, sizeof version, "cgroup v%d", group.version);
    check_say(item, tight ? CHECK_LIMITED : CHECK_OK, "%s: %.4g of %ld CPUs, %s", version,
              group.cpus, cpus, memory);
    if (group.cpus < (double)cpus)
        snprintf(item->way, sizeof item->way,
                 "More than %.0f DataLoader workers will not help; docker run --cpus, or "
                 "the job's CPU request, raises it.",
                 ceil(group.cpus));
    else if (tight)
        snprintf(item->way, sizeof item->way,
                 "docker run --memory, or the job's memory request, raises it.");
}

static void check_shm(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "/dev/shm");
    struct sys_info machine;
    sys_read("/", &machine);
    if (machine.shm_total < 0) {
        check_say(item, CHECK_MISSING, "There is none: DataLoader workers cannot hand over.");
        snprintf(item->way, sizeof item->way, "mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    char total[48], left[48];
    amount(machine.shm_total, total, sizeof total);
    amount(machine.shm_total - machine.shm_used, left, sizeof left);
    check_fact(item, "total_bytes", json_integer(machine.shm_total));
    check_fact(item, "used_bytes", json_integer(machine.shm_used));
    /* Docker gives 64 MiB, which a few batches of images fill: the workers then die of a bus
     * error. A GiB holds the prefetched batches of most loaders. */
    int small = (double)machine.shm_total < GIB;
    check_say(item, small ? CHECK_LIMITED : CHECK_OK, "%s, %s free%s", total, left,
              small ? ": DataLoader workers may die of a bus error" : "");
    if (small)
        snprintf(item->way, sizeof item->way, "docker run --shm-size=8g, or --ipc=host");
}

static void check_files(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "open files");
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    check_fact(item, "soft", json_integer((json_int_t)limit.rlim_cur));
    check_fact(item, "hard", json_integer((json_int_t)limit.rlim_max));
    /* 1024 is what nearly every system gives; less is asking for "Too many open files". */
    int few = limit.rlim_cur < 1024;
    check_say(item, few ? CHECK_LIMITED : CHECK_OK, "At most %llu, can be raised to %llu",
              (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    if (few)
        snprintf(item->way, sizeof item->way,
                 limit.rlim_max >= 4096 ? "ulimit -n 4096"
                                        : "ulimit -n 4096 as root; in a container: docker run "
                                          "--ulimit nofile=4096");
}

static void check_memfd(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "memfd");
    item->needed = 1;
    int fd = memfd_create("leat-check", MFD_CLOEXEC);
    if (fd < 0) {
        check_say(item, CHECK_MISSING, "Memory cannot be shared with the training: %s.",
                  err_text(errno));
        snprintf(item->way, sizeof item->way,
                 "A sandbox or a kernel before 3.17 lacks memfd_create(2).");
        return;
    }
    close(fd);
    check_say(item, CHECK_OK, "Memory can be shared with the training");
}

static void check_pressure(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "pressure");
    struct sys_info machine;
    sys_read("/", &machine);
    if (machine.cpu_stall_us >= 0 || machine.memory_stall_us >= 0 || machine.io_stall_us >= 0) {
        check_say(item, CHECK_OK, "Stalls on CPU, memory and I/O are counted by the kernel");
        return;
    }
    check_say(item, CHECK_MISSING, "/proc/pressure is not there: stalls are not counted.");
    snprintf(item->way, sizeof item->way, "Boot with psi=1 (Linux 4.20 or later)");
}

static void check_logs(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "logs");
    const char *where = access("logs", F_OK) == 0 ? "logs" : ".";
    struct statvfs fs;
    if (access(where, W_OK | X_OK) < 0) {
        check_say(item, CHECK_MISSING, "The folder logs cannot be written here: %s.",
                  err_text(errno));
        snprintf(item->way, sizeof item->way, "leat run --logs-dir DIR train.py");
        return;
    }
    char left[48] = "unknown";
    int64_t bytes = -1;
    if (statvfs(where, &fs) == 0) {
        bytes = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
        amount(bytes, left, sizeof left);
        check_fact(item, "free_bytes", json_integer(bytes));
    }
    /* A run's database stays below 256 MB. */
    int small = bytes >= 0 && (double)bytes < 256 * MIB;
    check_say(item, small ? CHECK_LIMITED : CHECK_OK, "Runs go to ./logs, %s free", left);
    if (small)
        snprintf(item->way, sizeof item->way, "leat run --logs-dir DIR train.py");
}

static void check_bpf(struct check *check)
{
    struct leat_err err = {0};
    struct check_item *item = check_add(check, CHECK_KERNEL, "bpf");
    int code = bpf_try(&err);
    check_fact(item, "errno", json_integer(-code));
    if (code == 0)
        check_say(item, CHECK_OK, "A tracing program was loaded, and dropped");
    else
        check_say(item, CHECK_MISSING, "%s", err.text);
    item = check_add(check, CHECK_KERNEL, "btf");
    if (bpf_has_types("/")) {
        check_say(item, CHECK_OK, "/sys/kernel/btf/vmlinux describes the kernel's types");
        return;
    }
    check_say(item, CHECK_MISSING, "/sys/kernel/btf/vmlinux is not there or cannot be read.");
    snprintf(item->way, sizeof item->way,
             "A kernel with CONFIG_DEBUG_INFO_BTF, as the distributions' own since 2021");
}

static void check_rights(struct check *check)
{
    struct rights_info rights;
    rights_read("/", &rights);
    struct check_item *item = check_add(check, CHECK_KERNEL, "rights");
    static const struct {
        int bit;
        const char *name;
    } wanted[] = {
        {RIGHT_BPF,        "CAP_BPF"       },
        {RIGHT_PERFMON,    "CAP_PERFMON"   },
        {RIGHT_SYS_PTRACE, "CAP_SYS_PTRACE"}
    };
    char lacking[96] = "";
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int has = rights_has(&rights, wanted[i].bit);
        check_fact(item, wanted[i].name, json_boolean(has));
        if (!has)
            snprintf(lacking + strlen(lacking), sizeof lacking - strlen(lacking), "%s%s",
                     lacking[0] ? ", " : "", wanted[i].name);
    }
    check_fact(item, "uid", json_integer(rights.uid));
    const char *border = rights.own_users ? ", inside a user namespace" : "";
    if (lacking[0]) {
        check_say(item, CHECK_LIMITED, "uid %" PRId64 "%s, without %s", rights.uid, border,
                  lacking);
        snprintf(item->way, sizeof item->way,
                 "sudo -E setpriv --reuid=$USER --init-groups "
                 "--inh-caps=+bpf,+perfmon,+sys_ptrace "
                 "--ambient-caps=+bpf,+perfmon,+sys_ptrace leat run train.py");
    } else {
        check_say(item, rights.own_users ? CHECK_LIMITED : CHECK_OK,
                  "uid %" PRId64 "%s, with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE", rights.uid,
                  border);
        if (rights.own_users)
            snprintf(item->way, sizeof item->way,
                     "Outside of the namespace (a rootless container has one), as root");
    }

    item = check_add(check, CHECK_KERNEL, "perf");
    int allowed = rights_has(&rights, RIGHT_PERFMON) || rights_has(&rights, RIGHT_SYS_ADMIN);
    if (rights.perf_event_paranoid == INT64_MIN) {
        check_say(item, CHECK_MISSING, "This kernel has no perf events.");
        snprintf(item->way, sizeof item->way,
                 "A kernel with CONFIG_PERF_EVENTS, and no sandbox that hides them");
    } else {
        check_fact(item, "perf_event_paranoid", json_integer(rights.perf_event_paranoid));
        int shut = !allowed && rights.perf_event_paranoid > 2;
        check_say(item, shut ? CHECK_LIMITED : CHECK_OK, "perf_event_paranoid is %" PRId64 "%s",
                  rights.perf_event_paranoid,
                  allowed ? ", which does not bind this user"
                  : shut  ? ": nothing can be sampled"
                          : ": own processes can be sampled");
        if (shut)
            snprintf(item->way, sizeof item->way, "sudo sysctl kernel.perf_event_paranoid=2");
    }

    item = check_add(check, CHECK_KERNEL, "ptrace");
    int tracer = rights_has(&rights, RIGHT_SYS_PTRACE);
    if (rights.ptrace_scope >= 0)
        check_fact(item, "ptrace_scope", json_integer(rights.ptrace_scope));
    if (rights.ptrace_scope <= 0)
        check_say(item, CHECK_OK, "Processes of the same user can be looked into");
    else if (rights.ptrace_scope < 3 && tracer)
        check_say(item, CHECK_OK, "ptrace_scope is %" PRId64 ", which does not bind this user",
                  rights.ptrace_scope);
    else if (rights.ptrace_scope == 1)
        check_say(item, CHECK_OK, "ptrace_scope is 1: own children only, enough for leat run");
    else {
        check_say(item, CHECK_LIMITED, "ptrace_scope is %" PRId64 ": no process can be looked into",
                  rights.ptrace_scope);
        snprintf(item->way, sizeof item->way,
                 rights.ptrace_scope == 2 ? "sudo sysctl kernel.yama.ptrace_scope=1"
                                          : "Boot without ptrace_scope=3: it cannot be undone");
    }
}

void check_machine(struct check *check)
{
    check_gpu(check);
    check_limits(check);
    check_shm(check);
    check_files(check);
    check_memfd(check);
    check_pressure(check);
    check_logs(check);
    check_bpf(check);
    check_rights(check);
}
