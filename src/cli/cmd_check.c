/* cmd_check.c: `leat check`: what leat can measure on this machine, and how to get the rest.
 *
 * Everything is tried, nothing is guessed: Python is started, the extension and a BPF program are
 * loaded. The output is the verdict, one line per item, and the next command.
 */
#include "cli/cli.h"

#include "base/str.h"
#include "cli/check.h"
#include "report/text_layout.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct check_options {
    int json;
    const char *python; /* NULL: the first on PATH */
};

static const struct cli_option option_table[] = {
    OPTION_FLAG("json", 0, struct check_options, json, "print the results as JSON"),
    OPTION_VALUE("python", struct check_options, python, "PATH", NULL, "the path of a Python",
                 "check this Python instead of the first on PATH"),
    OPTIONS_END,
};

static const char *const state_names[] = {"ok", "limited", "missing"};

struct check_item *check_add(struct check *check, enum check_group group, const char *name)
{
    int last = (int)(sizeof check->items / sizeof *check->items) - 1;
    struct check_item *item = &check->items[check->count < last ? check->count++ : last];
    json_decref(item->facts);
    *item = (struct check_item){.name = name, .group = group, .facts = json_object()};
    return item;
}

static void set_item(struct check_item *item, enum check_state state, const char *way,
                     const char *fmt, va_list args)
{
    item->state = state;
    snprintf(item->way, sizeof item->way, "%s", way);
    vsnprintf(item->text, sizeof item->text, fmt, args);
}

void check_ok(struct check_item *item, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_item(item, CHECK_OK, "", fmt, args);
    va_end(args);
}

void check_limited(struct check_item *item, const char *way, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_item(item, CHECK_LIMITED, way, fmt, args);
    va_end(args);
}

void check_missing(struct check_item *item, const char *way, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_item(item, CHECK_MISSING, way, fmt, args);
    va_end(args);
}

void check_fact(struct check_item *item, const char *name, json_t *value)
{
    /* A path that is no UTF-8 makes no JSON string: null. */
    json_object_set_new(item->facts, name, value ? value : json_null());
}

static int works(const struct check *check)
{
    for (int i = 0; i < check->count; i++)
        if (check->items[i].needed && check->items[i].state == CHECK_MISSING)
            return 0;
    return 1;
}

static int is_missing(const struct check *check, const char *name)
{
    for (int i = 0; i < check->count; i++)
        if (strcmp(check->items[i].name, name) == 0)
            return check->items[i].state == CHECK_MISSING;
    return 0;
}

/* "; missing: gpu, nvml" */
static void add_names(struct str *s, const struct check *check, enum check_state state)
{
    const char *before = "; ";
    for (int i = 0; i < check->count; i++) {
        if (check->items[i].state != state)
            continue;
        if (before[0] == ';')
            str_addf(s, "; %s: %s", state_names[state], check->items[i].name);
        else
            str_addf(s, ", %s", check->items[i].name);
        before = ", ";
    }
}

static void add_verdict(struct str *s, const struct check *check)
{
    str_add(s, works(check) ? "leat run works here" : "leat run does not work here");
    if (works(check) && is_missing(check, "torch"))
        str_add(s, ", but has no verdict without torch");
    add_names(s, check, CHECK_MISSING);
    add_names(s, check, CHECK_LIMITED);
    str_add(s, ".");
}

static const char *next_command(const struct check *check)
{
    if (is_missing(check, "python"))
        return "leat check --python /path/to/your/python3";
    if (!works(check))
        return "leat check, after installing what is missing";
    if (is_missing(check, "logs"))
        return "leat run --logs-dir DIR train.py";
    return "leat run train.py";
}

static void add_text(struct str *s, const struct check *check, int colour)
{
    static const char *const groups[] = {"Training", "Machine",
                                         "Kernel (leat run needs none of it)"};
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    enum { INDENT = 23 };
    struct str verdict = {0};
    add_verdict(&verdict, check);
    layout_paragraph(s, "", 0, str_text(&verdict));
    s->failed |= verdict.failed;
    str_done(&verdict);
    for (int group = 0; group < CHECK_GROUPS; group++) {
        str_addf(s, "\n%s\n", groups[group]);
        for (int i = 0; i < check->count; i++) {
            const struct check_item *item = &check->items[i];
            if (item->group != (enum check_group)group)
                continue;
            str_addf(s, "  %s%-8s%s %-11s ", colour ? colours[item->state] : "",
                     state_names[item->state], colour ? "\033[0m" : "", item->name);
            layout_rest(s, INDENT, INDENT, item->text);
            if (item->way[0]) {
                str_addf(s, "%*s-> ", INDENT, "");
                layout_rest(s, INDENT + 3, INDENT + 3, item->way);
            }
        }
    }
    str_addf(s, "\nNext: %s\n", next_command(check));
}

static json_t *to_json(const struct check *check)
{
    struct str verdict = {0};
    add_verdict(&verdict, check);
    json_t *items = json_array();
    for (int i = 0; i < check->count; i++) {
        const struct check_item *item = &check->items[i];
        json_t *row = json_pack(
            "{s:s, s:s, s:b, s:o, s:o, s:O}", "name", item->name, "state", state_names[item->state],
            "needed", item->needed, "text", json_text_or_null(item->text), "way_out",
            json_text_or_null(item->way[0] ? item->way : NULL), "facts", item->facts);
        json_array_append_new(items, row);
    }
    json_t *all = json_pack("{s:s, s:s, s:b, s:s, s:o, s:s}", "schema_version", "1.0", "leat",
                            LEAT_VERSION, "works", works(check), "verdict", str_text(&verdict),
                            "items", items, "next", next_command(check));
    str_done(&verdict);
    return all;
}

static int print_check(const struct check *check, int as_json)
{
    if (as_json) {
        json_t *all = to_json(check);
        int status = cli_print_json(all);
        json_decref(all);
        return status;
    }
    struct str text = {0};
    add_text(&text, check, cli_colour(STDOUT_FILENO));
    return cli_print_text(&text);
}

static int run_check(int argc, char **argv)
{
    struct check_options o = {0};
    int usage = cli_read_options(&command_check, OPERANDS_ANYWHERE, argc, argv, &o);
    if (usage)
        return usage == CLI_HELP_SHOWN ? EXIT_OK : usage;
    if (argv[1])
        return cli_usage(&command_check, "It takes no argument, but was given \"%s\".", argv[1]);
    struct check check = {0};
    check_python(&check, o.python);
    check_machine(&check);
    int status = print_check(&check, o.json);
    if (status == EXIT_OK && !works(&check))
        status = EXIT_FAILED;
    for (int i = 0; i < check.count; i++)
        json_decref(check.items[i].facts);
    return status;
}

const struct command command_check = {
    .name = "check",
    .summary = "say what leat can measure on this machine",
    .synopsis = "leat check [--json] [--python PATH]",
    .about = "Says what leat can measure on this machine, and how to get what is missing.\n"
             "Only Python is required: what else is missing is not measured.\n",
    .options = option_table,
    .examples = "Examples:\n"
                "  leat check\n"
                "  leat check --python .venv/bin/python\n"
                "  sudo leat check                 what root could measure\n"
                "  leat check --json | jq '.items[] | select(.state != \"ok\")'\n"
                "\n"
                "Exit status: 0 leat run works here, 1 it does not, 2 a usage error.\n"
                "\n"
                "Then: leat run train.py\n",
    .run = run_check,
};
