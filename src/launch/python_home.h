/* python_home.h: finds leat's Python package and the user's Python.
 *
 * The two are independent: the extension is abi3, so one copy of the package works in every
 * interpreter, and that interpreter needs no leat installed.
 */
#ifndef LEAT_LAUNCH_PYTHON_HOME_H
#define LEAT_LAUNCH_PYTHON_HOME_H

#include "base/err.h"

/* The folder of the `leat` package: it holds _record.abi3.so and _inject/sitecustomize.py. Looked
 * for next to this executable (build tree, `make install`, wheel), or in LEAT_PYTHON_DIR.
 * The path is absolute and the caller's to mem_free. 0, or -ENOENT with a sentence. */
int python_home_find(char **ret_package_dir, struct leat_err *err);

/* Puts the package's _inject folder at the front of PYTHONPATH of this process, for the exec that
 * follows. Never adds an empty element, which would mean the current folder. 0 or a negative errno.
 */
int python_home_inject(const char *inject_dir);

/* The Python that a shell would start: python3 on PATH, else python. An activated virtual
 * environment is first on PATH. The path is the caller's to mem_free. 0, -ENOENT, -ENOMEM. */
int python_find(char **ret_path);
/* The Python the user names: a path as it stands, a bare word as PATH has it; NULL: python_find. */
int python_find_named(const char *name, char **ret_path);

#endif
