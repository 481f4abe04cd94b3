/* python_home.c: see python_home.h.
 *
 * There are three kinds of installation, each with a fixed folder relative to the executable:
 *
 *     build tree      <exe>/python/leat
 *     make install    <exe>/../lib/leat/python/leat
 *     wheel, distro   <exe>/../lib/python3.X/site-packages/leat, or dist-packages, or lib64,
 *                     or ../local/lib (Debian's pip)
 *
 * The folder must hold both the extension and the injected sitecustomize: with half a package the
 * user's Python would fail instead of leat.
 */
#include "launch/python_home.h"

#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXTENSION "_record.abi3.so"
#define INJECTED  "_inject/sitecustomize.py"

static int holds(const char *dir, const char *name)
{
    char *path = path_join(dir, name, NULL);
    int found = path && access(path, R_OK) == 0;
    mem_free(path);
    return found;
}

/* Frees `dir` (may be NULL). Returns 1, with its resolved path in *ret, when it is a whole package.
 */
static int take_if_package(char *dir, char **ret)
{
    int whole = dir && holds(dir, EXTENSION) && holds(dir, INJECTED);
    if (whole) {
        char resolved[PATH_MAX];
        char *copy = mem_strdup(realpath(dir, resolved) ? resolved : dir);
        whole = copy != NULL;
        if (whole)
            *ret = copy;
    }
    mem_free(dir);
    return whole;
}

/* The package under <lib>/python3.X/{site,dist}-packages, for any X. */
static int find_in_versions(const char *exe_dir, const char *lib, char **ret)
{
    char *base = path_join(exe_dir, lib, NULL);
    DIR *dir = base ? opendir(base) : NULL;
    int found = 0;
    struct dirent *entry;
    while (dir && !found && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, "python3", 7) != 0)
            continue;
        found = take_if_package(path_join(base, entry->d_name, "site-packages/leat", NULL), ret) ||
                take_if_package(path_join(base, entry->d_name, "dist-packages/leat", NULL), ret);
    }
    if (dir)
        closedir(dir);
    mem_free(base);
    return found;
}

static int find_near(const char *exe_dir, const char *override, char **ret_package_dir,
                     struct leat_err *err)
{
    if (override && *override) {
        if (take_if_package(mem_strdup(override), ret_package_dir) ||
            take_if_package(path_join(override, "leat", NULL), ret_package_dir))
            return 0;
        return err_set(err, -ENOENT,
                       "LEAT_PYTHON_DIR is %s, but neither it nor a folder leat in it holds "
                       "both %s and %s.",
                       override, EXTENSION, INJECTED);
    }
    if (take_if_package(path_join(exe_dir, "python/leat", NULL), ret_package_dir) ||
        take_if_package(path_join(exe_dir, "../lib/leat/python/leat", NULL), ret_package_dir) ||
        find_in_versions(exe_dir, "../lib", ret_package_dir) ||
        find_in_versions(exe_dir, "../lib64", ret_package_dir) ||
        find_in_versions(exe_dir, "../local/lib", ret_package_dir))
        return 0;
    return err_set(
        err, -ENOENT,
        "leat's Python package (%s and %s) is not in %s/python/leat, ../lib/leat/python/leat"
        " or ../lib/python3*/site-packages/leat; set LEAT_PYTHON_DIR to its folder.",
        EXTENSION, INJECTED, exe_dir);
}

int python_home_find(char **ret_package_dir, struct leat_err *err)
{
    char exe[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (length <= 0)
        return err_set(err, -ENOENT, "/proc/self/exe cannot be read: %s. Is /proc mounted?",
                       err_text(errno));
    exe[length] = 0;
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = 0;
    return find_near(exe, getenv("LEAT_PYTHON_DIR"), ret_package_dir, err);
}

int python_home_inject(const char *inject_dir)
{
    const char *old = getenv("PYTHONPATH");
    struct str path = {0};
    str_addf(&path, "%s%s%s", inject_dir, old && *old ? ":" : "", old ? old : "");
    int result = path.failed ? -ENOMEM : setenv("PYTHONPATH", path.text, 1) ? -errno : 0;
    str_done(&path);
    return result;
}

/* PATH as execvp reads it: an empty element is the current folder. */
static int find_on_path(const char *path, const char *name, char **ret_path)
{
    for (const char *at = path;; at++) {
        const char *end = strchrnul(at, ':');
        char element[PATH_MAX];
        size_t length = (size_t)(end - at);
        if (length < sizeof element) {
            memcpy(element, at, length);
            element[length] = 0;
            char *candidate = path_join(length ? element : ".", name, NULL);
            if (!candidate)
                return -ENOMEM;
            struct stat st;
            if (stat(candidate, &st) == 0 && S_ISREG(st.st_mode) && access(candidate, X_OK) == 0) {
                *ret_path = candidate;
                return 0;
            }
            mem_free(candidate);
        }
        if (!*end)
            return -ENOENT;
        at = end;
    }
}

static const char *search_path(void)
{
    const char *path = getenv("PATH");
    return path ? path : "/bin:/usr/bin"; /* what execvp falls back to */
}

int python_find(char **ret_path)
{
    int result = find_on_path(search_path(), "python3", ret_path);
    return result == -ENOENT ? find_on_path(search_path(), "python", ret_path) : result;
}

int python_find_named(const char *name, char **ret_path)
{
    if (!name)
        return python_find(ret_path);
    if (!strchr(name, '/'))
        return find_on_path(search_path(), name, ret_path);
    struct stat st;
    if (stat(name, &st) < 0 || !S_ISREG(st.st_mode) || access(name, X_OK) < 0)
        return -ENOENT;
    char *copy = mem_strdup(name);
    if (!copy)
        return -ENOMEM;
    *ret_path = copy;
    return 0;
}
