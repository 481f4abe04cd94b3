/* cmd_run.c: `leat run`, from the options to the exit status.
 *
 *     options ─► run folder ─► run.db (writer) ─► collector ─► the training (run_process)
 *                                                    ... it ends ...
 *     collector_finish ─► facts ─► findings ─► final_summary.json, .txt ─► stderr ─► its exit
 * status
 *
 * No failure of leat ends the training. Errors known before it starts (a run name that exists, no
 * writable folder) are reported at once and nothing is run. Later failures (no database, no Python
 * package, no socket) are reported in a sentence at the end, and the training still runs.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/path.h"
#include "launch/probe_preload.h"
#include "launch/python_home.h"
#include "cli/run_folder.h"
#include "launch/run_process.h"
#include "launch/script_command.h"
#include "collect/collector.h"
#include "record/layout.h"
#include "report/report.h"
#include "store/store.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    NOTES = 8,
    HELLO_NOTES = 4 /* of processes that cannot be read: they mostly have the same reason */
};

struct options {
    const char *run_name, *logs_dir;
    int64_t max_steps; /* 0: all */
    int json, quiet, no_probe;
    char **command; /* the operands, in main's argv, ended by NULL */
};

struct session {
    struct options options;
    struct script_command command; /* what is run */
    char *inject_dir;
    char *probe; /* NULL: CUDA calls are not counted */
    struct run_folder folder;
    struct store_writer *writer; /* NULL: nothing can be stored */
    struct collector *collector; /* NULL: nothing is recorded */
    uint64_t start_ns;
    char notes[NOTES][512]; /* sentences for the end */
    int note_count;
};

static void note(struct session *s, const char *text)
{
    if (*text && s->note_count < NOTES)
        snprintf(s->notes[s->note_count++], sizeof s->notes[0], "%s", text);
}

/* ---- options -------------------------------------------------------------------------------- */

static int parse_steps(const char *value, void *field)
{
    uint64_t steps;
    if (num_parse_u64(value, &steps) < 0 || steps == 0 || steps > INT64_MAX)
        return -EINVAL;
    *(int64_t *)field = (int64_t)steps;
    return 0;
}

static const struct cli_option option_table[] = {
    OPTION_VALUE("run-name", struct options, run_name, "NAME", NULL, "the name of a new folder",
                 "name of the run (default: the script's name and the time);\n"
                 "a name that exists is never overwritten"),
    OPTION_VALUE("logs-dir", struct options, logs_dir, "DIR", NULL, "a folder",
                 "where the run's folder goes (default: logs)"),
    OPTION_VALUE("max-steps", struct options, max_steps, "N", parse_steps, "a whole number above 0",
                 "record the first N steps only; the training goes on"),
    OPTION_FLAG("no-probe", 0, struct options, no_probe, "do not count CUDA calls (no LD_PRELOAD)"),
    OPTION_FLAG("json", 0, struct options, json,
                "print the summary as JSON, not as text: one line, the last\n"
                "on stderr (stdout is the training's)"),
    OPTION_FLAG("quiet", 'q', struct options, quiet,
                "print no report, also with --json; only write the files.\n"
                "Errors are printed"),
    OPTIONS_END,
};

/* ---- a limit on the size of files (ulimit -f) ------------------------------------------------ */

/* The memory that a process records into is a file for the kernel, so the limit applies to it. */
static void note_file_limit(struct session *s)
{
    struct rlimit limit;
    char text[256];
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur >= sizeof(struct rec_area))
        return;
    snprintf(
        text, sizeof text,
        "The limit of file size is %llu bytes (ulimit -f), but the memory for records counts as a "
        "file of %zu bytes: processes with this limit were not recorded.",
        (unsigned long long)limit.rlim_cur, sizeof(struct rec_area));
    note(s, text);
}

/* ---- while the training runs ----------------------------------------------------------------- */

static int on_started(void *context, pid_t pid)
{
    struct session *s = context;
    struct leat_err err = {""};
    if (!s->writer)
        return 0;
    struct collector_options options = {.proc_root = "/",
                                        .start_ns = s->start_ns,
                                        .root_pid = pid,
                                        .max_steps = s->options.max_steps,
                                        .probe = s->probe != NULL};
    int result = collector_new(s->writer, &options, &s->collector, &err);
    if (result < 0)
        note(s, err.text);
    return result;
}

static void on_hello(void *context, int memfd, pid_t pid)
{
    struct session *s = context;
    struct leat_err err = {""};
    if (!s->collector)
        close(memfd);
    else if (collector_adopt(s->collector, memfd, pid, &err) < 0 && s->note_count < HELLO_NOTES)
        note(s, err.text);
}

static int on_descriptor(void *context)
{
    const struct session *s = context;
    return s->collector ? collector_ends_descriptor(s->collector) : -1;
}

