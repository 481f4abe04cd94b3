/* probe_preload.c: see probe_preload.h.
 *
 * LD_PRELOAD has no way to quote: names are parted by colons and spaces, and $ begins a variable of
 * the dynamic loader's. A path that has one of them cannot be given, and the loader would complain
 * in the user's output; nor can a file that is not there.
 *
 * The user's own libraries stay in front of ours. Some must be first (the runtime of
 * AddressSanitizer refuses to start otherwise), and to the probe the order makes no difference:
 * whoever stands before it goes on to it.
 */
#include "probe_preload.h"

#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libleat-probe.so"

/* A driver's library without a device can do nothing, so it is the device that is looked for: that
 * of the kernel's module, and that of Windows' Linux. */
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
        *ret_why = "Out of memory: calls of CUDA are not counted.";
    else if (strpbrk(path, " \t\n:$"))
        *ret_why = "Calls of CUDA are not counted: the path of " LIBRARY
                   " has a character that LD_PRELOAD does not take.";
    else if (access(path, R_OK) != 0)
        *ret_why =
            "Calls of CUDA are not counted: there is no " LIBRARY " beside leat's Python part.";
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
