/* fake_nvml.c: a counterfeit libnvidia-ml with known figures, so that nvml.c is tested where there
 * is no GPU. Written against NVML's binary contract: the struct layouts are written out again here,
 * and a difference to nvml.c shows as a wrong figure.
 *
 * Device 0 is busy and throttled; device 1 supports next to nothing and runs FAKE_NVML_PID, which
 * may be `children`: those of the process that asks, as a training is leat's. With FAKE_NVML=mig
 * device 0 is split in two instances; with FAKE_NVML=unloaded the driver is not there; with
 * FAKE_NVML=empty it has no device; with FAKE_NVML=slow it takes 100 ms of CPU time to start. Built
 * with FAKE_OLD it has only the oldest entry points.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default"))) int

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, SMALL = 7, UNLOADED = 9 };

static int is(const char *mode)
{
    const char *set = getenv("FAKE_NVML");
    return set && strcmp(set, mode) == 0;
}

/* Handles: device i is 1 + i, instance k of device 0 is 100 + k. */
static long number(void *device)
{
    return (long)device;
}

static int start(void)
{
    clock_t begin = clock();
    while (is("slow") && clock() - begin < CLOCKS_PER_SEC / 10)
        ;
    return is("unloaded") ? UNLOADED : OK;
}

static int count(unsigned *ret)
{
    *ret = is("empty") ? 0 : 2;
    return OK;
}

static int handle(unsigned index, void **ret)
{
    *ret = (void *)(long)(1 + index);
    return index < 2 ? OK : INVALID;
}

#ifdef FAKE_OLD
API nvmlInit(void)
{
    return start();
}
API nvmlDeviceGetCount(unsigned *ret)
{
    return count(ret);
}
API nvmlDeviceGetHandleByIndex(unsigned index, void **ret)
{
    return handle(index, ret);
}
#else
API nvmlInit_v2(void)
{
    return start();
}
API nvmlDeviceGetCount_v2(unsigned *ret)
{
    return count(ret);
}
API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret)
{
    return handle(index, ret);
}
#endif

API nvmlShutdown(void)
{
    return OK;
}

API nvmlDeviceGetName(void *device, char *name, unsigned bytes)
{
    if (bytes < 96)
        return SMALL;
    strcpy(name, number(device) >= 100 ? "Fake 9000 MIG 1g.10gb" : "Fake 9000");
    return OK;
}

enum { CHILDREN_MOST = 8 };

static unsigned children(unsigned pids[CHILDREN_MOST])
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    while (file && n < CHILDREN_MOST && fscanf(file, "%u", &pids[n]) == 1)
        n++;
    if (file)
        fclose(file);
    return n;
}

static unsigned processes_of(void *device, unsigned pids[CHILDREN_MOST])
{
    const char *pid = getenv("FAKE_NVML_PID");
    if (!pid || (number(device) != 2 && number(device) != 101))
        return 0;
    if (strcmp(pid, "children") == 0)
        return children(pids);
    pids[0] = (unsigned)atoi(pid);
    return 1;
}

#ifdef FAKE_OLD

struct process {
    unsigned pid;
    unsigned long long memory;
};

API nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *n, struct process *table)
{
    unsigned pids[CHILDREN_MOST], found = processes_of(device, pids);
    *n = found ? found + 1 : 0;
    for (unsigned i = 0; i < *n; i++)
        table[i] = (struct process){i == 0 ? 1 : pids[i - 1], ~0ull};
    return OK;
}

API nvmlDeviceGetMemoryInfo(void *device, unsigned long long table[3])
{
    table[0] = 1000;
    table[1] = 400;
    table[2] = 600;
    return OK;
}

#else

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute;
};

API nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *table)
{
    unsigned pids[CHILDREN_MOST], found = processes_of(device, pids);
    if (*n < CHILDREN_MOST + 2)
        return SMALL;
    *n = found ? found + 2 : 0;
    for (unsigned i = 0; i < *n; i++) /* 0: of another container */
        table[i] = (struct process){i < 2 ? i : pids[i - 2], 5, ~0u, ~0u};
    return OK;
}

API nvmlSystemGetDriverVersion(char *text, unsigned bytes)
{
    strcpy(text, "999.13");
    return OK;
}

API nvmlDeviceGetUUID(void *device, char *text, unsigned bytes)
{
    if (number(device) >= 100)
        strcpy(text, "MIG-fake");
    else
        sprintf(text, "GPU-fake-%ld", number(device) - 1);
    return OK;
}

API nvmlDeviceGetMinorNumber(void *device, unsigned *ret)
{
    *ret = 40 + (unsigned)number(device);
    return OK;
}

API nvmlDeviceGetUtilizationRates(void *device, unsigned table[2])
{
    if (number(device) != 1)
        return UNSUPPORTED;
    table[0] = 37;
    table[1] = 11;
    return OK;
}

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

API nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *table)
{
    if (table->version != (sizeof *table | 2u << 24))
        return INVALID;
    table->total = number(device) >= 100 ? 500 : 1000;
    table->reserved = 50;
    table->free = 350;
    table->used = 600;
    return OK;
}

API nvmlDeviceGetTemperature(void *device, int sensor, unsigned *ret)
{
    *ret = 71;
    return number(device) == 1 ? OK : UNSUPPORTED;
}

API nvmlDeviceGetTemperatureThreshold(void *device, int kind, unsigned *ret)
{
    *ret = kind == 1 ? 89 : 94;
    return number(device) == 1 ? OK : UNSUPPORTED;
}

API nvmlDeviceGetPowerUsage(void *device, unsigned *ret)
{
    *ret = 251500;
    return number(device) == 1 ? OK : UNSUPPORTED;
}

API nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *ret)
{
    *ret = 700000;
    return number(device) == 1 ? OK : UNSUPPORTED;
}

API nvmlDeviceGetClockInfo(void *device, int kind, unsigned *ret)
{
    *ret = kind == 1 ? 1410 : 9999;
    return number(device) == 1 ? OK : UNSUPPORTED;
}

API nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *ret)
{
    *ret = number(device) == 1 ? 0x1 | 0x2 | 0x4 | 0x20 : 0x1; /* idle and set clocks are none */
    return OK;
}

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
};

API nvmlDeviceGetFieldValues(void *device, int n, struct field *fields)
{
    static unsigned long long calls;
    calls++;
    for (int i = 0; i < n; i++) {
        unsigned long long step = fields[i].id == 197 ? 1000000 : 3000000;
        /* 32 bits that come round between the first reading and the second; what lies above them
         * is no part of the value. */
        fields[i].type = 1;
        fields[i].value = ((step * calls - step * 3 / 2) & 0xffffffffull) | 0xdeadull << 32;
        fields[i].result = number(device) == 1 ? OK : UNSUPPORTED;
    }
    return OK;
}

API nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later)
{
    *now = *later = is("mig") && number(device) == 1;
    return OK;
}

API nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *ret)
{
    *ret = 7;
    return OK;
}

API nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **ret)
{
    *ret = (void *)(long)(100 + index);
    return index < 2 ? OK : 6;
}

#endif
