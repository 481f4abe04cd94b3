/* cmd_compare.c: `leat compare`: did the change help, or was it luck? */
#include "cli/cli.h"

#include "base/num.h"
#include "report/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum fail_on { FAIL_NEVER, FAIL_ON_REGRESSION, FAIL_ON_MIXED };

struct compare_options {
    int json;
    double threshold;
    enum fail_on fail_on;
};

static int parse_fail_on(const char *value, void *field)
{
    enum fail_on *fail_on = field;
    *fail_on = strcmp(value, "regression") == 0 ? FAIL_ON_REGRESSION
               : strcmp(value, "mixed") == 0    ? FAIL_ON_MIXED
                                                : FAIL_NEVER;
    return *fail_on == FAIL_NEVER ? -EINVAL : 0;
}

/* "3%" or "0.03". A bare 3 could mean 3 % or 300 %: it is refused. */
static int parse_threshold(const char *value, void *field)
{
    char number[32];
    size_t length = strlen(value);
    int percent = length > 1 && value[length - 1] == '%';
    double ratio;
    if (length >= sizeof number)
        return -EINVAL;
    memcpy(number, value, length + 1);
    if (percent)
        number[length - 1] = 0;
    if (num_parse_f64(number, &ratio) < 0)
        return -EINVAL;
    if (percent)
        ratio /= 100;
    *(double *)field = ratio;
    return ratio > 0 && ratio < 1 ? 0 : -EINVAL;
}

static const struct cli_option option_table[] = {
    OPTION_VALUE("threshold", struct compare_options, threshold, "X", parse_threshold,
                 "a share between 0 and 1, such as 3% or 0.03",
                 "the smallest change that counts, 3% or 0.03 (default: 3%)"),
    OPTION_VALUE("fail-on", struct compare_options, fail_on, "WHAT", parse_fail_on,
                 "regression or mixed",
                 "exit with 3 on a regression, or with \"mixed\" also on MIXED"),
    OPTION_FLAG("json", 0, struct compare_options, json, "print the comparison as JSON"),
    OPTIONS_END,
};

static int check_operands(char **runs)
{
    if (!runs[0])
        return cli_usage(&command_compare, "BEFORE and AFTER are missing: which runs?");
    if (!runs[1])
        return cli_usage(&command_compare, "AFTER is missing: compare \"%s\" with which run?",
                         runs[0]);
    if (runs[2])
        return cli_usage(&command_compare, "Two runs are compared: \"%s\" is one too many.",
                         runs[2]);
    return EXIT_OK;
}

static int print_result(const json_t *result, int as_json)
{
    struct str text = {0};
    if (as_json)
        return cli_print_json(result);
    compare_text(result, cli_colour(STDOUT_FILENO), &text);
    return cli_print_text(&text);
}

static int run(int argc, char **argv)
{
    struct compare_options o = {.threshold = 0.03};
    int usage = cli_read_options(&command_compare, OPERANDS_ANYWHERE, argc, argv, &o);
    if (usage == EXIT_OK)
        usage = check_operands(argv + 1);
    if (usage)
        return usage == CLI_HELP_SHOWN ? EXIT_OK : usage;
    struct leat_err err = {""};
    json_t *result = NULL;
    if (compare_runs(argv[1], argv[2], o.threshold, &result, &err) < 0)
        return cli_fail("%s", err.text);
    int status = print_result(result, o.json);
    const char *kind = json_find_text(result, "verdict.kind", "");
    int regression = strcmp(kind, "REGRESSION") == 0, mixed = strcmp(kind, "MIXED") == 0;
    if (status == EXIT_OK &&
        ((o.fail_on >= FAIL_ON_REGRESSION && regression) || (o.fail_on >= FAIL_ON_MIXED && mixed)))
        status = EXIT_FOUND;
    json_decref(result);
    return status;
}

const struct command command_compare = {
    .name = "compare",
    .summary = "say whether a second run is faster, slower or the same",
    .synopsis = "leat compare BEFORE AFTER [--json] [--threshold 3%] [--fail-on WHAT]",
    .about = "Compares the steps of two runs: the ratio of their medians, with a 95 %\n"
             "interval. BEFORE and AFTER are names of runs in ./logs, folders of runs, or\n"
             "final_summary.json files with their run.db beside them.\n"
             "\n"
             "  REGRESSION    slower by the threshold or more, and not by chance\n"
             "  IMPROVEMENT   faster by the threshold or more, and not by chance\n"
             "  MIXED         time and memory changed in opposite directions\n"
             "  EQUIVALENT    the whole interval lies within the threshold\n"
             "  INCONCLUSIVE  undecided: with how many more steps would decide it, or why\n"
             "                the runs are not comparable\n",
    .options = option_table,
    .examples = "The interval covers the variation inside the two runs. Differences between runs\n"
                "(another node, a cold cache) are not in it: repeat important measurements.\n"
                "\n"
                "Examples:\n"
                "  leat compare before after\n"
                "  leat compare logs/before /data/runs/after --threshold 5%\n"
                "  leat compare main branch --fail-on regression   # in CI\n"
                "\n"
                "Exit status: 0 success, 1 a run cannot be read, 2 a usage error, 3 --fail-on.\n"
                "\n"
                "Then: leat view AFTER\n",
    .run = run,
};
