/* test_check.c: `leat check`, run as a user would, in environments made for it: other Pythons,
 * none, other rights, other places of installation. Its help and usage are golden transcripts. */
#include "unit/observe/observe_testing.h"

#include "base/json.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/leat-check-XXXXXX"; /* for all that a test makes */

static const char *leat(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "'%s/leat'", getenv("LEAT_BUILD")); /* a blank is fine */
    return path;
}

/* Runs a shell command in the folder and returns its exit status; both streams go to `ret_text`. */
static int run(char *ret_text, size_t bytes, const char *fmt, ...)
{
    char command[16384];
    int head = snprintf(command, sizeof command, "cd %s && exec 2>&1; ", folder);
    va_list args;
    va_start(args, fmt);
    vsnprintf(command + head, sizeof command - (size_t)head, fmt, args);
    va_end(args);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t used = fread(ret_text, 1, bytes - 1, pipe);
    ret_text[used] = 0;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void shell(const char *fmt, ...)
{
    char command[16384], text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    if (run(text, sizeof text, "%s", command) != 0)
        fail_msg("%s: %s", command, text);
}

/* A program python3 in <folder>/<name> that answers every call with `answer`. */
static void make_python(const char *name, const char *answer)
{
    char path[4096];
    shell("mkdir -p %s", name);
    snprintf(path, sizeof path, "%s/%s/python3", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", answer);
    fclose(file);
    assert_int_equal(chmod(path, 0755), 0);
}

/* Lines are wrapped where they must be, so all white space counts as one blank. */
static void holds(const char *whole, const char *part)
{
    static char flat[65536];
    size_t used = 0;
    for (const char *at = whole; *at && used + 2 < sizeof flat;) {
        size_t blank = strspn(at, " \n");
        flat[used++] = blank ? ' ' : *at;
        at += blank ? blank : 1;
    }
    flat[used] = 0;
    if (!strstr(flat, part))
        fail_msg("\"%s\" is not in:\n%s", part, whole);
}

static void is_narrow(const char *text)
{
    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        if (end - line >= 80)
            fail_msg("too wide: %.*s", (int)(end - line), line);
        line = *end ? end + 1 : end;
    }
}

static json_t *checked(const char *text)
{
    json_t *all = NULL;
    struct leat_err err = {0};
    if (json_parse(text, strlen(text), &all, &err) < 0)
        fail_msg("%s\n%s", err.text, text);
    return all;
}

static const json_t *item(const json_t *all, const char *name)
{
    size_t i;
    json_t *row;
    json_array_foreach (json_object_get(all, "items"), i, row) {
        if (strcmp(json_find_text(row, "name", ""), name) == 0)
            return row;
    }
    fail_msg("there is no item %s", name);
    return NULL;
}

static char text[65536];

static void no_python(void **state)
{
    assert_int_equal(run(text, sizeof text, "PATH=/nowhere %s check", leat()), 1);
    assert_int_equal(strncmp(text, "leat run does not work here; missing: python, torch", 51), 0);
    holds(text, "neither python3 nor python on PATH");
    holds(text, " Next: leat check --python ");
    is_narrow(text);
    assert_int_equal(run(text, sizeof text, "%s check --python ./none", leat()), 1);
    holds(text, "There is no program ./none.");
}

static void known_python(void **state)
{
    make_python("good", "echo version=3.12.4; echo torch=2.9.1+cu130; echo torch_cuda=13.0; "
                        "echo loaded=1");
    assert_int_equal(run(text, sizeof text, "PATH=%s/good %s check", folder, leat()), 0);
    assert_int_equal(strncmp(text, "leat run works here", 19), 0);
    holds(text, "/good/python3, version 3.12.4 ");
    holds(text, "2.9.1+cu130, built for CUDA 13.0 ");
    holds(text, " Next: leat run train.py ");
    is_narrow(text);

    int status = run(text, sizeof text, "PATH=%s/good %s check --json", folder, leat());
    assert_int_equal(status, 0);
    json_t *all = checked(text);
    assert_true(json_is_true(json_object_get(all, "works")));
    assert_string_equal(json_find_text(item(all, "python"), "facts.version", ""), "3.12.4");
    assert_string_equal(json_find_text(item(all, "torch"), "facts.cuda", ""), "13.0");
    const char *names[] = {"python",   "torch", "leat",   "gpu",       "nvml", "cgroup",
                           "/dev/shm", "memfd", "logs",   "pressure",  "bpf",  "btf",
                           "rights",   "perf",  "ptrace", "open files"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *word = json_find_text(item(all, names[i]), "state", "");
        assert_true(!strcmp(word, "ok") || !strcmp(word, "limited") || !strcmp(word, "missing"));
        assert_true(strlen(json_find_text(item(all, names[i]), "text", "")) > 3);
    }
    json_decref(all);
}

static void wrong_pythons(void **state)
{
    make_python("old", "echo version=3.8.18");
    assert_int_equal(run(text, sizeof text, "PATH=%s/old %s check", folder, leat()), 1);
    holds(text, "3.9 or later");

    make_python("bare", "echo version=3.9.0; echo loaded=1");
    assert_int_equal(run(text, sizeof text, "PATH=%s/bare %s check", folder, leat()), 0);
    holds(text, "leat run works here, but has no verdict without torch; missing: torch");

    make_python("ancient", "echo version=3.9.0; echo torch=1.13.1; echo loaded=1");
    assert_int_equal(run(text, sizeof text, "PATH=%s/ancient %s check", folder, leat()), 0);
    holds(text, "leat knows 2.0 and later");

    make_python("broken", "echo 'first' >&2; echo 'ImportError: no module named encodings' >&2; "
                          "exit 1");
    assert_int_equal(run(text, sizeof text, "PATH=%s/broken %s check", folder, leat()), 1);
    holds(text, "does not run: ImportError: no module");

    /* The extension is refused: leat run could not record anything. */
    make_python("foreign", "case \"$2\" in *_record*) echo 'OSError: wrong ELF class' >&2; exit 1;; "
                           "*) echo version=3.12.4;; esac");
    assert_int_equal(run(text, sizeof text, "PATH=%s/foreign %s check", folder, leat()), 1);
    holds(text, "wrong ELF class");

    /* Floods both streams with what is no text. */
    make_python("loud", "exec /bin/dd if=/dev/zero bs=1000 count=999");
    assert_int_equal(run(text, sizeof text, "PATH=%s/loud %s check", folder, leat()), 1);
    is_narrow(text);
}

static void no_python_part(void **state)
{
    assert_int_equal(run(text, sizeof text, "PATH=%s/good LEAT_PYTHON_DIR=/nowhere %s check --json",
                         folder, leat()),
                     1);
    json_t *all = checked(text);
    assert_string_equal(json_find_text(item(all, "leat"), "state", ""), "missing");
    holds(json_find_text(item(all, "leat"), "text", ""), "LEAT_PYTHON_DIR is /nowhere");
    json_decref(all);
}

/* Each place in which an installation may put the package, seen from a copy of the executable. */
static void places(void **state)
{
    const char *where[] = {"bin/python/leat",
                           "lib/leat/python/leat",
                           "lib/python3.12/site-packages/leat",
                           "lib/python3/dist-packages/leat",
                           "lib64/python3.9/site-packages/leat",
                           "local/lib/python3.11/dist-packages/leat"};
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        char expected[4096];
        shell("rm -rf home && mkdir -p home/bin home/%s/_inject && cp %s home/bin/leat", where[i],
              leat());
        const char *command = "PATH=%s/good home/bin/leat check --json";
        shell("touch home/%s/_record.abi3.so", where[i]);
        assert_int_equal(run(text, sizeof text, command, folder), 1); /* only half of it */
        shell("touch home/%s/_inject/sitecustomize.py", where[i]);
        assert_int_equal(run(text, sizeof text, command, folder), 0);
        json_t *all = checked(text);
        snprintf(expected, sizeof expected, "%s/home/%s", folder, where[i]);
        assert_string_equal(json_find_text(item(all, "leat"), "facts.folder", ""), expected);
        json_decref(all);
        shell("mv home/%s elsewhere", where[i]);
        run(text, sizeof text, "PATH=%s/good LEAT_PYTHON_DIR=elsewhere home/bin/leat check --json",
            folder);
        all = checked(text);
        snprintf(expected, sizeof expected, "%s/elsewhere", folder);
        assert_string_equal(json_find_text(item(all, "leat"), "facts.folder", ""), expected);
        json_decref(all);
        shell("rm -rf elsewhere");
    }
}

