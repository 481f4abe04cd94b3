/* script_command.h: the command to run for the user's words; a script gets its Python. */
#ifndef LEAT_LAUNCH_SCRIPT_COMMAND_H
#define LEAT_LAUNCH_SCRIPT_COMMAND_H

#include "base/err.h"

struct script_command {
    char **argv;  /* owned array, ended by NULL; the words are the caller's */
    char *python; /* owned; argv[0] of a script; NULL for anything else */
};

/* "train.py ..." becomes "python3 train.py ..."; anything else is run unchanged. `name` is the
 * leat command, for error messages. */
int script_command_plan(const char *name, char **words, struct script_command *ret_command,
                        struct leat_err *err);
void script_command_done(struct script_command *command);
int script_command_is_script(const char *word); /* 1 when it ends in .py */

#endif