static void on_process_end(void *context)
{
    collector_read_ends(((struct session *)context)->collector);
}

static void on_tick(void *context)
{
    struct session *s = context;
    if (s->collector) {
        collector_drain(s->collector);
        collector_sample(s->collector);
    }
}

/* ---- what is stored about the run ------------------------------------------------------------ */

static void store_beginning(struct session *s)
{
    char host[256] = "", when[32];
    gethostname(host, sizeof host - 1);
    time_t now = time(NULL);
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *words = json_array();
    for (size_t i = 0; s->options.command[i]; i++)
        json_array_append_new(words, json_text_or_null(s->options.command[i]));
    char *command = json_dumps(words, JSON_COMPACT);
    json_decref(words);
    store_set_meta(s->writer, "run_name", s->folder.name);
    store_set_meta(s->writer, "command", command ? command : "[]");
    store_set_meta(s->writer, "logs_dir", s->options.logs_dir);
    store_set_meta(s->writer, "started_at", when);
    store_set_meta(s->writer, "node", host);
    store_set_meta(s->writer, "leat", LEAT_VERSION);
    store_set_metaf(s->writer, "start_ns", "%llu", (unsigned long long)s->start_ns);
    if (s->options.max_steps)
        store_set_metaf(s->writer, "max_steps", "%lld", (long long)s->options.max_steps);
    store_flush(s->writer);
    free(command); /* jansson's */
}

/* Python turns Ctrl-C into KeyboardInterrupt and then ends by SIGINT; a shell around it returns
 * 130; launchers such as torchrun just fail. */
static const char *how_it_ended(const struct run_process_end *end)
{
    if (end->signal == SIGINT || end->exit_status == 128 + SIGINT ||
        (end->interrupted && end->exit_status != 0))
        return "interrupted";
    if (end->signal > 0 || end->exit_status == 128 + SIGKILL || end->exit_status == 128 + SIGTERM)
        return "killed";
    return end->exit_status == 0 ? "completed" : "failed";
}

static void store_end(struct session *s, const struct run_process_end *end)
{
    store_set_metaf(s->writer, "duration_ns", "%llu",
                    (unsigned long long)(clock_now_ns() - s->start_ns));
    store_set_meta(s->writer, "ended", how_it_ended(end));
    if (end->exit_status >= 0)
        store_set_metaf(s->writer, "exit_status", "%d", end->exit_status);
    if (end->signal > 0)
        store_set_metaf(s->writer, "signal", "%d", end->signal);
}

/* ---- the end ------------------------------------------------------------------------------- */

static int make_summary(struct session *s, json_t **ret_summary, struct leat_err *err)
{
    struct store_reader *reader = NULL;
    int result = store_reader_of_writer(s->writer, &reader, err);
    if (result == 0)
        result = summary_from_database(reader, ret_summary, err);
    store_reader_close(reader);
    return result;
}

/* Writes both forms beside run.db. If that fails, the text is still printed on stderr. */
static void write_summary(struct session *s, const json_t *summary, const char *text)
{
    struct leat_err err = {""};
    char *json_path = path_join(s->folder.path, "final_summary.json", NULL);
    char *text_path = path_join(s->folder.path, "final_summary.txt", NULL);
    if (json_path && json_write_file(json_path, summary, &err) < 0)
        note(s, err.text);
    if (text_path && path_write_file(text_path, text, strlen(text), &err) < 0)
        note(s, err.text);
    mem_free(json_path);
    mem_free(text_path);
}

static void print_notes(const struct session *s)
{
    for (int i = 0; i < s->note_count; i++)
        fprintf(stderr, "leat: %s\n", s->notes[i]);
}

/* The training also writes to stderr, maybe without a final line end. So the JSON is one line, and
 * the last one. */
static void print_json_line(const struct session *s, const json_t *summary)
{
    char *line = json_to_line(summary);
    fputs("\n", stderr);
    print_notes(s);
    if (line)
        fprintf(stderr, "%s\n", line);
    else
        fputs("leat: Out of memory: the summary is not printed.\n", stderr);
    free(line); /* jansson's */
}

/* Errors are printed even with --quiet. */
static void print_report(const struct session *s, const json_t *summary)
{
    if (summary && s->options.json && !s->options.quiet) {
        print_json_line(s, summary);
        return;
    }
    if (summary && !s->options.quiet) {
        struct str text = {0};
        report_text(summary, cli_colour(STDERR_FILENO), &text);
        fprintf(stderr, "\n%s", str_text(&text));
        str_done(&text);
    }
    print_notes(s);
}