static void without_rights(void **state)
{
    if (geteuid() != 0 || access("/usr/bin/setpriv", X_OK) != 0)
        skip();
    const char *drop = "/usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups";
    shell("chmod 755 . && mkdir -p bin && cp %s bin/leat && chmod 755 bin/leat", leat());
    int status = run(text, sizeof text, "PATH=%s/good %s bin/leat check --json", folder, drop);
    assert_int_equal(status, 1); /* beside this copy there is no Python part */
    json_t *all = checked(text);
    assert_string_equal(json_find_text(item(all, "rights"), "state", ""), "limited");
    assert_true(json_find_number(item(all, "rights"), "facts.uid", -1) == 65534);
    assert_string_equal(json_find_text(item(all, "bpf"), "state", ""), "missing");
    assert_string_equal(json_find_text(item(all, "logs"), "state", ""), "missing");
    json_decref(all);
}

static void few_files(void **state)
{
    run(text, sizeof text, "ulimit -n 211; PATH=%s/good %s check", folder, leat());
    holds(text, "limited open files At most 211, can be raised to 211 ");
}

/* bpf says in its text what to do, since that depends on why it was refused (bpf_try.c). */
static int advises(const char *what)
{
    static const char *const advice[] = {
        "run as root", "start the container", "run leat outside", "booted with",
        "ulimit -l",   "kernel log",          "needs CONFIG_",    "Loading a program fails"};
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++)
        if (strstr(what, advice[i]))
            return 1;
    return 0;
}

