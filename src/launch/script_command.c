/* script_command.c: see script_command.h. */
#include "launch/script_command.h"

#include "base/mem.h"
#include "launch/python_home.h"

#include <string.h>
#include <unistd.h>

int script_command_is_script(const char *word)
{
    size_t n = strlen(word);
    return n > 3 && strcmp(word + n - 3, ".py") == 0;
}

static int find_python(const char *name, const char *script, char **ret_python,
                       struct leat_err *err)
{
    if (access(script, R_OK) < 0)
        return err_set(err, -errno, "%s cannot be read: %s.", script, err_text(errno));
    int result = python_find(ret_python);
    if (result < 0)
        return err_set(err, result,
                       "No python3 was found on PATH to run %s. Activate its environment, or "
                       "name the interpreter: leat %s -- /path/to/python %s.",
                       script, name, script);
    return 0;
}

int script_command_plan(const char *name, char **words, struct script_command *ret_command,
                        struct leat_err *err)
{
    struct script_command made = {0};
    size_t count = 0;
    while (words[count])
        count++;
    made.argv = mem_alloc_array(count + 2, sizeof *made.argv);
    if (!made.argv)
        return err_set(err, -ENOMEM, "Out of memory.");
    int script = script_command_is_script(words[0]);
    int result = script ? find_python(name, words[0], &made.python, err) : 0;
    if (result < 0) {
        script_command_done(&made);
        return result;
    }
    made.argv[0] = made.python;
    memcpy(made.argv + script, words, count * sizeof *words);
    *ret_command = made;
    return 0;
}

void script_command_done(struct script_command *command)
{
    mem_free(command->argv);
    mem_free(command->python);
    *command = (struct script_command){0};
}
