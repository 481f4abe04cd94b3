/* collector_lost.c: what was not seen of the run, counted and with its reason.
 *
 *     records   rings that were full, invalid records
 *     ranks     ranks without data; Python processes with torch that could not record
 *     probes    hooks that were not installed
 *     samples   processes, workers and lines beyond the limits
 *     notes     what a reader must know to read the rest
 *
 * A Python process that does not record is found by its name and the libraries it has mapped; the
 * reason is in its environment, which can be read only while it is running. A Python process
 * without torch has nothing to record, nor has one that only compiles for torch.
 */
#include "collect/collector_internal.h"

#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_MAP_READS = 64, /* times a process's mappings are read: importing torch takes a while */
    MAX_MAPS_BYTES = 4 << 20, /* of a torch process with CUDA: about 500 KB */
    MAX_ROWS = 16             /* of one kind */
};

void lost_add(struct collector *c, const char *what, int64_t n, const char *fmt, ...)
{
    char why[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    store_add_lost(c->writer, &(struct lost_row){.what = what, .n = n, .why = why});
}

/* ---- Python that does not record ------------------------------------------------------------ */

static bool is_python(const struct tree_process *s)
{
    /* torch names the main thread of its processes pt_main_thread. */
    if (strncmp(s->comm, "python", 6) == 0 || strncmp(s->comm, "pt_", 3) == 0)
        return true;
    if (!s->command)
        return false;
    size_t word = strcspn(s->command, " ");
    while (word > 0 && s->command[word - 1] != '/')
        word--;
    return strncmp(s->command + word, "python", 6) == 0;
}

/* torch.compile starts processes with a PYTHONPATH of their own. They train nothing. */
static bool only_compiles(const struct tree_process *s)
{
    return s->command && strstr(s->command, "/torch/_inductor/compile_worker/");
}

/* From the environment that `leat run` gave the training command. */
static const char *inject_dir(struct collector *c)
{
    char path[sizeof c->inject_dir];
    if (!c->inject_dir[0] &&
        proc_environ(c->proc_root, c->options.root_pid, "PYTHONPATH", path, sizeof path) >= 0) {
        path[strcspn(path, ":")] = 0;
        size_t n = strlen(path);
        if (n > 7 && strcmp(path + n - 7, "_inject") == 0)
            memcpy(c->inject_dir, path, n + 1);
    }
    return c->inject_dir[0] ? c->inject_dir : "_inject";
}

/* The option that keeps the hooks out: python -I, -E or -S; 0: none. */
static char isolating_flag(const char *command)
{
    const char *word = command ? command + strcspn(command, " ") : "";
    while (*word == ' ' && word[1] == '-' && word[2] != '-') {
        size_t n = strcspn(word + 1, " ");
        for (size_t i = 2; i <= n; i++) {
            if (word[i] == 'I' || word[i] == 'E' || word[i] == 'S')
                return word[i];
            if (word[i] == 'c' || word[i] == 'm' || word[i] == 'W' || word[i] == 'X')
                return 0;
        }
        word += n + 1;
    }
    return 0;
}

/* Whether Python finds a module sitecustomize in a folder of PYTHONPATH. A relative one is below
 * the working directory. */
static bool has_sitecustomize(const struct collector *c, int64_t pid, const char *folder)
{
    static const char *const files[] = {"sitecustomize.py", "sitecustomize/__init__.py"};
    char number[24];
    bool found = false;
    snprintf(number, sizeof number, "%lld", (long long)pid);
    for (size_t i = 0; i < sizeof files / sizeof *files && !found; i++) {
        char *path = folder[0] == '/'
                         ? path_join(folder, files[i], NULL)
                         : path_join(c->proc_root, "proc", number, "cwd", folder, files[i], NULL);
        found = path && access(path, F_OK) == 0;
        mem_free(path);
    }
    return found;
}

/* The first folder of PYTHONPATH ahead of leat's that has a sitecustomize, which Python then runs
 * in place of leat's; NULL: none. Splits `path`. */
static const char *sitecustomize_ahead(struct collector *c, int64_t pid, char *path)
{
    char *rest = NULL;
    for (char *folder = strtok_r(path, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest)) {
        if (strstr(folder, inject_dir(c)))
            return NULL;
        if (has_sitecustomize(c, pid, folder))
            return folder;
    }
    return NULL;
}

static void find_reason(struct collector *c, struct tree_process *s)
{
    char value[8192], why[160] = "";
    const char *folder;
    int result = proc_environ(c->proc_root, s->pid, "LEAT_SOCKET", value, sizeof value);
    if (result == -ENOENT) {
        snprintf(why, sizeof why, "was started without leat's environment");
    } else if (result >= 0) {
        result = proc_environ(c->proc_root, s->pid, "PYTHONPATH", value, sizeof value);
        if (result == -ENOENT || (result >= 0 && !strstr(value, inject_dir(c))))
            snprintf(why, sizeof why, "was started with another PYTHONPATH");
        else if (isolating_flag(s->command))
            snprintf(why, sizeof why, "was started with python -%c, which ignores PYTHONPATH",
                     isolating_flag(s->command));
        else if (result >= 0 && (folder = sitecustomize_ahead(c, s->pid, value)))
            snprintf(why, sizeof why, "has a sitecustomize ahead of leat's on PYTHONPATH, in %.60s",
                     folder);
    }
    mem_free(s->no_data_reason);
    s->no_data_reason = why[0] ? mem_strdup(why) : NULL;
}

static bool has_torch(const struct collector *c, int64_t pid)
{
    char number[24];
    char *maps = NULL;
    size_t bytes = 0;
    snprintf(number, sizeof number, "%lld", (long long)pid);
    char *path = path_join(c->proc_root, "proc", number, "maps", NULL);
    bool found = path && path_read_file(path, MAX_MAPS_BYTES, &maps, &bytes, NULL) >= 0 &&
                 strstr(maps, "libtorch");
    mem_free(maps);
    mem_free(path);
    return found;
}

void lost_check_process(struct collector *c, struct tree_process *s)
{
    if (s->torch || s->map_reads >= MAX_MAP_READS || !is_python(s) || only_compiles(s) ||
        recording_process_find(c, s->pid))
        return;
    if (s->map_reads++ == 0)
        find_reason(c, s);
    if (s->no_data_reason)
        s->torch = has_torch(c, s->pid);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void lost_processes(struct collector *c)
{
    int rows = 0;
    for (size_t i = 0; i < c->tree_count && rows < MAX_ROWS; i++) {
        const struct tree_process *s = &c->tree[i];
        /* When no process recorded, every Python process that could not is reported. */
        if (!s->no_data_reason || recording_process_find(c, s->pid) ||
            (!s->torch && c->recording_count > 0))
            continue;
        lost_add(c, "ranks", 1, "process %lld (%.80s) %s: not recorded", (long long)s->pid,
                 s->command ? s->command : s->comm, s->no_data_reason);
        rows++;
    }
}

static void lost_ranks(struct collector *c)
{
    int world = 0;
    for (size_t i = 0; i < c->recording_count; i++) {
        int declared = c->recording[i]->header.world_size;
        if (declared > world && declared <= MAX_RANK &&
            recording_process_declared_rank(c->recording[i]) >= 0)
            world = declared;
    }
    if (world < 2)
        return;
    char *recorded = mem_alloc((size_t)world);
    struct str missing = {0};
    int64_t count = 0;
    for (size_t i = 0; recorded && i < c->recording_count; i++) {
        int rank = recording_process_declared_rank(c->recording[i]);
        if (rank >= 0 && rank < world)
            recorded[rank] = 1;
    }
    for (int r = 0; recorded && r < world; r++) {
        if (recorded[r])
            continue;
        if (count++ < 8)
            str_addf(&missing, "%s%d", missing.length ? ", " : "", r);
    }
    if (count > 0)
        lost_add(c, "ranks", count, "no data from rank %s%s of %d", str_text(&missing),
                 count > 8 ? " and more" : "", world);
    str_done(&missing);
    mem_free(recorded);
}

static void lost_of_recording(struct collector *c)
{
    int rows = 0;
    for (size_t i = 0; i < c->recording_count; i++) {
        const struct recording_process *s = c->recording[i];
        /* Of the total, as the process may write anything into its header. */
        uint64_t threads = s->header.threads_lost < s->lost ? s->header.threads_lost : s->lost;
        if (threads > 0)
            lost_add(c, "records", threads > INT64_MAX ? INT64_MAX : (int64_t)threads,
                     "process %d: records of threads dropped because %d others were recorded",
                     (int)s->pid, LEAT_REC_THREADS);
        uint64_t rest = s->lost - threads;
        if (rest > 0)
            lost_add(c, "records", rest > INT64_MAX ? INT64_MAX : (int64_t)rest,
                     "process %d: records dropped because a ring was full, or invalid",
                     (int)s->pid);
        bool again = false; /* ranks and workers lack the same hooks: report it once */
        for (size_t k = 0; k < i && !again; k++)
            again = strcmp(c->recording[k]->header.missing, s->header.missing) == 0;
        if (s->header.missing[0] && !again && rows++ < MAX_ROWS)
            lost_add(c, "probes", 1, "process %d: hooks not installed: %.180s", (int)s->pid,
                     s->header.missing);
    }
}

void lost_write(struct collector *c)
{
    lost_of_recording(c);
    cuda_lost(c);
    lost_ranks(c);
    lost_processes(c);
    if (c->tree_overflow > 0)
        lost_add(c, "samples", c->tree_overflow,
                 "more than %d processes at a time: the others not sampled", MAX_TREE);
}