static void finish(struct session *s, const struct run_process_end *end)
{
    json_t *summary = NULL;
    struct leat_err err = {""};
    if (s->writer) {
        if (s->collector)
            collector_finish(s->collector);
        store_end(s, end);
        store_flush(s->writer);
        if (make_summary(s, &summary, &err) < 0)
            note(s, err.text);
        store_writer_close(s->writer, &err);
        s->writer = NULL;
        note(s, err.text);
        if (summary) {
            struct str text = {0};
            report_text(summary, 0, &text);
            write_summary(s, summary, str_text(&text));
            str_done(&text);
        }
    }
    print_report(s, summary);
    json_decref(summary);
}

/* Opens everything leat needs. A failure is noted, and the training runs without it. */
static void prepare(struct session *s)
{
    struct leat_err err = {""};
    char *package = NULL;
    if (python_home_find(&package, &err) < 0)
        note(s, err.text);
    else if (!(s->inject_dir = path_join(package, "_inject", NULL)))
        note(s, "Out of memory: nothing was recorded.");
    const char *why = NULL;
    if (s->inject_dir && !s->options.no_probe)
        s->probe = probe_find(package, &why);
    note(s, why ? why : "");
    mem_free(package);
    char *database = path_join(s->folder.path, "run.db", NULL);
    if (!database || store_writer_open(database, &s->writer, &err) < 0)
        note(s, err.text);
    mem_free(database);
    s->start_ns = clock_now_ns();
    if (s->writer)
        store_beginning(s);
}

/* The command could not be started: remove the run's files. */
static void discard(struct session *s)
{
    char *database = path_join(s->folder.path, "run.db", NULL);
    store_writer_close(s->writer, NULL);
    if (database)
        unlink(database);
    mem_free(database);
    rmdir(s->folder.path);
}

static void session_done(struct session *s)
{
    collector_free(s->collector);
    run_folder_done(&s->folder);
    script_command_done(&s->command);
    mem_free(s->inject_dir);
    mem_free(s->probe);
}

static int run(int argc, char **argv)
{
    struct session s = {.options = {.logs_dir = "logs"}};
    struct leat_err err = {""};
    int usage = cli_read_options(&command_run, OPERANDS_END_OPTIONS, argc, argv, &s.options);
    if (usage)
        return usage == CLI_HELP_SHOWN ? EXIT_OK : usage;
    if (!argv[1])
        return cli_usage(&command_run, "What should be run? Give a script or a command.");
    s.options.command = argv + 1;
    if (script_command_plan("run", s.options.command, &s.command, &err) < 0) {
        session_done(&s);
        return cli_fail("%s", err.text);
    }
    if (run_folder_make(s.options.logs_dir, s.options.run_name, s.options.command[0], &s.folder,
                        &err) < 0) {
        session_done(&s);
        cli_fail("%s", err.text);
        return EXIT_USAGE;
    }
    note(&s, s.folder.note);
    note_file_limit(&s); /* of the training: run_process_shield() raises leat's own */
    run_process_shield();
    prepare(&s);
    struct run_process_events events = {.context = &s,
                                        .started = on_started,
                                        .hello = on_hello,
                                        .tick = on_tick,
                                        .descriptor = on_descriptor,
                                        .readable = on_process_end,
                                        .probe = s.probe};
    struct run_process_end end;
    err.text[0] = 0;
    int result = run_process(s.command.argv, s.inject_dir, &events, &end, &err);
    if (result < 0) {
        discard(&s);
        session_done(&s);
        cli_fail("%s", err.text);
        return result == -ENOENT ? 127 : 126; /* as in a shell */
    }
    note(&s, err.text);
    finish(&s, &end);
    session_done(&s);
    run_process_exit_like(&end);
}

const struct command command_run = {
    .name = "run",
    .summary = "run a training and say what each step's time goes to",
    .synopsis = "leat run [OPTIONS] SCRIPT.py [ARGS...]\n"
                "       leat run [OPTIONS] [--] COMMAND [ARGS...]",
    .about = "Runs the training as without leat: same input and output, same signals, same\n"
             "exit status. It needs no change to the code and no root. When the training\n"
             "ends, for whatever reason, leat prints on stderr what each step's time was\n"
             "spent on and what to change, and stores it in logs/RUN/ (final_summary.json,\n"
             "final_summary.txt and run.db).\n",
    .options = option_table,
    .examples = "A script (a word that ends in .py) is run by the python3 of your environment;\n"
                "any other command is run unchanged.\n"
                "\n"
                "Examples:\n"
                "  leat run train.py --epochs 3\n"
                "  leat run --run-name before torchrun --nproc-per-node 2 train.py\n"
                "  leat run python -m mypackage.train\n"
                "  leat run bash launch.sh\n"
                "  leat run --json train.py 2>&1 >train.out | tail -n 1 | jq .verdict\n"
                "\n"
                "Exit status: the training's own; 1 when the script cannot be read or there is no\n"
                "Python to run it, 2 for a usage error, also when the run name exists, 126 or\n"
                "127 when the command cannot be run.\n"
                "\n"
                "Then: leat view, leat compare\n",
    .run = run,
};
