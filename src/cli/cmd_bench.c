/* cmd_bench.c: `leat bench`: measures the user's own loader and recommends settings.
 *
 * The script runs up to the first iteration of its training loader. From there its process does
 * what leat requests (python/leat/bench/agent.py): the search (tune/) chooses what to measure, and
 * at the end the script trains on a cached batch, to measure the model. Nothing is recorded or
 * stored.
 */
#include "cli/cli.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/path.h"
#include "launch/bench_process.h"
#include "launch/python_home.h"
#include "launch/script_command.h"
#include "observe/observe.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* For loaders with slow batches; most searches end long before. */
#define DEFAULT_TIME_S 120.0
/* Workers with many imports take ten seconds until their first batch. */
#define DEFAULT_HANG_S 30.0
/* Of the free memory: the rest is for the page cache and the model. */
#define MEMORY_SHARE 0.8

struct options {
    int json, quiet;
    const char *loader;
    struct tune_limits limits; /* 0: not given */
    char **words;
};

/* ---- options --------------------------------------------------------------------------------- */

static int parse_bytes(const char *value, void *field)
{
    char number[32];
    size_t length = strcspn(value, "kKmMgGtT");
    double amount, unit = 1;
    if (length >= sizeof number)
        return -EINVAL;
    memcpy(number, value, length);
    number[length] = 0;
    const char *suffix = value + length;
    if (*suffix) {
        const char *letters = "kmgt";
        unit = pow(1024, (double)(strchr(letters, tolower((unsigned char)*suffix)) - letters + 1));
        suffix++;
        if (strcasecmp(suffix, "") && strcasecmp(suffix, "b") && strcasecmp(suffix, "ib"))
            return -EINVAL;
    }
    if (num_parse_f64(number, &amount) < 0 || amount <= 0 || amount * unit > 0x1p60)
        return -EINVAL;
    *(int64_t *)field = (int64_t)(amount * unit);
    return 0;
}

static int parse_sizes(const char *value, void *field)
{
    struct tune_limits *limits = field;
    char *copy = mem_strdup(value), *rest = copy, *word;
    int result = copy ? 0 : -ENOMEM;
    while (result == 0 && (word = strsep(&rest, ","))) {
        uint64_t size;
        if (num_parse_u64(word, &size) < 0 || size == 0 || size > INT32_MAX ||
            limits->size_count == TUNE_SIZES)
            result = -EINVAL;
        else
            limits->sizes[limits->size_count++] = (int64_t)size;
    }
    mem_free(copy);
    return result;
}

static int parse_seconds(const char *value, void *field)
{
    double *s = field;
    return num_parse_f64(value, s) < 0 || *s <= 0 ? -EINVAL : 0;
}

static int parse_workers(const char *value, void *field)
{
    uint64_t number;
    if (num_parse_u64(value, &number) < 0 || number > TUNE_MOST_WORKERS)
        return -EINVAL;
    *(int *)field = (int)number;
    return 0;
}

static int parse_loader(const char *value, void *field)
{
    uint64_t number;
    if (num_parse_u64(value, &number) < 0 || number == 0 || number > 1000)
        return -EINVAL;
    *(const char **)field = value;
    return 0;
}

static const struct cli_option option_table[] = {
    OPTION_VALUE("batch-size", struct options, limits, "N,...", parse_sizes,
                 "batch sizes, such as 64,128,256 (at most 8)",
                 "measure these batch sizes too; the best is recommended"),
    OPTION_VALUE("memory", struct options, limits.memory_bytes, "AMOUNT", parse_bytes,
                 "an amount, such as 8G",
                 "limit for the process and its workers, such as 8G\n"
                 "(default: 80 % of the free memory)"),
    OPTION_VALUE("max-workers", struct options, limits.most_workers, "N", parse_workers,
                 "a number up to 64", "try at most N workers (default: 4 per CPU, at least 8)"),
    OPTION_VALUE("time", struct options, limits.time_s, "S", parse_seconds, "seconds, such as 60",
                 "end the search after S seconds (default: 120)"),
    OPTION_VALUE("timeout", struct options, limits.hang_s, "S", parse_seconds,
                 "seconds, such as 30", "S seconds without a batch are a hang (default: 30)"),
    OPTION_VALUE("loader", struct options, loader, "N", parse_loader, "a number above 0",
                 "measure the N-th loader that the script iterates over,\n"
                 "instead of the first one with gradients enabled"),
    OPTION_FLAG("json", 0, struct options, json, "print the results as JSON"),
    OPTION_FLAG("quiet", 'q', struct options, quiet, "hide the script's output and the progress"),
    OPTIONS_END,
};

