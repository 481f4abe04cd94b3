/* cmd_view.c: `leat view`: prints the report of a run again, from its summary file. */
#include "cli/cli.h"

#include "base/mem.h"
#include "report/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct view_options {
    int json;
    int fail_level; /* enum severity; -1: never */
};

static int level_of(const char *name)
{
    for (int i = SEVERITY_INFO; i <= SEVERITY_CRITICAL; i++)
        if (strcmp(severity_text((enum severity)i), name) == 0)
            return i;
    return -1;
}

static int parse_level(const char *value, void *field)
{
    int level = level_of(value);
    *(int *)field = level;
    return level < 0 ? -EINVAL : 0;
}

static const struct cli_option option_table[] = {
    OPTION_FLAG("json", 0, struct view_options, json,
                "print the summary as JSON\n"
                "(docs/final_summary.schema.json describes it)"),
    OPTION_VALUE("fail-on", struct view_options, fail_level, "LEVEL", parse_level,
                 "info, warning or critical",
                 "exit with 3 when the run has a finding of this severity or\n"
                 "above: info, warning or critical"),
    OPTIONS_END,
};

/* The verdict is also a finding, but a file that leat did not write may lack one of them. */
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
    struct view_options o = {.fail_level = -1};
    int usage = cli_read_options(&command_view, OPERANDS_ANYWHERE, argc, argv, &o);
    if (usage)
        return usage == CLI_HELP_SHOWN ? EXIT_OK : usage;
    const char *wanted = argv[1]; /* NULL: the newest run */
    if (wanted && argv[2])
        return cli_usage(&command_view, "One run at a time: \"%s\" is one too many.", argv[2]);
    struct leat_err err = {""};
    char *newest = NULL;
    json_t *summary = NULL;
    int result = wanted ? 0 : summary_newest("logs", &newest, &err);
    if (result == 0)
        result = summary_read(wanted ? wanted : newest, &summary, &err);
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
    .synopsis = "leat view [RUN] [--json] [--fail-on LEVEL]",
    .about = "Prints what leat found in a run: the verdict, why and what to do, then the\n"
             "figures it is based on. RUN is the name of a run in ./logs, a run's folder, or\n"
             "a final_summary.json; without it, the newest run in ./logs. If leat was killed\n"
             "there is no summary: the report is then made from run.db.\n",
    .options = option_table,
    .examples = "Examples:\n"
                "  leat view\n"
                "  leat view before\n"
                "  leat view /data/runs/before --json | jq .verdict\n"
                "  leat view --fail-on critical\n"
                "\n"
                "Exit status: 0 success, 1 the run cannot be read, 2 a usage error, 3 --fail-on.\n"
                "\n"
                "Then: leat compare BEFORE AFTER\n",
    .run = run,
};
