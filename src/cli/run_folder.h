/* run_folder.h: makes the folder of a run, logs/<run_name>/. An existing one is never overwritten.
 */
#ifndef LEAT_CLI_RUN_FOLDER_H
#define LEAT_CLI_RUN_FOLDER_H

#include "base/err.h"

struct run_folder {
    char *path;     /* owned; made, 0700 */
    char *name;     /* owned; the run's name */
    char note[512]; /* a sentence for the end when the folder is not the one asked for, else "" */
};

/* Makes the folder. Without a `name` it is named after `script` and the time, with -2, -3 ... if
 * that exists. A given name that exists is an error (-EEXIST). When `logs_dir` cannot be written,
 * the folder is made in the temporary folder, and `note` reports it, so that the training still
 * runs.
 */
int run_folder_make(const char *logs_dir, const char *name, const char *script,
                    struct run_folder *ret_folder, struct leat_err *err);
void run_folder_done(struct run_folder *folder);

#endif