/* Whatever is not as it should be comes with how to get it, in text and JSON. Returns how many
 * such items there were. */
static int ways(const char *environment)
{
    static char human[65536];
    int count = 0;
    run(human, sizeof human, "%s %s check", environment, leat());
    is_narrow(human);
    run(text, sizeof text, "%s %s check --json", environment, leat());
    json_t *all = checked(text), *row;
    size_t i;
    json_array_foreach (json_object_get(all, "items"), i, row) {
        const char *name = json_find_text(row, "name", ""), *what = json_find_text(row, "text", "");
        const char *way = json_find_text(row, "way_out", "");
        if (strcmp(json_find_text(row, "state", ""), "ok") == 0)
            continue;
        count++;
        if (!*way && !(strcmp(name, "bpf") == 0 && advises(what)))
            fail_msg("%s: %s has no way out: %s", environment, name, what);
        if (*way && !strpbrk(way, "/")) /* a long path may be broken at a slash */
            holds(human, way);
    }
    json_decref(all);
    return count;
}

static void what_is_missing_has_a_way(void **state)
{
    static const struct {
        const char *name, *answer;
    } pythons[] = {
        {"fit",     "echo version=3.12.4; echo torch=2.9.1; echo loaded=1"                     },
        {"bare",    "echo version=3.9.0; echo loaded=1"                                        },
        {"old",     "echo version=3.8.18"                                                      },
        {"ancient", "echo version=3.9.0; echo torch=1.13.1; echo loaded=1"                     },
        {"broken",  "exit 1"                                                                   },
        {"unfit",   "case \"$2\" in *_record*) exit 1;; *) echo version=3.12.4;; esac"           },
        {"grumpy",  "echo version=3.12.4; echo torch=2.9.1; echo loaded=1; echo deprecated >&2"},
    };
    char environment[4096];
    assert_true(ways("PATH=/nowhere") >= 3); /* python, torch, leat */
    for (size_t i = 0; i < sizeof pythons / sizeof *pythons; i++) {
        make_python(pythons[i].name, pythons[i].answer);
        snprintf(environment, sizeof environment, "PATH=%s/%s", folder, pythons[i].name);
        assert_true(ways(environment) >= (i > 0));
    }
    snprintf(environment, sizeof environment, "PATH=%s/fit LEAT_PYTHON_DIR=/nowhere", folder);
    assert_true(ways(environment) >= 1);
    snprintf(environment, sizeof environment, "ulimit -n 211; PATH=%s/fit", folder);
    assert_true(ways(environment) >= 1);
}

static int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    char command[4096];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_python),     cmocka_unit_test(known_python),
        cmocka_unit_test(wrong_pythons), cmocka_unit_test(no_python_part),
        cmocka_unit_test(places),        cmocka_unit_test(without_rights),
        cmocka_unit_test(few_files),     cmocka_unit_test(what_is_missing_has_a_way),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
