/* nvml.c: GPUs through NVIDIA's management library (NVML), loaded at run time.
 *
 * One binary runs with and without a driver, so NVML is neither linked nor included: the few
 * structs and functions used are declared here. Their layout is part of NVML's ABI, which keeps old
 * entry points and gives a changed struct a new suffix. Every function is optional: if a driver
 * lacks one or a device does not support it, that figure is unknown.
 *
 * A device that is split into instances (MIG) is listed as its instances: they have their own
 * memory and processes; temperature, power, clocks and PCIe link are those of the whole device.
 * NVML gives no utilization for an instance.
 *
 * The devices of a run are found by process id. NVML returns ids of the machine, which are useless
 * in a container with its own pid namespace, unless the driver translates them, as newer ones do.
 * So ids are used outside of containers, and in a container once one of ours has been found on any
 * device. Otherwise open device files decide: CUDA opens /dev/nvidia<minor> of each visible device,
 * which may be more than it uses.
 *
 * NVML's call for PCIe traffic takes 20 ms per direction. So the byte counters are read at the
 * start and at the end of nvml_read, at least 2 ms apart. Not from one nvml_read to the next: they
 * have 32 bits, and at the 60 GB/s of an H200 overflow every 70 ms. Over 2 ms they gave the true
 * rate within 5 %, which includes the link's overhead of about 8 % of the bytes copied. Without
 * that wait, nvml_read took 0.5 to 5 ms.
 */
#include "observe/nvml.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/proc_text.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef void *device_handle;

enum { /* NVML's return codes and constants that are used */
       NVML_SUCCESS = 0,
       NVML_DRIVER_NOT_LOADED = 9,
       NVML_LIBRARY_MISMATCH = 18,
       NVML_TEMPERATURE_GPU = 0,
       NVML_THRESHOLD_SLOWDOWN = 1,
       NVML_CLOCK_SM = 1,
       NVML_FIELD_PCIE_TX_BYTES = 197,
       NVML_FIELD_PCIE_RX_BYTES = 198,
       NVML_VALUE_UNSIGNED_INT = 1,
};

struct nvml_utilization {
    unsigned gpu, memory; /* percent */
};
struct nvml_memory {
    unsigned long long total, free, used; /* used holds what the driver keeps for itself */
};
struct nvml_memory_v2 {
    unsigned version; /* size | 2 << 24 */
    unsigned long long total, reserved, free, used;
};
struct nvml_field {
    unsigned id, scope;
    long long timestamp, latency_us;
    unsigned value_type;
    int result;
    union {
        double number;
        unsigned small;
        unsigned long long large;
    } value;
};
/* v1 has the first two fields; v2 and v3 also the instance ids. Drivers 535.43 to 535.86 wrote
 * eight more bytes with v3. */
enum { PROCESS_BYTES_V1 = 16, PROCESS_BYTES_V3 = 24, PROCESS_BYTES_MOST = 32 };

