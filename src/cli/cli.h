/* cli.h: the commands. Each is one file with one function and one row in commands.c; main.c only
 * finds the row. A command gets its own argv (argv[0] is its name), prints its results on stdout
 * and its complaints on stderr as one sentence, and returns the exit status.
 *
 * Exit status: 0 fine, 1 failed, 2 usage, 3 a finding or regression at or above --fail-on; `run`
 * returns the training's own.
 */
#ifndef LEAT_CLI_CLI_H
#define LEAT_CLI_CLI_H

#include "base/json.h"
#include "base/str.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_FOUND = 3 };

#ifndef LEAT_VERSION
#error "the build gives LEAT_VERSION"
#endif

struct command {
    const char *name;
    const char *summary; /* one line for `leat help` */
    const char *usage;   /* synopsis, options and worked examples: what --help prints */
    int (*run)(int argc, char **argv);
};

extern const struct command command_run, command_view, command_compare, command_bench,
    command_check, command_help;

const struct command *command_find(const char *name);    /* exact match; NULL otherwise */
const struct command *command_suggest(const char *typo); /* nearest by edit distance, or NULL */
extern const struct command *const commands[];           /* ended by NULL */

/* Prints "leat NAME: <sentence>" and the way to the help; returns EXIT_USAGE. */
int cli_usage(const struct command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints "leat: <sentence>"; returns EXIT_FAILED. */
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* 1 when argv[*i] is the option `name`, as "--name=value" or with the value in the next word, which
 * is then taken; *ret_value is NULL when there is none. 0 when it is another word. */
int cli_option(const char *name, int argc, char **argv, int *i, const char **ret_value);
/* Results, on stdout; EXIT_OK, or EXIT_FAILED after a sentence. The text is freed. */
int cli_print_json(const json_t *value);
int cli_print_text(struct str *text);
/* 1 when `fd` is a terminal and NO_COLOR is unset. */
int cli_colour(int fd);

#endif