/* ---- the machine ----------------------------------------------------------------------------- */

static double or_else(double given, double otherwise)
{
    return given > 0 ? given : otherwise;
}

/* Limits that the user did not give come from the cgroup, the affinity and the machine. */
static void fill_limits(struct tune_limits *limits)
{
    struct cgroup_info group = {.cpus = 1, .memory_limit_bytes = -1};
    struct sys_info machine = {.memory_available = -1, .shm_total = -1};
    cgroup_read("/", &group);
    sys_read("/", &machine);
    limits->cpus = group.cpus;
    limits->time_s = or_else(limits->time_s, DEFAULT_TIME_S);
    limits->hang_s = or_else(limits->hang_s, DEFAULT_HANG_S);
    int64_t free_bytes = machine.memory_available;
    if (group.memory_limit_bytes >= 0 && group.memory_used_bytes >= 0 &&
        (free_bytes < 0 || group.memory_limit_bytes - group.memory_used_bytes < free_bytes))
        free_bytes = group.memory_limit_bytes - group.memory_used_bytes;
    if (limits->memory_bytes <= 0)
        limits->memory_bytes = free_bytes > 0 ? (int64_t)(MEMORY_SHARE * (double)free_bytes) : -1;
    limits->shm_bytes = machine.shm_total > 0 ? machine.shm_total - machine.shm_used : -1;
    /* Samples that wait (for a disk, a network) need more workers than CPUs; four per CPU hide 75 %
     * of waiting. Samples that compute do not: cost_most_workers(). */
    if (limits->most_workers < 0)
        limits->most_workers = (int)fmin(TUNE_MOST_WORKERS, fmax(8, 4 * floor(limits->cpus)));
}

/* ---- CPU use of other programs --------------------------------------------------------------- */

struct busy {
    struct sys_info machine;
    double own_s; /* CPU time of ended processes below leat */
};