/* X(member, name, older name, parameters): declares and loads the functions. */
#define FUNCTIONS(X)                                                                               \
    X(init, "nvmlInit_v2", "nvmlInit", (void))                                                     \
    X(shutdown, "nvmlShutdown", NULL, (void))                                                      \
    X(count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", (unsigned *))                          \
    X(handle, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex",                       \
      (unsigned, device_handle *))                                                                 \
    X(driver, "nvmlSystemGetDriverVersion", NULL, (char *, unsigned))                              \
    X(name, "nvmlDeviceGetName", NULL, (device_handle, char *, unsigned))                          \
    X(uuid, "nvmlDeviceGetUUID", NULL, (device_handle, char *, unsigned))                          \
    X(minor, "nvmlDeviceGetMinorNumber", NULL, (device_handle, unsigned *))                        \
    X(utilization, "nvmlDeviceGetUtilizationRates", NULL,                                          \
      (device_handle, struct nvml_utilization *))                                                  \
    X(memory, "nvmlDeviceGetMemoryInfo", NULL, (device_handle, struct nvml_memory *))              \
    X(memory_v2, "nvmlDeviceGetMemoryInfo_v2", NULL, (device_handle, struct nvml_memory_v2 *))     \
    X(temperature, "nvmlDeviceGetTemperature", NULL, (device_handle, unsigned, unsigned *))        \
    X(threshold, "nvmlDeviceGetTemperatureThreshold", NULL, (device_handle, unsigned, unsigned *)) \
    X(power, "nvmlDeviceGetPowerUsage", NULL, (device_handle, unsigned *))                         \
    X(power_limit, "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit",         \
      (device_handle, unsigned *))                                                                 \
    X(clock, "nvmlDeviceGetClockInfo", NULL, (device_handle, unsigned, unsigned *))                \
    X(reasons, "nvmlDeviceGetCurrentClocksEventReasons",                                           \
      "nvmlDeviceGetCurrentClocksThrottleReasons", (device_handle, unsigned long long *))          \
    X(fields, "nvmlDeviceGetFieldValues", NULL, (device_handle, int, struct nvml_field *))         \
    X(processes_v1, "nvmlDeviceGetComputeRunningProcesses", NULL,                                  \
      (device_handle, unsigned *, void *))                                                         \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                        \
      "nvmlDeviceGetComputeRunningProcesses_v2", (device_handle, unsigned *, void *))              \
    X(mig_mode, "nvmlDeviceGetMigMode", NULL, (device_handle, unsigned *, unsigned *))             \
    X(mig_count, "nvmlDeviceGetMaxMigDeviceCount", NULL, (device_handle, unsigned *))              \
    X(mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex", NULL,                                     \
      (device_handle, unsigned, device_handle *))

struct device {
    device_handle self;  /* the device, or the instance */
    device_handle whole; /* the device an instance is part of; else the same */
    unsigned minor;      /* of /dev/nvidia<minor>; UINT_MAX unknown */
};

struct nvml {
    void *library;
    int started;
    struct device *devices;
    size_t count, capacity;
    int own_pids; /* NVML's process ids are valid here */
    char root[PATH_MAX];
    char driver[80];
    struct {
#define X(field, name, older, arguments) int(*field) arguments;
        FUNCTIONS(X)
#undef X
    } f;
};

static void *find_function(void *library, const char *name, const char *older)
{
    void *address = dlsym(library, name);
    return address || !older ? address : dlsym(library, older);
}

static void load_functions(struct nvml *nvml)
{
#define X(field, name, older, arguments)                                                           \
    nvml->f.field = (int(*) arguments)find_function(nvml->library, name, older);
    FUNCTIONS(X)
#undef X
}

static int add_device(struct nvml *nvml, device_handle self, device_handle whole)
{
    if (mem_reserve(&nvml->devices, &nvml->capacity, nvml->count + 1, sizeof *nvml->devices) < 0)
        return -ENOMEM;
    struct device device = {.self = self, .whole = whole, .minor = UINT_MAX};
    unsigned minor;
    if (nvml->f.minor && nvml->f.minor(whole, &minor) == NVML_SUCCESS)
        device.minor = minor;
    nvml->devices[nvml->count++] = device;
    return 0;
}

/* Adds a device, or its instances if it is split. */
static int add_devices(struct nvml *nvml, device_handle whole)
{
    unsigned now = 0, later = 0, most = 0;
    size_t before = nvml->count;
    if (nvml->f.mig_mode && nvml->f.mig_count && nvml->f.mig_handle &&
        nvml->f.mig_mode(whole, &now, &later) == NVML_SUCCESS && now == 1 &&
        nvml->f.mig_count(whole, &most) == NVML_SUCCESS) {
        for (unsigned i = 0; i < most && i < 64; i++) {
            device_handle instance;
            if (nvml->f.mig_handle(whole, i, &instance) == NVML_SUCCESS &&
                add_device(nvml, instance, whole) < 0)
                return -ENOMEM;
        }
    }
    return nvml->count > before ? 0 : add_device(nvml, whole, whole);
}

/* 1 in the initial pid namespace, whose number is fixed in the kernel. */
static int has_machine_pids(int proc)
{
    char name[64];
    ssize_t length = readlinkat(proc, "self/ns/pid", name, sizeof name - 1);
    if (length < 0)
        return 0;
    name[length] = 0;
    return strcmp(name, "pid:[4026531836]") == 0;
}

static int start(struct nvml *nvml, struct leat_err *err)
{
    if (!nvml->f.init || !nvml->f.shutdown || !nvml->f.count || !nvml->f.handle)
        return err_set(err, -ENOSYS, "The NVIDIA library lacks its basic functions.");
    int code = nvml->f.init();
    if (code == NVML_DRIVER_NOT_LOADED)
        return err_set(err, -ENXIO,
                       "The NVIDIA driver is not loaded, or the container was "
                       "started without its devices (docker run --gpus all).");
    if (code == NVML_LIBRARY_MISMATCH)
        return err_set(err, -ENOENT,
                       "The NVIDIA library and the loaded driver are of different "
                       "versions: restart the machine after the update.");
    if (code != NVML_SUCCESS)
        return err_set(err, -ENOENT, "The NVIDIA library does not start: NVML error %d.", code);
    nvml->started = 1;
    unsigned count = 0;
    code = nvml->f.count(&count);
    if (code != NVML_SUCCESS || count == 0)
        return err_set(err, -ENODEV, "The NVIDIA driver is loaded, but has no device.");
    for (unsigned i = 0; i < count; i++) {
        device_handle whole;
        /* A failed device, or one without permission, is skipped. */
        if (nvml->f.handle(i, &whole) == NVML_SUCCESS && add_devices(nvml, whole) < 0)
            return err_set(err, -ENOMEM, "Out of memory.");
    }
    if (nvml->count == 0)
        return err_set(err, -ENODEV, "None of the %u NVIDIA devices can be read.", count);
    if (!nvml->f.driver || nvml->f.driver(nvml->driver, sizeof nvml->driver) != NVML_SUCCESS)
        nvml->driver[0] = 0;
    return 0;
}

int nvml_open_library(const char *library, const char *root, struct nvml **ret_nvml,
                      struct leat_err *err)
{
    struct nvml *nvml = mem_alloc(sizeof *nvml);
    if (!nvml)
        return err_set(err, -ENOMEM, "Out of memory.");
    snprintf(nvml->root, sizeof nvml->root, "%s", root);
    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    int result;
    if (nvml->library) {
        load_functions(nvml);
        result = start(nvml, err);
    } else {
        result = err_set(err, -ENOENT,
                         "There is no %s: no NVIDIA driver, or a container without it.", library);
    }
    if (result < 0) {
        nvml_close(nvml);
        return result;
    }
    int proc = proc_text_open_dir(root, "/proc");
    if (proc >= 0) {
        nvml->own_pids = has_machine_pids(proc);
        close(proc);
    }
    *ret_nvml = nvml;
    return 0;
}

int nvml_open(struct nvml **ret_nvml, struct leat_err *err)
{
    return nvml_open_library("libnvidia-ml.so.1", "/", ret_nvml, err);
}

void nvml_close(struct nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->started)
        nvml->f.shutdown();
    if (nvml->library)
        dlclose(nvml->library);
    mem_free(nvml->devices);
    mem_free(nvml);
}

