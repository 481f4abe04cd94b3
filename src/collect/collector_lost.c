/* collector_lost.c: what was not seen of the run, counted and with its reason.
 *
 *     records   rings that were full, records that made no sense
 *     ranks     ranks that never spoke; Python processes with torch that could not
 *     probes    hooks that found no place to go
 *     samples   processes beyond those that are remembered; what found no place in the input tables
 *     notes     what a reader must know to read the rest
 *
 * A Python process that does not record is found by its name and by the libraries it has mapped;
 * why it does not is seen in its environment, which must be read while it lives. A Python process
 * without torch has nothing to record and is not missed, nor is one that only compiles for torch.
 */
#include "collect/collector_internal.h"

#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOKS_MOST = 64, /* times a process's mappings are read: importing torch takes a while */
    MAPS_MOST_BYTES = 4 << 20, /* of a torch process with CUDA: some 500 KB */
    ROWS_MOST = 16             /* of one kind */
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

static bool is_python(const struct seen *s)
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
static bool only_compiles(const struct seen *s)
{
    return s->command && strstr(s->command, "/torch/_inductor/compile_worker/");
}

/* Learned from the training command itself, which was given it by `leat run`. */
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

/* python -I, -E and -S switch off what brings the hooks in. */
static char deaf_flag(const char *command)
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

static void find_reason(struct collector *c, struct seen *s)
{
    char value[8192], why[160] = "";
    int result = proc_environ(c->proc_root, s->pid, "LEAT_SOCKET", value, sizeof value);
    if (result == -ENOENT) {
        snprintf(why, sizeof why, "was started without leat's environment");
    } else if (result >= 0) {
        result = proc_environ(c->proc_root, s->pid, "PYTHONPATH", value, sizeof value);
        if (result == -ENOENT || (result >= 0 && !strstr(value, inject_dir(c))))
            snprintf(why, sizeof why, "was started with another PYTHONPATH");
        else if (deaf_flag(s->command))
            snprintf(why, sizeof why, "was started with python -%c, which ignores PYTHONPATH",
                     deaf_flag(s->command));
    }
    mem_free(s->silent_why);
    s->silent_why = why[0] ? mem_strdup(why) : NULL;
}

static bool has_torch(const struct collector *c, int64_t pid)
{
    char number[24];
    char *maps = NULL;
    size_t bytes = 0;
    snprintf(number, sizeof number, "%lld", (long long)pid);
    char *path = path_join(c->proc_root, "proc", number, "maps", NULL);
    bool found = path && path_read_file(path, MAPS_MOST_BYTES, &maps, &bytes, NULL) >= 0 &&
                 strstr(maps, "libtorch");
    mem_free(maps);
    mem_free(path);
    return found;
}

void lost_look(struct collector *c, struct seen *s)
{
    if (s->torch || s->looks >= LOOKS_MOST || !is_python(s) || only_compiles(s) ||
        speaker_find(c, s->pid))
        return;
    if (s->looks++ == 0)
        find_reason(c, s);
    if (s->silent_why)
        s->torch = has_torch(c, s->pid);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void lost_processes(struct collector *c)
{
    int rows = 0;
    for (size_t i = 0; i < c->seen_count && rows < ROWS_MOST; i++) {
        const struct seen *s = &c->seen[i];
        /* When nobody spoke at all, every Python that could not is worth a word. */
        if (!s->silent_why || speaker_find(c, s->pid) || (!s->torch && c->speaker_count > 0))
            continue;
        lost_add(c, "ranks", 1, "process %lld (%.80s) %s: leat saw nothing of it",
                 (long long)s->pid, s->command ? s->command : s->comm, s->silent_why);
        rows++;
    }
}

static void lost_ranks(struct collector *c)
{
    int world = 0;
    for (size_t i = 0; i < c->speaker_count; i++) {
        int said = c->speakers[i]->header.world_size;
        if (said > world && said <= RANK_MOST && speaker_said_rank(c->speakers[i]) >= 0)
            world = said;
    }
    if (world < 2)
        return;
    char *spoke = mem_alloc((size_t)world);
    struct str silent = {0};
    int64_t count = 0;
    for (size_t i = 0; spoke && i < c->speaker_count; i++) {
        int rank = speaker_said_rank(c->speakers[i]);
        if (rank >= 0 && rank < world)
            spoke[rank] = 1;
    }
    for (int r = 0; spoke && r < world; r++) {
        if (spoke[r])
            continue;
        if (count++ < 8)
            str_addf(&silent, "%s%d", silent.length ? ", " : "", r);
    }
    if (count > 0)
        lost_add(c, "ranks", count, "rank %s%s of %d never spoke to leat", str_text(&silent),
                 count > 8 ? " and more" : "", world);
    str_done(&silent);
    mem_free(spoke);
}

static void lost_of_speakers(struct collector *c)
{
    int rows = 0;
    for (size_t i = 0; i < c->speaker_count; i++) {
        const struct speaker *s = c->speakers[i];
        if (s->lost > 0)
            lost_add(c, "records", s->lost > INT64_MAX ? INT64_MAX : (int64_t)s->lost,
                     "process %d recorded faster than leat could read, or records made no sense",
                     (int)s->pid);
        bool again = false; /* ranks and workers lack the same hooks: say it once */
        for (size_t k = 0; k < i && !again; k++)
            again = strcmp(c->speakers[k]->header.missing, s->header.missing) == 0;
        if (s->header.missing[0] && !again && rows++ < ROWS_MOST)
            lost_add(c, "probes", 1, "process %d has no place for these hooks: %.180s", (int)s->pid,
                     s->header.missing);
    }
}

void lost_write(struct collector *c)
{
    lost_of_speakers(c);
    cuda_lost(c);
    lost_ranks(c);
    lost_processes(c);
    if (c->seen_more > 0)
        lost_add(c, "samples", c->seen_more,
                 "the run had more than %d processes at a time: later ones were not sampled",
                 SEEN_MOST);
}
