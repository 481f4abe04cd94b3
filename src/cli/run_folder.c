/* run_folder.c: see run_folder.h. */
#include "cli/run_folder.h"

#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* "train" from "src/train.py", with characters that are safe in every file system and shell. */
static void name_from_script(const char *script, char *ret_name, size_t bytes)
{
    const char *base = strrchr(script, '/');
    base = base ? base + 1 : script;
    size_t n = 0;
    for (; *base && strcmp(base, ".py") != 0 && n + 1 < bytes; base++)
        ret_name[n++] = isalnum((unsigned char)*base) || *base == '_' ? *base : '-';
    ret_name[n] = 0;
    if (n == 0)
        snprintf(ret_name, bytes, "run");
}

enum { NAME_MOST = 200 }; /* bytes; file systems allow 255, and leat may append to it */

static int check_name(const char *name, struct leat_err *err)
{
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strlen(name) > NAME_MOST)
        return err_set(err, -LEAT_E_USAGE,
                       "\"%.60s%s\" cannot be a run name: it must be the name of a folder, without "
                       "'/' and of at most %d bytes.",
                       name, strlen(name) > 60 ? "..." : "", NAME_MOST);
    return 0;
}

/* mkdir is atomic: it fails when another process has just made the folder. */
static int make_in(const char *logs_dir, const char *name, char **ret_path)
{
    char *path = path_join(logs_dir, name, NULL);
    if (!path)
        return -ENOMEM;
    if (mkdir(path, 0700) < 0) {
        int code = -errno;
        mem_free(path);
        return code;
    }
    if (access(path, W_OK | X_OK) < 0) {
        int code = -errno;
        rmdir(path);
        mem_free(path);
        return code;
    }
    *ret_path = path;
    return 0;
}

/* Makes logs_dir/name, or name-2, name-3 ... when leat chose the name (`ours`). */
static int make_named(const char *logs_dir, const char *name, int ours, struct run_folder *folder)
{
    char candidate[256];
    snprintf(candidate, sizeof candidate, "%s", name);
    int result = make_in(logs_dir, candidate, &folder->path);
    for (int i = 2; result == -EEXIST && ours && i < 1000; i++) {
        snprintf(candidate, sizeof candidate, "%.240s-%d", name, i);
        result = make_in(logs_dir, candidate, &folder->path);
    }
    if (result < 0)
        return result;
    folder->name = mem_strdup(candidate);
    return folder->name ? 0 : -ENOMEM;
}

int run_folder_make(const char *logs_dir, const char *name, const char *script,
                    struct run_folder *ret_folder, struct leat_err *err)
{
    struct run_folder folder = {0};
    struct leat_err why = {""};
    char chosen[256];
    if (name) {
        if (check_name(name, err) < 0)
            return -LEAT_E_USAGE;
        snprintf(chosen, sizeof chosen, "%s", name);
    } else {
        char stem[128], when[32];
        time_t now = time(NULL);
        struct tm local;
        strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
        name_from_script(script, stem, sizeof stem);
        snprintf(chosen, sizeof chosen, "%s-%s", stem, when);
    }
    int result = path_make_dirs(logs_dir, &why);
    if (result == 0)
        result = make_named(logs_dir, chosen, !name, &folder);
    if (result == -EEXIST)
        return err_set(err, result,
                       "A run named \"%s\" exists in %s and is not overwritten. "
                       "Choose another --run-name, or remove %s/%s.",
                       chosen, logs_dir, logs_dir, chosen);
    if (result < 0) {
        int code = result;
        run_folder_done(&folder);
        folder.name = mem_strdup(chosen);
        if (!folder.name || path_make_temporary(chosen, &folder.path) < 0) {
            run_folder_done(&folder);
            return err_set(err, code,
                           "The logs folder %s cannot be written (%s), and neither can %s or "
                           "/tmp. Give another with --logs-dir.",
                           logs_dir, err_text(code), path_temporary());
        }
        snprintf(folder.note, sizeof folder.note,
                 "The logs folder %s cannot be written (%s). The results are in %s.", logs_dir,
                 err_text(code), folder.path);
    }
    *ret_folder = folder;
    return 0;
}

void run_folder_done(struct run_folder *folder)
{
    mem_free(folder->path);
    mem_free(folder->name);
    *folder = (struct run_folder){0};
}