int nvml_count(struct nvml *nvml)
{
    return (int)nvml->count;
}

const char *nvml_driver(struct nvml *nvml)
{
    return nvml->driver;
}

/* Why the clocks are throttled. Idle clocks and clocks set by the user do not count. */
static void name_reasons(unsigned long long bits, char *ret_text, size_t bytes)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {
        {0x04, "power_cap"  },
        {0x08, "hw_slowdown"},
        {0x10, "sync_boost" },
        {0x20, "thermal"    },
        {0x40, "hw_thermal" },
        {0x80, "power_brake"}
    };
    size_t used = 0;
    ret_text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!(bits & names[i].bit))
            continue;
        int put = snprintf(ret_text + used, bytes - used, "%s%s", used ? "," : "", names[i].name);
        if (put < 0 || (size_t)put >= bytes - used) {
            ret_text[used] = 0; /* no cut names */
            return;
        }
        used += (size_t)put;
    }
}

static void read_memory(struct nvml *nvml, struct device *device, struct gpu_info *info)
{
    struct nvml_memory_v2 v2 = {.version = sizeof v2 | 2u << 24};
    struct nvml_memory v1;
    if (nvml->f.memory_v2 && nvml->f.memory_v2(device->self, &v2) == NVML_SUCCESS) {
        info->memory_total = (int64_t)v2.total;
        info->memory_used = (int64_t)v2.used;
    } else if (nvml->f.memory && nvml->f.memory(device->self, &v1) == NVML_SUCCESS) {
        info->memory_total = (int64_t)v1.total;
        info->memory_used = (int64_t)v1.used;
    }
}

