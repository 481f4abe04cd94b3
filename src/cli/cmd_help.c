/* cmd_help.c: `leat help [COMMAND]`, and what `leat` alone prints. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static int run(int argc, char **argv)
{
    int usage = cli_read_options(&command_help, OPERANDS_ANYWHERE, argc, argv, NULL);
    if (usage)
        return usage == CLI_HELP_SHOWN ? EXIT_OK : usage;
    if (argv[1]) {
        const struct command *command = command_find(argv[1]);
        if (command) {
            cli_print_help(command);
            return EXIT_OK;
        }
        const struct command *near = command_suggest(argv[1]);
        if (near)
            return cli_usage(&command_help, "There is no command \"%s\". Did you mean \"%s\"?",
                             argv[1], near->name);
        return cli_usage(&command_help, "There is no command \"%s\".", argv[1]);
    }
    puts("leat finds why a PyTorch training run starves its GPU, and what to change.\n"
         "\n"
         "  leat run train.py         run it; read where its time goes\n"
         "  leat bench train.py       measure its loader; get the best settings\n"
         "  leat compare before after check that a change helped\n"
         "\n"
         "Commands:");
    for (size_t i = 0; commands[i]; i++)
        printf("  %-9s %s\n", commands[i]->name, commands[i]->summary);
    puts("\n"
         "  leat COMMAND --help       options and examples\n"
         "  leat --version            the version\n"
         "\n"
         "Start with: leat run train.py");
    return EXIT_OK;
}

const struct command command_help = {
    .name = "help",
    .summary = "this overview, or the help of one command",
    .synopsis = "leat help [COMMAND]",
    .about = "Prints the overview, or what a command does, its options and examples.\n",
    .examples = "Examples:\n"
                "  leat help\n"
                "  leat help compare\n",
    .run = run,
};
