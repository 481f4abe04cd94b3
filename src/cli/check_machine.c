/* check_machine.c: the items of `leat check` on GPUs, limits of this process, and rights. */
#include "cli/check.h"

#include "base/cgroup.h"
#include "observe/observe.h"
#include "report/text_layout.h"

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

/* ---- GPU ------------------------------------------------------------------------------------- */

static void add_gpus(struct check_item *item, struct nvml *nvml)
{
    int count = nvml_count(nvml);
    struct gpu_info first = {0}, gpu;
    json_t *names = json_array();
    int same_model = 1;
    for (int i = 0; i < count; i++) {
        if (nvml_read(nvml, i, &gpu) < 0)
            continue;
        if (i == 0)
            first = gpu;
        same_model = same_model && strcmp(first.name, gpu.name) == 0;
        json_array_append_new(names, json_string(gpu.name));
    }
    check_fact(item, "count", json_integer(count));
    check_fact(item, "names", names);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char cell[LAYOUT_CELL], memory[LAYOUT_CELL + 4] = "";
    if (first.memory_total > 0)
        snprintf(memory, sizeof memory, ", %s", layout_bytes((double)first.memory_total, cell));
    if (visible && (!*visible || strcmp(visible, "-1") == 0))
        check_limited(item, "unset CUDA_VISIBLE_DEVICES",
                      "%d x %s, but CUDA_VISIBLE_DEVICES hides all from PyTorch.", count,
                      first.name);
    else
        check_ok(item, "%d x %s%s%s", count, first.name, same_model ? "" : " and others", memory);
}

static void check_gpu(struct check *check)
{
    struct leat_err err = {0};
    struct nvml *nvml = NULL;
    struct check_item *gpu = check_add(check, CHECK_MACHINE, "gpu");
    struct check_item *library = check_add(check, CHECK_MACHINE, "nvml");
    if (nvml_open(&nvml, &err) == 0) {
        const char *driver = nvml_driver(nvml);
        add_gpus(gpu, nvml);
        check_fact(library, "driver", json_text_or_null(*driver ? driver : NULL));
        check_ok(library, "Driver %s", *driver ? driver : "of unknown version");
        nvml_close(nvml);
        return;
    }
    check_fact(gpu, "count", json_integer(0));
    check_missing(library,
                  "NVIDIA's driver has it; nvidia-smi must work. In a container: docker run "
                  "--gpus all",
                  "%s", err.text);
    if (access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0)
        check_missing(gpu,
                      "In a container: docker run --gpus all, with the NVIDIA container toolkit",
                      "An NVIDIA driver is loaded, but its library cannot be used (see nvml).");
    else if (access("/dev/kfd", F_OK) == 0)
        check_missing(gpu, "Watch its counters with rocm-smi during the run",
                      "There is an AMD GPU; leat reads the counters of NVIDIA GPUs only. Steps and "
                      "phases are measured.");
    else
        check_missing(gpu, "On a machine with an NVIDIA GPU: see nvml",
                      "There is no GPU; training on the CPU is measured in full.");
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void check_cgroup(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "cgroup");
    struct cgroup_info group;
    struct sys_info machine;
    if (cgroup_read("/", &group) < 0 || sys_read("/", &machine) < 0) {
        check_missing(item, "mount -t proc proc /proc",
                      "The limits of this process cannot be read.");
        return;
    }
    int64_t memory = group.memory_limit_bytes;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    check_fact(item, "version", json_integer(group.version));
    check_fact(item, "cpus", json_number_or_null(group.cpus));
    check_fact(item, "memory_limit_bytes", memory < 0 ? json_null() : json_integer(memory));
    char found[128], cell[LAYOUT_CELL], way[128], version[32] = "no cgroup";
    if (group.version)
        snprintf(version, sizeof version, "cgroup v%d", group.version);
    snprintf(found, sizeof found, "%s: %.4g of %ld CPUs, memory %s", version, group.cpus, cpus,
             memory < 0 ? "unlimited" : layout_bytes((double)memory, cell));
    snprintf(way, sizeof way,
             "More than %.0f DataLoader workers will not help; docker run --cpus, or the job's CPU "
             "request, raises it.",
             ceil(group.cpus));
    if (group.cpus < (double)cpus)
        check_limited(item, way, "%s", found);
    else if (memory >= 0)
        check_limited(item, "docker run --memory, or the job's memory request, raises it.", "%s",
                      found);
    else
        check_ok(item, "%s", found);
}

