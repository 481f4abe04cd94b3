/* cmd_compare.c: `leat compare`: did the change help, or was it luck? */
#include "cli/cli.h"

#include "base/num.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum fail_on { FAIL_NEVER, FAIL_ON_REGRESSION, FAIL_ON_MIXED };

struct options {
    const char *runs[2];
    int run_count;
    int json;
    double threshold;
    enum fail_on fail_on;
};

static int parse_fail_on(const char *value, struct options *o)
{
    if (strcmp(value, "regression") == 0)
        o->fail_on = FAIL_ON_REGRESSION;
    else if (strcmp(value, "mixed") == 0)
        o->fail_on = FAIL_ON_MIXED;
    else
        return cli_usage(&command_compare, "--fail-on takes regression or mixed, not \"%s\".",
                         value);
    return EXIT_OK;
}

/* "3%" or "0.03". A bare 3 could mean either 3 % or 300 %: it is refused. */
static int parse_threshold(const char *value, struct options *o)
{
    char number[32];
    size_t length = strlen(value);
    int percent = length > 1 && value[length - 1] == '%';
    double ratio = -1;
    if (length < sizeof number) {
        memcpy(number, value, length + 1);
        if (percent)
            number[length - 1] = 0;
        if (num_parse_f64(number, &ratio) < 0)
            ratio = -1;
        else if (percent)
            ratio /= 100;
    }
    if (!(ratio > 0 && ratio < 1))
        return cli_usage(&command_compare,
                         "--threshold takes a share between 0 and 1, such as 3%% or 0.03, not "
                         "\"%s\".",
                         value);
    o->threshold = ratio;
    return EXIT_OK;
}

static int parse_options(int argc, char **argv, struct options *o)
{
    int plain = 0; /* after "--" a word is a run, whatever it looks like */
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value;
        int usage = EXIT_OK;
        if (!plain && strcmp(word, "--") == 0) {
            plain = 1;
        } else if (!plain && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            fputs(command_compare.usage, stdout);
            return -1;
        } else if (!plain && strcmp(word, "--json") == 0) {
            o->json = 1;
        } else if (!plain && cli_option("--threshold", argc, argv, &i, &value)) {
            usage = value ? parse_threshold(value, o)
                          : cli_usage(&command_compare, "--threshold needs a value, such as 3%%.");
        } else if (!plain && cli_option("--fail-on", argc, argv, &i, &value)) {
            usage = value ? parse_fail_on(value, o)
                          : cli_usage(&command_compare, "--fail-on needs regression or mixed.");
        } else if (!plain && word[0] == '-' && word[1]) {
            return cli_usage(&command_compare, "There is no option %s.", word);
        } else if (o->run_count == 2) {
            return cli_usage(&command_compare, "Two runs are compared: \"%s\" is one too many.",
                             word);
        } else {
            o->runs[o->run_count++] = word;
        }
        if (usage)
            return usage;
    }
    if (o->run_count == 0)
        return cli_usage(&command_compare, "BEFORE and AFTER are missing: which runs?");
    if (o->run_count == 1)
        return cli_usage(&command_compare, "AFTER is missing: compare \"%s\" with which run?",
                         o->runs[0]);
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
    struct options o = {.threshold = 0.03};
    int usage = parse_options(argc, argv, &o);
    if (usage)
        return usage < 0 ? EXIT_OK : usage;
    struct leat_err err = {""};
    json_t *result = NULL;
    if (compare_runs(o.runs[0], o.runs[1], o.threshold, &result, &err) < 0)
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
    .usage = "usage: leat compare BEFORE AFTER [--json] [--threshold 3%] [--fail-on WHAT]\n"
             "\n"
             "Compares the steps of two runs: the ratio of their medians, with a 95 %\n"
             "interval. BEFORE and AFTER are names of runs in ./logs, folders of runs, or\n"
             "final_summary.json files with their run.db beside them.\n"
             "\n"
             "  REGRESSION    slower by the threshold or more, and not by chance\n"
             "  IMPROVEMENT   faster by the threshold or more, and not by chance\n"
             "  MIXED         time and memory disagree\n"
             "  EQUIVALENT    the whole interval lies within the threshold\n"
             "  INCONCLUSIVE  undecided: says how many more steps would decide it, or why\n"
             "                the runs are not comparable\n"
             "\n"
             "  --threshold X   the smallest change that counts, 3% or 0.03 (default: 3%)\n"
             "  --fail-on WHAT  exit with 3 on a regression, or with \"mixed\" also on MIXED\n"
             "  --json          print the comparison as JSON\n"
             "\n"
             "The interval knows the variation inside the two runs. What changes from run to\n"
             "run by itself (another node, a cold cache) is not in it: repeat what matters.\n"
             "\n"
             "Examples:\n"
             "  leat compare before after\n"
             "  leat compare logs/before /data/runs/after --threshold 5%\n"
             "  leat compare main branch --fail-on regression   # in CI\n"
             "\n"
             "Exit status: 0 fine, 1 a run cannot be read, 2 a usage error, 3 --fail-on.\n"
             "\n"
             "Then: leat view AFTER\n",
    .run = run,
};
