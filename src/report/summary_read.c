/* summary_read.c: finds and checks the summary of a run.
 *
 * A summary is untrusted input: of another machine, version or tool, or cut. Only the types of the
 * top members are checked; readers ask for each figure with a default, so a wrong type further down
 * reads as "not measured".
 *
 * If leat was killed, a run has a database and no summary: it is diagnosed now, and nothing is
 * written.
 */
#include "report/report.h"

#include "base/mem.h"
#include "base/path.h"
#include "report/summary_parts.h"

#include <dirent.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char file_name[] = "final_summary.json";
static const char database_name[] = "run.db";
static const char logs_name[] = "logs";

static int check_shape(const json_t *summary, struct leat_err *err)
{
    static const char *const objects[] = {"run",    "verdict", "step_time", "input",
                                          "memory", "system",  "lost"};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (!json_is_object(json_object_get(summary, objects[i])))
            return err_set(err, -LEAT_E_CORRUPT, "it is a summary of leat without its \"%s\" part",
                           objects[i]);
    if (!json_is_array(json_object_get(summary, "findings")))
        return err_set(err, -LEAT_E_CORRUPT, "it is a summary of leat without its findings");
    if (!json_find_text(summary, "verdict.kind", NULL) ||
        !json_find_text(summary, "verdict.label", NULL))
        return err_set(err, -LEAT_E_CORRUPT, "it is a summary of leat without a verdict");
    return 0;
}

int summary_parse(const char *text, size_t bytes, json_t **ret_summary, struct leat_err *err)
{
    json_t *summary = NULL;
    if (bytes == 0)
        return err_set(err, -LEAT_E_CORRUPT, "it is empty");
    int result = json_parse(text, bytes, &summary, err);
    if (result < 0)
        return result;
    const char *version = json_find_text(summary, "schema_version", NULL);
    if (!version || !json_is_object(json_object_get(summary, "verdict")))
        result = err_set(err, -LEAT_E_FOREIGN, "it is JSON, but not a summary of leat");
    else if (strcmp(version, SUMMARY_SCHEMA) != 0)
        result = err_set(err, -LEAT_E_VERSION,
                         "its schema_version is %.20s and this leat reads %s; view it with the "
                         "leat that wrote it",
                         version, SUMMARY_SCHEMA);
    else
        result = check_shape(summary, err);
    if (result < 0) {
        json_decref(summary);
        return result;
    }
    *ret_summary = summary;
    return 0;
}

const json_t *summary_main_loader(const json_t *summary)
{
    const json_t *list = json_find(summary, "input.loaders"), *item;
    size_t i;
    json_array_foreach (list, i, item)
        if (strcmp(json_find_text(item, "use", ""), "eval") != 0)
            return item;
    return json_array_get(list, 0);
}

/* ---- finding it ------------------------------------------------------------------------------ */

enum kind { NOTHING, A_FILE, A_FOLDER };

static enum kind kind_of(const char *path)
{
    struct stat st;
    if (!path || stat(path, &st) < 0)
        return NOTHING;
    return S_ISDIR(st.st_mode) ? A_FOLDER : A_FILE;
}

struct run_entry {
    char name[256];
    int64_t when_ns; /* of the summary's last change */
};

/* The newest runs in `logs` that have a summary, newest first, at most `most`. */
static size_t list_runs(const char *logs, struct run_entry *runs, size_t most)
{
    size_t count = 0;
    DIR *folder = opendir(logs);
    if (!folder)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char *file =
            entry->d_name[0] == '.' ? NULL : path_join(logs, entry->d_name, file_name, NULL);
        struct stat st;
        if (file && stat(file, &st) == 0 && S_ISREG(st.st_mode)) {
            struct run_entry run = {.when_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 +
                                               st.st_mtim.tv_nsec};
            memcpy(run.name, entry->d_name, strlen(entry->d_name) + 1);
            /* Inserted into a short sorted list; of equal times the later name comes first. */
            size_t at = count;
            while (at > 0 && (runs[at - 1].when_ns < run.when_ns ||
                              (runs[at - 1].when_ns == run.when_ns &&
                               strcmp(runs[at - 1].name, run.name) < 0)))
                at--;
            if (at < most) {
                size_t tail = (count < most ? count : most - 1) - at;
                memmove(&runs[at + 1], &runs[at], tail * sizeof *runs);
                runs[at] = run;
                count += count < most;
            }
        }
        mem_free(file);
    }
    closedir(folder);
    return count;
}

