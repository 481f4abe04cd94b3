/* cli.h: the commands. Each is one file with one function and one row in commands.c, which main.c
 * looks up. A command gets its own argv (argv[0] is its name), prints results on stdout and errors
 * on stderr as one sentence, and returns the exit status.
 *
 * Exit status: 0 success, 1 failure, 2 usage error, 3 a finding or regression at or above
 * --fail-on; `run` returns the training's own.
 */
#ifndef LEAT_CLI_CLI_H
#define LEAT_CLI_CLI_H

#include "base/json.h"
#include "base/str.h"
#include "cli/option_table.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_FOUND = 3 };

#ifndef LEAT_VERSION
#error "the build gives LEAT_VERSION"
#endif

struct command {
    const char *name;
    const char *summary; /* one line for `leat help` */
    /* The parts of --help: the command line, what it does, the options, examples and the rest. */
    const char *synopsis, *about;
    const struct cli_option *options; /* NULL: none */
    const char *examples;
    int (*run)(int argc, char **argv);
};

extern const struct command command_run, command_view, command_compare, command_bench,
    command_check, command_help;

const struct command *command_find(const char *name);    /* exact match; NULL otherwise */
const struct command *command_suggest(const char *typo); /* nearest by edit distance, or NULL */
extern const struct command *const commands[];           /* ended by NULL */

/* Prints "leat NAME: <sentence>" and how to get help; returns EXIT_USAGE. */
int cli_usage(const struct command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints "leat: <sentence>"; returns EXIT_FAILED. */
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Results, on stdout; EXIT_OK, or EXIT_FAILED after a sentence. The text is freed. */
int cli_print_json(const json_t *value);
int cli_print_text(struct str *text);
/* 1 when `fd` is a terminal and NO_COLOR is unset. */
int cli_colour(int fd);

#endif
