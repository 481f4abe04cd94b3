/* option_table.h: each command describes its options in one table, from which come the reading of
 * argv (getopt_long) and the options in --help. */
#ifndef LEAT_CLI_OPTION_TABLE_H
#define LEAT_CLI_OPTION_TABLE_H

#include <stddef.h>

struct command;

struct cli_option {
    const char *name; /* "max-steps"; NULL ends a table */
    char letter;      /* 'q', or 0 for none */
    size_t offset;    /* of its field in the options of the command */
    const char *help; /* lines separated by '\n' */
    /* For an option with a value: */
    const char *value; /* its name in the help, "N"; NULL: a flag, which sets an int to 1 */
    const char *wants; /* what it is, for messages: "a whole number above 0" */
    /* Reads the value into the field; negative when invalid. NULL: the field is a const char *, and
     * the value must not be empty. */
    int (*parse)(const char *value, void *field);
};
#define OPTION_FLAG(name, letter, type, field, help)                                               \
    {                                                                                              \
        name, letter, offsetof(type, field), help, NULL, NULL, NULL                                \
    }
#define OPTION_VALUE(name, type, field, value, parse, wants, help)                                 \
    {                                                                                              \
        name, 0, offsetof(type, field), help, value, wants, parse                                  \
    }
#define OPTIONS_END                                                                                \
    {                                                                                              \
        0                                                                                          \
    }

/* Whether options may stand between and after the operands (`leat view RUN --json`), or end at the
 * first operand because the rest belongs to the training (`leat run train.py --epochs 3`). "--"
 * ends them in both cases. */
enum cli_operands { OPERANDS_ANYWHERE, OPERANDS_END_OPTIONS };

enum { CLI_HELP_SHOWN = -1 };

/* Reads argv into *options (zeroed, or with defaults). Names are exact: getopt_long's abbreviations
 * are refused, so that a new option cannot break a script. The operands are put at argv[1] on,
 * ended by NULL. Returns EXIT_OK, EXIT_USAGE after a message, or CLI_HELP_SHOWN after --help. */
int cli_read_options(const struct command *command, enum cli_operands operands, int argc,
                     char **argv, void *options);

/* What `leat COMMAND --help` prints. */
void cli_print_help(const struct command *command);

#endif