static void check_shm(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "/dev/shm");
    struct sys_info machine;
    sys_read("/", &machine);
    if (machine.shm_total < 0) {
        check_missing(item, "mount -t tmpfs tmpfs /dev/shm",
                      "There is no /dev/shm: DataLoader workers cannot return batches.");
        return;
    }
    char total[LAYOUT_CELL], left[LAYOUT_CELL];
    layout_bytes((double)machine.shm_total, total);
    layout_bytes((double)(machine.shm_total - machine.shm_used), left);
    check_fact(item, "total_bytes", json_integer(machine.shm_total));
    check_fact(item, "used_bytes", json_integer(machine.shm_used));
    /* Docker gives 64 MiB, which a few batches of images fill: the workers then die of SIGBUS. A
     * GiB holds the prefetched batches of most loaders. */
    if ((double)machine.shm_total < GIB)
        check_limited(item, "docker run --shm-size=8g, or --ipc=host",
                      "%s, %s free: DataLoader workers may die of SIGBUS", total, left);
    else
        check_ok(item, "%s, %s free", total, left);
}

static void check_files(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "open files");
    struct rlimit limit;
    char found[96];
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    check_fact(item, "soft", json_integer((json_int_t)limit.rlim_cur));
    check_fact(item, "hard", json_integer((json_int_t)limit.rlim_max));
    snprintf(found, sizeof found, "At most %llu, can be raised to %llu",
             (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    /* 1024 is the usual limit; with fewer, "Too many open files" is likely. */
    if (limit.rlim_cur >= 1024)
        check_ok(item, "%s", found);
    else
        check_limited(item,
                      limit.rlim_max >= 4096 ? "ulimit -n 4096"
                                             : "ulimit -n 4096 as root; in a container: docker run "
                                               "--ulimit nofile=4096",
                      "%s", found);
}

static void check_memfd(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "memfd");
    item->needed = 1;
    int fd = memfd_create("leat-check", MFD_CLOEXEC);
    if (fd < 0) {
        check_missing(item, "Linux 3.17 or later, and a sandbox that permits memfd_create(2)",
                      "Memory cannot be shared with the training: %s.", err_text(errno));
        return;
    }
    close(fd);
    check_ok(item, "Memory can be shared with the training");
}

static void check_pressure(struct check *check)
{
    struct check_item *item = check_add(check, CHECK_MACHINE, "pressure");
    struct sys_info machine;
    sys_read("/", &machine);
    if (machine.cpu_stall_us >= 0 || machine.memory_stall_us >= 0 || machine.io_stall_us >= 0)
        check_ok(item, "The kernel counts stalls on CPU, memory and I/O");
    else
        check_missing(item, "Boot with psi=1 (Linux 4.20 or later)",
                      "There is no /proc/pressure: stalls are not counted.");
}

static void check_logs(struct check *check)
{
    static const char way[] = "leat run --logs-dir DIR train.py";
    struct check_item *item = check_add(check, CHECK_MACHINE, "logs");
    const char *folder = access("logs", F_OK) == 0 ? "logs" : ".";
    struct statvfs fs;
    if (access(folder, W_OK | X_OK) < 0) {
        check_missing(item, way, "The folder logs cannot be written here: %s.", err_text(errno));
        return;
    }
    if (statvfs(folder, &fs) < 0) {
        check_ok(item, "Runs go to ./logs");
        return;
    }
    int64_t bytes = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    char left[LAYOUT_CELL];
    layout_bytes((double)bytes, left);
    check_fact(item, "free_bytes", json_integer(bytes));
    if ((double)bytes < 256 * MIB) /* the largest run.db */
        check_limited(item, way, "Runs go to ./logs, %s free", left);
    else
        check_ok(item, "Runs go to ./logs, %s free", left);
}

/* ---- kernel ---------------------------------------------------------------------------------- */

static void check_bpf(struct check *check)
{
    struct bpf_trial trial;
    struct check_item *item = check_add(check, CHECK_KERNEL, "bpf");
    bpf_try(&trial);
    check_fact(item, "errno", json_integer(-trial.code));
    if (trial.code == 0)
        check_ok(item, "Tracing programs can be loaded");
    else
        check_missing(item, trial.way, "%s", trial.why);
    item = check_add(check, CHECK_KERNEL, "btf");
    if (bpf_has_types("/"))
        check_ok(item, "/sys/kernel/btf/vmlinux describes the kernel's types");
    else
        check_missing(item, "A kernel with CONFIG_DEBUG_INFO_BTF; distributions set it since 2021",
                      "/sys/kernel/btf/vmlinux does not exist or cannot be read.");
}

