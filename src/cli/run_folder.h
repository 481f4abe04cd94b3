/* run_folder.h: where a run's files go: logs/<run_name>/. A name that exists is never overwritten.
 */
#ifndef LEAT_CLI_RUN_FOLDER_H
#define LEAT_CLI_RUN_FOLDER_H

#include "base/err.h"

struct run_folder {
    char *path;     /* owned; made, 0700 */
    char *name;     /* owned; the run's name */
    char note[512]; /* a sentence for the end when the folder is not the one asked for, else "" */
};

/* Makes the folder. `name` NULL: made from `script` and the time, with -2, -3 ... when taken. A
 * name that the user gave and that exists is an error (-EEXIST). When `logs_dir` cannot be written,
 * the folder is made under the temporary folder instead and `note` says so: the training is worth
 * more than the place of its report. */
int run_folder_make(const char *logs_dir, const char *name, const char *script,
                    struct run_folder *ret_folder, struct leat_err *err);
void run_folder_done(struct run_folder *folder);

#endif