struct pcie {
    uint64_t at_ns; /* 0: not supported */
    uint64_t tx, rx;
    int narrow; /* 32-bit counters */
};

static struct pcie read_pcie(struct nvml *nvml, struct device *device)
{
    struct nvml_field fields[2] = {{.id = NVML_FIELD_PCIE_TX_BYTES},
                                   {.id = NVML_FIELD_PCIE_RX_BYTES}};
    uint64_t before = clock_now_ns();
    if (!nvml->f.fields || nvml->f.fields(device->whole, 2, fields) != NVML_SUCCESS ||
        fields[0].result != NVML_SUCCESS || fields[1].result != NVML_SUCCESS)
        return (struct pcie){0};
    struct pcie p = {.at_ns = before / 2 + clock_now_ns() / 2,
                     .narrow = fields[0].value_type == NVML_VALUE_UNSIGNED_INT};
    p.tx = p.narrow ? fields[0].value.small : fields[0].value.large;
    p.rx = p.narrow ? fields[1].value.small : fields[1].value.large;
    return p;
}

/* Bytes per second since `first`; unknown when a counter may have overflowed more than once. */
static void rate_pcie(struct nvml *nvml, struct device *device, const struct pcie *first,
                      struct gpu_info *info)
{
    const uint64_t least_ns = 2 * NS_PER_MS, most_ns = 50 * NS_PER_MS;
    uint64_t past_ns = clock_now_ns() - first->at_ns;
    if (past_ns < least_ns)
        nanosleep(&(struct timespec){.tv_nsec = (long)(least_ns - past_ns)}, NULL);
    struct pcie last = read_pcie(nvml, device);
    if (!last.at_ns || last.at_ns <= first->at_ns || last.at_ns - first->at_ns > most_ns)
        return;
    uint64_t tx = last.tx - first->tx, rx = last.rx - first->rx;
    if (last.narrow) {
        tx &= UINT32_MAX;
        rx &= UINT32_MAX;
    }
    double seconds = (double)(last.at_ns - first->at_ns) / (double)NS_PER_S;
    info->pcie_tx_bytes_s = (int64_t)((double)tx / seconds);
    info->pcie_rx_bytes_s = (int64_t)((double)rx / seconds);
}

int nvml_read(struct nvml *nvml, int index, struct gpu_info *ret_info)
{
    if (index < 0 || (size_t)index >= nvml->count)
        return -EINVAL;
    struct device *device = &nvml->devices[index];
    struct gpu_info info = {.utilization = NAN,
                            .memory_used = -1,
                            .memory_total = -1,
                            .temperature_c = -1,
                            .temperature_limit_c = -1,
                            .power_w = NAN,
                            .power_limit_w = NAN,
                            .sm_clock_mhz = -1,
                            .pcie_tx_bytes_s = -1,
                            .pcie_rx_bytes_s = -1};
    struct pcie pcie = read_pcie(nvml, device);
    struct nvml_utilization utilization;
    unsigned long long reasons;
    unsigned value;
    char text[96]; /* enough for NVML's names */
    if (nvml->f.uuid && nvml->f.uuid(device->self, text, sizeof text) == NVML_SUCCESS)
        snprintf(info.uuid, sizeof info.uuid, "%.*s", (int)sizeof info.uuid - 1, text);
    if (nvml->f.name && nvml->f.name(device->self, text, sizeof text) == NVML_SUCCESS)
        snprintf(info.name, sizeof info.name, "%.*s", (int)sizeof info.name - 1, text);
    if (nvml->f.utilization && nvml->f.utilization(device->self, &utilization) == NVML_SUCCESS)
        info.utilization = utilization.gpu / 100.0;
    read_memory(nvml, device, &info);
    if (nvml->f.temperature &&
        nvml->f.temperature(device->whole, NVML_TEMPERATURE_GPU, &value) == NVML_SUCCESS)
        info.temperature_c = value;
    if (nvml->f.threshold &&
        nvml->f.threshold(device->whole, NVML_THRESHOLD_SLOWDOWN, &value) == NVML_SUCCESS)
        info.temperature_limit_c = value;
    if (nvml->f.power && nvml->f.power(device->whole, &value) == NVML_SUCCESS)
        info.power_w = value / 1000.0;
    if (nvml->f.power_limit && nvml->f.power_limit(device->whole, &value) == NVML_SUCCESS)
        info.power_limit_w = value / 1000.0;
    if (nvml->f.clock && nvml->f.clock(device->whole, NVML_CLOCK_SM, &value) == NVML_SUCCESS)
        info.sm_clock_mhz = value;
    if (nvml->f.reasons && nvml->f.reasons(device->whole, &reasons) == NVML_SUCCESS)
        name_reasons(reasons, info.throttle, sizeof info.throttle);
    if (pcie.at_ns)
        rate_pcie(nvml, device, &pcie, &info);
    *ret_info = info;
    return 0;
}