static void check_capabilities(struct check *check, const struct rights_info *rights)
{
    static const struct {
        int bit;
        const char *name;
    } wanted[] = {
        {RIGHT_BPF,        "CAP_BPF"       },
        {RIGHT_PERFMON,    "CAP_PERFMON"   },
        {RIGHT_SYS_PTRACE, "CAP_SYS_PTRACE"}
    };
    struct check_item *item = check_add(check, CHECK_KERNEL, "rights");
    const char *namespace = rights->own_users ? ", inside a user namespace" : "";
    char lacking[96] = "";
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int has = rights_has(rights, wanted[i].bit);
        check_fact(item, wanted[i].name, json_boolean(has));
        if (!has)
            snprintf(lacking + strlen(lacking), sizeof lacking - strlen(lacking), "%s%s",
                     lacking[0] ? ", " : "", wanted[i].name);
    }
    check_fact(item, "uid", json_integer(rights->uid));
    if (lacking[0])
        check_limited(item,
                      "sudo -E setpriv --reuid=$USER --init-groups "
                      "--inh-caps=+bpf,+perfmon,+sys_ptrace "
                      "--ambient-caps=+bpf,+perfmon,+sys_ptrace leat run train.py",
                      "uid %" PRId64 "%s, without %s", rights->uid, namespace, lacking);
    else if (rights->own_users)
        check_limited(item,
                      "Run leat outside the user namespace (a rootless container has one), as root",
                      "uid %" PRId64 "%s, with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE",
                      rights->uid, namespace);
    else
        check_ok(item, "uid %" PRId64 ", with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE",
                 rights->uid);
}

static void check_perf(struct check *check, const struct rights_info *rights)
{
    struct check_item *item = check_add(check, CHECK_KERNEL, "perf");
    int64_t paranoid = rights->perf_event_paranoid;
    if (paranoid == INT64_MIN) {
        check_missing(item, "A kernel with CONFIG_PERF_EVENTS, and no sandbox that hides them",
                      "This kernel has no perf events.");
        return;
    }
    check_fact(item, "perf_event_paranoid", json_integer(paranoid));
    if (rights_has(rights, RIGHT_PERFMON) || rights_has(rights, RIGHT_SYS_ADMIN))
        check_ok(item, "perf_event_paranoid is %" PRId64 ", which does not limit this user",
                 paranoid);
    else if (paranoid > 2)
        check_limited(item, "sudo sysctl kernel.perf_event_paranoid=2",
                      "perf_event_paranoid is %" PRId64 ": no process can be sampled", paranoid);
    else
        check_ok(item, "perf_event_paranoid is %" PRId64 ": own processes can be sampled",
                 paranoid);
}

static void check_ptrace(struct check *check, const struct rights_info *rights)
{
    struct check_item *item = check_add(check, CHECK_KERNEL, "ptrace");
    int64_t scope = rights->ptrace_scope;
    if (scope >= 0)
        check_fact(item, "ptrace_scope", json_integer(scope));
    if (scope <= 0)
        check_ok(item, "Processes of the same user can be read");
    else if (scope < 3 && rights_has(rights, RIGHT_SYS_PTRACE))
        check_ok(item, "ptrace_scope is %" PRId64 ", which does not limit this user", scope);
    else if (scope == 1)
        check_ok(item, "ptrace_scope is 1: child processes only, enough for leat run");
    else
        check_limited(item,
                      scope == 2 ? "sudo sysctl kernel.yama.ptrace_scope=1"
                                 : "Boot without ptrace_scope=3: it cannot be lowered later",
                      "ptrace_scope is %" PRId64 ": no process can be read", scope);
}

void check_machine(struct check *check)
{
    struct rights_info rights;
    check_gpu(check);
    check_cgroup(check);
    check_shm(check);
    check_files(check);
    check_memfd(check);
    check_pressure(check);
    check_logs(check);
    check_bpf(check);
    rights_read("/", &rights);
    check_capabilities(check, &rights);
    check_perf(check, &rights);
    check_ptrace(check, &rights);
}
