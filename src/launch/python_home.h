/* python_home.h: where leat's Python part lies, and which Python is the user's.
 *
 * The two are independent: the extension is abi3, so one copy of the package serves whatever
 * interpreter the user has, and that interpreter needs no leat installed.
 */
#ifndef LEAT_CLI_PYTHON_HOME_H
#define LEAT_CLI_PYTHON_HOME_H

#include "base/err.h"

/* The folder of the `leat` package: it holds _record.abi3.so and _inject/sitecustomize.py. Looked
 * for next to this executable (build tree, `make install`, wheel), or where LEAT_PYTHON_DIR says.
 * The path is absolute and the caller's to mem_free. 0 or -ENOENT, and then the sentence names what
 * was looked for. */
int python_home_find(char **ret_package_dir, struct leat_err *err);

/* The same for an executable in `exe_dir`, with `override` in place of LEAT_PYTHON_DIR (may be
 * NULL). */
int python_home_find_near(const char *exe_dir, const char *override, char **ret_package_dir,
                          struct leat_err *err);

/* Puts the package's _inject folder at the front of this process's PYTHONPATH, for what it is about
 * to become. An empty part would mean the current folder, so none is made. 0 or a negative errno.
 */
int python_home_inject(const char *inject_dir);

/* The Python that a shell would start: python3 on PATH, else python. An activated virtual
 * environment is first on PATH. The path is the caller's to mem_free. 0, -ENOENT, -ENOMEM. */
int python_find(char **ret_path);
/* The Python the user names: a path as it stands, a bare word as PATH has it; NULL: python_find. */
int python_find_named(const char *name, char **ret_path);

#endif
