/* cmd_view.c: `leat view`: prints the report of a run again, from its summary file. */
#include "cli/cli.h"

#include "base/mem.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const levels[] = {"info", "warning", "critical"};

struct options {
    const char *run; /* NULL: the newest */
    int json;
    int fail_level; /* index into levels; -1: never */
};

static int level_of(const char *name)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(levels[i], name) == 0)
            return i;
    return -1;
}

static int parse_level(const char *value, struct options *o)
{
    o->fail_level = level_of(value);
    if (o->fail_level < 0)
        return cli_usage(&command_view, "--fail-on takes info, warning or critical, not \"%s\".",
                         value);
    return EXIT_OK;
}

/* -1 after --help, EXIT_OK to go on, EXIT_USAGE otherwise. */
static int parse_options(int argc, char **argv, struct options *o)
{
    int plain = 0; /* after "--" a word is a run, whatever it looks like */
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value;
        int usage = EXIT_OK;
        if (!plain && strcmp(word, "--") == 0) {
            plain = 1;
        } else if (!plain && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            fputs(command_view.usage, stdout);
            return -1;
        } else if (!plain && strcmp(word, "--json") == 0) {
            o->json = 1;
        } else if (!plain && cli_option("--fail-on", argc, argv, &i, &value)) {
            usage = value ? parse_level(value, o)
                          : cli_usage(&command_view, "--fail-on needs info, warning or critical.");
        } else if (!plain && word[0] == '-' && word[1]) {
            return cli_usage(&command_view, "There is no option %s.", word);
        } else if (o->run) {
            return cli_usage(&command_view, "One run at a time: \"%s\" is one too many.", word);
        } else {
            o->run = word;
        }
        if (usage)
            return usage;
    }
    return EXIT_OK;
}

/* The verdict is a finding too, but a file from elsewhere may hold only one of them. */
static int worst_level(const json_t *summary)
{
    int worst = level_of(json_find_text(summary, "verdict.severity", ""));
    const json_t *finding;
    size_t i;
    json_array_foreach (json_object_get(summary, "findings"), i, finding) {
        int level = level_of(json_find_text(finding, "severity", ""));
        worst = level > worst ? level : worst;
    }
    return worst;
}

static int print_summary(const json_t *summary, int as_json)
{
    struct str text = {0};
    if (as_json)
        return cli_print_json(summary);
    report_text(summary, cli_colour(STDOUT_FILENO), &text);
    return cli_print_text(&text);
}

static int run(int argc, char **argv)
{
    struct options o = {.fail_level = -1};
    int usage = parse_options(argc, argv, &o);
    if (usage)
        return usage < 0 ? EXIT_OK : usage;
    struct leat_err err = {""};
    char *newest = NULL;
    json_t *summary = NULL;
    int result = o.run ? 0 : summary_newest("logs", &newest, &err);
    if (result == 0)
        result = summary_read(o.run ? o.run : newest, &summary, &err);
    mem_free(newest);
    if (result < 0)
        return cli_fail("%s", err.text);
    int status = print_summary(summary, o.json);
    if (status == EXIT_OK && o.fail_level >= 0 && worst_level(summary) >= o.fail_level)
        status = EXIT_FOUND;
    json_decref(summary);
    return status;
}

const struct command command_view = {
    .name = "view",
    .summary = "print the report of a run again",
    .usage = "usage: leat view [RUN] [--json] [--fail-on LEVEL]\n"
             "\n"
             "Prints what leat found in a run: the verdict, why and what to do, then the\n"
             "figures it rests on. RUN is the name of a run in ./logs, a run's folder, or a\n"
             "final_summary.json; without it, the newest run in ./logs. A run whose leat was\n"
             "killed has no summary: its report is made from its run.db.\n"
             "\n"
             "  --json            print the summary as JSON\n"
             "                    (docs/final_summary.schema.json describes it)\n"
             "  --fail-on LEVEL   exit with 3 when the run has a finding of this severity or\n"
             "                    above: info, warning or critical\n"
             "\n"
             "Examples:\n"
             "  leat view\n"
             "  leat view before\n"
             "  leat view /data/runs/before --json | jq .verdict\n"
             "  leat view --fail-on critical\n"
             "\n"
             "Exit status: 0 fine, 1 the run cannot be read, 2 a usage error, 3 --fail-on.\n"
             "\n"
             "Then: leat compare BEFORE AFTER\n",
    .run = run,
};
