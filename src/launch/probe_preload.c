/* probe_preload.c: see probe_preload.h.
 *
 * LD_PRELOAD has no quoting: colons and spaces separate names, and $ begins a variable of the
 * dynamic loader. Such a path, or a missing file, is not preloaded: the loader would print an error
 * into the user's output.
 *
 * The user's own libraries stay first. Some must be (AddressSanitizer's runtime refuses to start
 * otherwise), and the probe works in any order.
 */
#include "launch/probe_preload.h"

#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libleat-probe.so"

/* NVIDIA's kernel module, or the GPU of WSL. The driver's library alone is not enough. */
static int has_device(void)
{
    return access("/proc/driver/nvidia", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0 ||
           access("/dev/dxg", F_OK) == 0;
}

char *probe_find(const char *package_dir, const char **ret_why)
{
    const char *wish = getenv("LEAT_PROBE");
    *ret_why = NULL;
    if (wish && *wish ? strcmp(wish, "0") == 0 : !has_device())
        return NULL;
    char *path = path_join(package_dir, LIBRARY, NULL);
    if (!path)
        *ret_why = "Out of memory: CUDA calls are not counted.";
    else if (strpbrk(path, " \t\n:$"))
        *ret_why = "CUDA calls are not counted: the path of " LIBRARY
                   " has a character that LD_PRELOAD does not accept.";
    else if (access(path, R_OK) != 0)
        *ret_why = "CUDA calls are not counted: there is no " LIBRARY " in leat's Python package.";
    if (*ret_why) {
        mem_free(path);
        return NULL;
    }
    return path;
}

int probe_preload(const char *path)
{
    const char *old = getenv("LD_PRELOAD");
    struct str value = {0};
    str_addf(&value, "%s%s%s", old ? old : "", old && *old ? ":" : "", path);
    int result = value.failed ? -ENOMEM : setenv("LD_PRELOAD", value.text, 1) ? -errno : 0;
    str_done(&value);
    return result;
}
