/* main.c: finds the command and runs it. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc < 2) {
        command_help.run(1, (char *[]){"help", NULL});
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("leat %s\n", LEAT_VERSION);
        return EXIT_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    const struct command *command = command_find(word);
    if (command)
        return command->run(argc - 1, argv + 1);
    const struct command *near = command_suggest(word);
    fprintf(stderr, "leat: There is no command \"%s\".", word);
    if (near)
        fprintf(stderr, " Did you mean \"leat %s\"?\n", near->name);
    else
        fprintf(stderr, " See: leat help\n");
    return EXIT_USAGE;
}