static void read_cpus(struct busy *ret_busy)
{
    struct rusage usage;
    memset(ret_busy, 0, sizeof *ret_busy);
    ret_busy->machine.busy_ns = -1;
    sys_read("/", &ret_busy->machine);
    getrusage(RUSAGE_CHILDREN, &usage);
    ret_busy->own_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                      (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void compare_cpus(const struct busy *before, double elapsed_s, struct tune_result *result)
{
    struct busy after;
    read_cpus(&after);
    if (before->machine.busy_ns < 0 || after.machine.busy_ns < 0 || elapsed_s <= 0)
        return;
    double busy_s = (double)(after.machine.busy_ns - before->machine.busy_ns) / 1e9;
    double all_s = (double)(after.machine.all_ns - before->machine.all_ns) / 1e9;
    result->others_cpus = fmax(0, busy_s - (after.own_s - before->own_s)) / elapsed_s;
    result->all_cpus = all_s / elapsed_s;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* "module:function" */
static int is_factory(const char *word)
{
    const char *colon = strchr(word, ':');
    if (!colon || colon == word || !colon[1] || script_command_is_script(word))
        return 0;
    for (const char *at = word; *at; at++)
        if (at != colon && !isalnum((unsigned char)*at) && *at != '_' && *at != '.')
            return 0;
    return 1;
}

/* python3 -c "..." module:function args */
static int plan_factory(char **words, struct script_command *ret_command, struct leat_err *err)
{
    static char dash_c[] = "-c", program[] = "import sys; from leat.bench import agent; "
                                             "agent.run_factory(sys.argv.pop(1))";
    size_t count = 0;
    while (words[count])
        count++;
    struct script_command made = {.argv = mem_alloc_array(count + 4, sizeof *made.argv)};
    int result = made.argv ? python_find(&made.python) : -ENOMEM;
    if (result < 0) {
        script_command_done(&made);
        return err_set(err, result, "No python3 was found on PATH: %s.", err_text(result));
    }
    made.argv[0] = made.python;
    made.argv[1] = dash_c;
    made.argv[2] = program;
    memcpy(made.argv + 3, words, count * sizeof *words);
    *ret_command = made;
    return 0;
}

static int print_result(const struct options *o, const struct tune_result *result)
{
    if (o->json) {
        json_t *value = tune_json(result);
        int status = cli_print_json(value);
        json_decref(value);
        return status;
    }
    struct str text = {0};
    tune_text(result, cli_colour(STDOUT_FILENO), &text);
    return cli_print_text(&text);
}

/* The script ended before its loader was reached. */
static int say_nothing_measured(const struct options *o, const struct run_process_end *end,
                                int number)
{
    if (number)
        cli_fail("Interrupted before %s iterated over a DataLoader.", o->words[0]);
    else if (end->signal > 0)
        cli_fail("%s was killed by signal %d before it iterated over a DataLoader.", o->words[0],
                 end->signal);
    else if (end->exit_status != 0)
        cli_fail("%s failed (exit status %d) before it iterated over a DataLoader%s.", o->words[0],
                 end->exit_status, o->quiet ? "; without --quiet its output says why" : "");
    else
        cli_fail("%s ended without iterating over a torch DataLoader with gradients enabled. "
                 "--loader N measures the N-th loader that it iterates over.",
                 o->words[0]);
    return EXIT_FAILED;
}

static int measure(const struct options *o, struct script_command *command, int has_model,
                   struct leat_err *err)
{
    struct session session;
    struct run_process_end end = {.exit_status = -1, .signal = -1};
    char *package = NULL, *inject_dir = NULL;
    int number = 0, status = EXIT_FAILED;
    struct busy before;
    uint64_t begun_ns = clock_now_ns();
    read_cpus(&before);
    session_init(&session, &o->limits, has_model);
    if (python_home_find(&package, err) < 0 || !(inject_dir = path_join(package, "_inject", NULL)))
        goto out;
    struct bench_process_options options = {.quiet = o->quiet,
                                            .progress = !o->quiet && isatty(STDERR_FILENO),
                                            .inject_dir = inject_dir};
    if (bench_process(command->argv, &options, &session, &end, &number, err) < 0)
        goto out;
    err->text[0] = 0;
    compare_cpus(&before, (double)(clock_now_ns() - begun_ns) / NS_PER_S, &session.result);
    if (!session.start_ns) {
        status = say_nothing_measured(o, &end, number);
    } else {
        struct tune_config choice;
        status = print_result(o, &session.result);
        if (status == EXIT_OK && search_choice(&session.result, &choice) < 0)
            status = EXIT_FAILED;
    }
    if (number)
        status = 128 + number;
out:
    session_done(&session);
    mem_free(inject_dir);
    mem_free(package);
    return status;
}

static int run(int argc, char **argv)
{
    struct options o = {.limits = {.most_workers = -1}};
    struct script_command command = {0};
    struct leat_err err = {""};
    int usage = cli_read_options(&command_bench, OPERANDS_END_OPTIONS, argc, argv, &o);
    if (usage)
        return usage == CLI_HELP_SHOWN ? EXIT_OK : usage;
    if (!argv[1])
        return cli_usage(&command_bench,
                         "What should be measured? Give a script, or module:function.");
    o.words = argv + 1;
    fill_limits(&o.limits);
    if (o.loader)
        setenv("LEAT_BENCH_LOADER", o.loader, 1);
    else
        unsetenv("LEAT_BENCH_LOADER");
    int factory = is_factory(o.words[0]);
    int result = factory ? plan_factory(o.words, &command, &err)
                         : script_command_plan("bench", o.words, &command, &err);
    int status = result < 0 ? EXIT_FAILED : measure(&o, &command, !factory, &err);
    script_command_done(&command);
    if (err.text[0])
        cli_fail("%s", err.text);
    return status;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure a loader and recommend settings",
    .synopsis = "leat bench [OPTIONS] SCRIPT.py [ARGS...]\n"
                "       leat bench [OPTIONS] [--] COMMAND [ARGS...]\n"
                "       leat bench [OPTIONS] MODULE:FUNCTION",
    .about = "Runs the script up to the first iteration of its training loader and measures\n"
             "that loader with other settings: num_workers, prefetch_factor, pin_memory (with\n"
             "a GPU), persistent_workers, and on request the batch size. With a GPU, batches\n"
             "are copied to it as in the script's first step, and leat.DataLoader is measured\n"
             "too if it can make these batches. Then the script trains on one cached batch,\n"
             "to measure what the model could take, and is ended. Prints a table, the\n"
             "verdict, and the DataLoader(...) line to paste. The script's own output goes to\n"
             "stderr.\n",
    .options = option_table,
    .examples = "MODULE:FUNCTION is called without arguments and returns the DataLoader; there is\n"
                "no model to measure then. Settings that fail, hang or kill a worker get a row\n"
                "with the error. Ctrl-C ends the search and prints what was measured.\n"
                "\n"
                "Examples:\n"
                "  leat bench train.py --epochs 3\n"
                "  leat bench --memory 8G --batch-size 64,128 train.py\n"
                "  leat bench mydata:make_loader\n"
                "  leat bench --json train.py | jq -r .choice.line\n"
                "\n"
                "Exit status: 0 when there is a recommendation, 1 when there is none, 2 a usage\n"
                "error, 130 after Ctrl-C.\n"
                "\n"
                "Then: leat run SCRIPT.py\n",
    .run = run,
};
