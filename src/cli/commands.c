/* commands.c: the table of commands, and the output functions they share. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct command *const commands[] = {
    &command_run,  &command_view, &command_compare, &command_bench, &command_check,
    &command_help, NULL,
};

const struct command *command_find(const char *name)
{
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* Levenshtein distance, for words of a command's length. */
static size_t distance(const char *a, const char *b)
{
    size_t row[32], n = strlen(b);
    if (n >= 32 || strlen(a) >= 32)
        return 32;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[n];
}

const struct command *command_suggest(const char *typo)
{
    const struct command *best = NULL;
    size_t nearest = 3; /* at most two mistakes */
    for (size_t i = 0; commands[i]; i++) {
        size_t d = distance(typo, commands[i]->name);
        if (d < nearest) {
            nearest = d;
            best = commands[i];
        }
    }
    return best;
}

int cli_usage(const struct command *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "leat %s: ", command->name);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\nTry: leat %s --help\n", command->name);
    va_end(args);
    return EXIT_USAGE;
}

int cli_fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("leat: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_FAILED;
}

static int print(const char *text)
{
    if (!text)
        return cli_fail("Out of memory.");
    fputs(text, stdout);
    if (fflush(stdout) != 0)
        return cli_fail("The results cannot be written: %s.", err_text(errno));
    return EXIT_OK;
}

int cli_print_json(const json_t *value)
{
    char *text = value ? json_to_text(value) : NULL;
    int status = print(text);
    if (status == EXIT_OK)
        status = print("\n");
    free(text);
    return status;
}

int cli_print_text(struct str *text)
{
    int status = print(text->failed ? NULL : str_text(text));
    str_done(text);
    return status;
}

int cli_colour(int fd)
{
    const char *off = getenv("NO_COLOR");
    return isatty(fd) && !(off && *off);
}