static int set_missing(const char *path, struct leat_err *err)
{
    struct run_entry runs[5];
    size_t count = list_runs(logs_name, runs, 5);
    if (count == 0)
        return err_set(err, -ENOENT,
                       "There is no run %.200s: no such file or folder, and ./logs has no runs. "
                       "Make one with: leat run train.py",
                       path);
    struct str names = {0};
    for (size_t i = 0; i < count; i++)
        str_addf(&names, "%s%.40s", i ? ", " : "", runs[i].name);
    int result =
        err_set(err, -ENOENT,
                "There is no run %.120s: no such file or folder, and no run of that name in "
                "./logs, which has: %s%s.",
                path, str_text(&names), count == 5 ? " and others" : "");
    str_done(&names);
    return result;
}

/* The file of a run's folder: its summary, or its database while there is none. */
static int find_in(const char *folder, char **ret_file, struct leat_err *err)
{
    static const char *const names[] = {file_name, database_name};
    for (int i = 0; i < 2; i++) {
        char *file = path_join(folder, names[i], NULL);
        if (!file)
            return err_set(err, -ENOMEM, "Out of memory.");
        if (kind_of(file) == A_FILE) {
            *ret_file = file;
            return 0;
        }
        mem_free(file);
    }
    if (access(folder, R_OK | X_OK) < 0)
        return err_set(err, -errno, "%.300s cannot be read: %s.", folder, err_text(errno));
    return err_set(err, -ENOENT, "%.300s is a folder without a %s: it is not the folder of a run.",
                   folder, file_name);
}

static int is_database(const char *file)
{
    const char *slash = strrchr(file, '/');
    return strcmp(slash ? slash + 1 : file, database_name) == 0;
}

/* leat was killed before it wrote the summary: diagnose what the database has. */
static int read_database(const char *file, json_t **ret_summary, struct leat_err *err)
{
    struct store_reader *reader = NULL;
    struct leat_err why = {""};
    int result = store_reader_open(file, &reader, &why);
    if (result == 0)
        result = summary_from_database(reader, ret_summary, &why);
    store_reader_close(reader);
    return result < 0 ? err_set(err, result, "There is no %s, and %.400s.", file_name, why.text)
                      : 0;
}

int summary_locate(const char *path, char **ret_file, struct leat_err *err)
{
    int result = 0;
    char *by_name = strchr(path, '/') ? NULL : path_join(logs_name, path, NULL);
    const char *found = path;
    enum kind kind = kind_of(path);
    char *in_folder = kind == A_FOLDER ? path_join(path, file_name, NULL) : NULL;
    /* A run's name may also be a folder here (a run "data" beside ./data). */
    if (kind == NOTHING || (kind == A_FOLDER && kind_of(in_folder) == NOTHING)) {
        if (by_name && kind_of(by_name) == A_FOLDER) {
            found = by_name;
            kind = A_FOLDER;
        }
    }
    mem_free(in_folder);
    if (kind == NOTHING) {
        result = set_missing(path, err);
    } else if (kind == A_FOLDER) {
        result = find_in(found, ret_file, err);
    } else {
        char *file = mem_strdup(found);
        if (file)
            *ret_file = file;
        else
            result = err_set(err, -ENOMEM, "Out of memory.");
    }
    mem_free(by_name);
    return result;
}

int summary_newest(const char *logs_dir, char **ret_file, struct leat_err *err)
{
    struct run_entry newest;
    if (list_runs(logs_dir, &newest, 1) == 0)
        return err_set(err, -ENOENT,
                       "There is no finished run in ./%s. Make one with: leat run train.py",
                       logs_dir);
    char *file = path_join(logs_dir, newest.name, file_name, NULL);
    if (!file)
        return err_set(err, -ENOMEM, "Out of memory.");
    *ret_file = file;
    return 0;
}

int summary_read(const char *path, json_t **ret_summary, struct leat_err *err)
{
    char *file = NULL, *text = NULL;
    size_t bytes = 0;
    struct leat_err why = {""};
    int result = summary_locate(path, &file, err);
    if (result == 0 && is_database(file)) {
        result = read_database(file, ret_summary, err);
        mem_free(file);
        return result;
    }
    if (result == 0)
        result = path_read_file(file, SUMMARY_MOST_BYTES, &text, &bytes, err);
    if (result == 0) {
        result = summary_parse(text, bytes, ret_summary, &why);
        if (result < 0)
            err_set(err, result, "%.200s cannot be used: %.250s.", file, why.text);
    }
    mem_free(text);
    mem_free(file);
    return result;
}
