/* option_table.c: see option_table.h. */
#include "cli/option_table.h"

#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_OPTIONS = 16,
    FIRST_LONG = 256, /* getopt_long's value of options[0]; letters are below */
    LONG_HELP = FIRST_LONG + MAX_OPTIONS
};

struct getopt_tables {
    struct option longs[MAX_OPTIONS + 2];
    char letters[3 + 2 * MAX_OPTIONS];
};

static void fill_tables(const struct cli_option *options, enum cli_operands operands,
                        struct getopt_tables *tables)
{
    int count = 0;
    /* '-': operands are returned in their order, '+': the first one ends the options.
     * ':': a missing value is returned as ':'. */
    char *letter = tables->letters;
    *letter++ = operands == OPERANDS_ANYWHERE ? '-' : '+';
    *letter++ = ':';
    *letter++ = 'h';
    for (; options && options[count].name; count++) {
        const struct cli_option *o = &options[count];
        tables->longs[count] = (struct option){o->name, o->value ? required_argument : no_argument,
                                               NULL, FIRST_LONG + count};
        if (o->letter)
            *letter++ = o->letter;
        if (o->letter && o->value)
            *letter++ = ':';
    }
    tables->longs[count++] = (struct option){"help", no_argument, NULL, LONG_HELP};
    tables->longs[count] = (struct option){0};
    *letter = 0;
}

/* The option that getopt_long returned as `code`; NULL for --help. */
static const struct cli_option *option_of(const struct cli_option *options, int code)
{
    if (code >= FIRST_LONG)
        return code == LONG_HELP ? NULL : &options[code - FIRST_LONG];
    for (; options && options->name; options++)
        if (options->letter == code)
            return options;
    return NULL;
}

static int take_value(const struct command *command, const struct cli_option *option, void *options)
{
    void *field = (char *)options + option->offset;
    if (!option->value) {
        *(int *)field = 1;
        return EXIT_OK;
    }
    if (!option->parse && !*optarg)
        return cli_usage(command, "--%s needs a value: %s.", option->name, option->wants);
    if (!option->parse)
        *(const char **)field = optarg;
    else if (option->parse(optarg, field) < 0)
        return cli_usage(command, "--%s takes %s, not \"%s\".", option->name, option->wants,
                         optarg);
    return EXIT_OK;
}

static int refuse(const struct command *command, enum cli_operands operands, const char *word)
{
    return cli_usage(
        command, "There is no option %.*s.%s", (int)strcspn(word, "="), word,
        operands == OPERANDS_END_OPTIONS ? " Options of the script come after its name." : "");
}

int cli_read_options(const struct command *command, enum cli_operands operands, int argc,
                     char **argv, void *options)
{
    struct getopt_tables tables = {0};
    int code, count = 0;
    fill_tables(command->options, operands, &tables);
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, tables.letters, tables.longs, NULL)) != -1) {
        /* The word that held the option; a value in a word of its own comes after it. */
        const char *word = argv[optind - 1];
        const struct cli_option *option = option_of(command->options, code);
        if (code == 1) {
            argv[++count] = optarg;
            continue;
        }
        if (code == '?' && optopt >= FIRST_LONG)
            return cli_usage(command, "%.*s takes no value.", (int)strcspn(word, "="), word);
        if (code == '?')
            return refuse(command, operands, word);
        if (code == ':') {
            option = option_of(command->options, optopt);
            return cli_usage(command, "--%s needs a value: %s.", option->name, option->wants);
        }
        const char *name = code == LONG_HELP ? "help" : option ? option->name : "";
        if (option && option->value && optarg == word)
            word = argv[optind - 2];
        if (code >= FIRST_LONG && strcspn(word, "=") != strlen("--") + strlen(name))
            return refuse(command, operands, word);
        if (!option) {
            cli_print_help(command);
            return CLI_HELP_SHOWN;
        }
        int usage = take_value(command, option, options);
        if (usage)
            return usage;
    }
    while (optind < argc)
        argv[++count] = argv[optind++];
    argv[++count] = NULL;
    return EXIT_OK;
}

/* ---- help ------------------------------------------------------------------------------------ */

/* "--max-steps N" or "-q, --quiet"; returns its columns. */
static int print_name(const struct cli_option *option, char *text, size_t bytes)
{
    char letter[8] = "";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    return snprintf(text, bytes, "%s--%s%s%s", letter, option->name, option->value ? " " : "",
                    option->value ? option->value : "");
}

void cli_print_help(const struct command *command)
{
    char name[64];
    int widest = 0;
    printf("usage: %s\n\n%s\n", command->synopsis, command->about);
    for (const struct cli_option *o = command->options; o && o->name; o++) {
        int width = print_name(o, name, sizeof name);
        widest = width > widest ? width : widest;
    }
    for (const struct cli_option *o = command->options; o && o->name; o++) {
        print_name(o, name, sizeof name);
        printf("  %-*s  ", widest, name);
        for (const char *line = o->help; *line;) {
            int length = (int)strcspn(line, "\n");
            printf("%.*s\n", length, line);
            line += length + (line[length] == '\n');
            if (*line)
                printf("%*s", widest + 4, "");
        }
    }
    printf("%s%s", command->options ? "\n" : "", command->examples);
}