/* Does NVML list one of `pids` for this device? 1, 0, or -1 when it lists none, or fails. */
static int lists_process(struct nvml *nvml, device_handle device, const int64_t *pids,
                         size_t pid_count)
{
    enum { MOST_PROCESSES = 256 };
    unsigned char table[MOST_PROCESSES * PROCESS_BYTES_MOST];
    unsigned count = MOST_PROCESSES, stride = PROCESS_BYTES_V3;
    memset(table, 0, sizeof table);
    if (nvml->f.processes) {
        if (nvml->f.processes(device, &count, table) != NVML_SUCCESS)
            return -1;
    } else {
        stride = PROCESS_BYTES_V1;
        if (!nvml->f.processes_v1 || nvml->f.processes_v1(device, &count, table) != NVML_SUCCESS)
            return -1;
    }
    for (unsigned i = 0; i < count && i < MOST_PROCESSES; i++) {
        unsigned pid;
        memcpy(&pid, table + (size_t)i * stride, sizeof pid);
        for (size_t k = 0; k < pid_count; k++)
            if (pid != 0 && pids[k] == (int64_t)pid)
                return 1;
    }
    return count > 0 ? 0 : -1;
}

/* 1 when process `pid` has /dev/nvidia<minor> open. */
static int holds_device(struct nvml *nvml, int64_t pid, unsigned minor)
{
    enum { MOST_FDS = 4096 };
    char path[64], wanted[64], name[64];
    snprintf(path, sizeof path, "/proc/%lld/fd", (long long)pid);
    snprintf(wanted, sizeof wanted, "/dev/nvidia%u", minor);
    int dir = proc_text_open_dir(nvml->root, path);
    DIR *list = dir < 0 ? NULL : fdopendir(dir);
    if (!list) {
        if (dir >= 0)
            close(dir);
        return 0;
    }
    int found = 0;
    struct dirent *entry;
    for (int i = 0; !found && i < MOST_FDS && (entry = readdir(list)); i++) {
        ssize_t length = readlinkat(dir, entry->d_name, name, sizeof name - 1);
        if (length > 0) {
            name[length] = 0;
            found = strcmp(name, wanted) == 0;
        }
    }
    closedir(list);
    return found;
}

int nvml_uses(struct nvml *nvml, int index, const int64_t *pids, size_t pid_count)
{
    if (index < 0 || (size_t)index >= nvml->count)
        return -EINVAL;
    for (size_t i = 0; i < nvml->count && !nvml->own_pids; i++)
        nvml->own_pids = lists_process(nvml, nvml->devices[i].self, pids, pid_count) == 1;
    struct device *device = &nvml->devices[index];
    int listed = lists_process(nvml, device->self, pids, pid_count);
    if (listed == 1 || (listed == 0 && nvml->own_pids))
        return listed;
    /* No process listed: with valid ids that means none uses the device. */
    if (nvml->own_pids && (nvml->f.processes || nvml->f.processes_v1))
        return 0;
    for (size_t i = 0; i < pid_count && device->minor != UINT_MAX; i++)
        if (holds_device(nvml, pids[i], device->minor))
            return 1;
    return 0;
}
