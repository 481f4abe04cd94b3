/* test_check.c: `leat check`, run as a user would, with other Pythons or none, other rights, other
 * places of installation. Its help and usage messages are transcripts in tests/cli. */
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

/* Runs `leat check ARGUMENTS`, in text and as JSON, which it returns, the caller's to decref. The
 * text must be narrow; both must end with `status`. */
static json_t *check(int status, const char *environment, const char *arguments)
{
    assert_int_equal(run(text, sizeof text, "%s %s check %s", environment, leat(), arguments),
                     status);
    is_narrow(text);
    assert_int_equal(
        run(text, sizeof text, "%s %s check --json %s", environment, leat(), arguments), status);
    return checked(text);
}

static void assert_state(const json_t *all, const char *name, const char *state)
{
    assert_string_equal(json_find_text(item(all, name), "state", ""), state);
}

/* The text of the item quotes what Python printed. */
static void assert_quotes(const json_t *all, const char *name, const char *printed)
{
    const char *sentence = json_find_text(item(all, name), "text", "");
    if (!strstr(sentence, printed))
        fail_msg("\"%s\" is not in: %s", printed, sentence);
}

static void without_python(void **state)
{
    json_t *all = check(1, "PATH=/nowhere", "");
    assert_true(json_is_false(json_object_get(all, "works")));
    assert_state(all, "python", "missing");
    assert_state(all, "torch", "missing");
    json_decref(all);
    all = check(1, "", "--python ./none");
    assert_state(all, "python", "missing");
    assert_quotes(all, "python", "./none");
    json_decref(all);
}

/* Runs `leat check` with a python3 that answers every call with `answer`. */
static json_t *check_with_python(int status, const char *name, const char *answer)
{
    char environment[4096];
    make_python(name, answer);
    snprintf(environment, sizeof environment, "PATH=%s/%s", folder, name);
    return check(status, environment, "");
}

static void a_known_python(void **state)
{
    json_t *all = check_with_python(0, "good",
                                    "echo version=3.12.4; echo torch=2.9.1+cu130; "
                                    "echo torch_cuda=13.0; echo loaded=1");
    assert_true(json_is_true(json_object_get(all, "works")));
    assert_string_equal(json_find_text(all, "next", ""), "leat run train.py");
    assert_string_equal(json_find_text(item(all, "python"), "facts.version", ""), "3.12.4");
    assert_string_equal(json_find_text(item(all, "torch"), "facts.version", ""), "2.9.1+cu130");
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

static void unusable_pythons(void **state)
{
    json_t *all = check_with_python(1, "old", "echo version=3.8.18");
    assert_state(all, "python", "missing");
    assert_string_equal(json_find_text(item(all, "python"), "facts.version", ""), "3.8.18");
    json_decref(all);

    all = check_with_python(0, "bare", "echo version=3.9.0; echo loaded=1");
    assert_state(all, "python", "ok");
    assert_state(all, "torch", "missing");
    json_decref(all);

    all = check_with_python(0, "ancient", "echo version=3.9.0; echo torch=1.13.1; echo loaded=1");
    assert_state(all, "torch", "limited");
    json_decref(all);

    all = check_with_python(1, "broken",
                            "echo 'first' >&2; echo 'ImportError: no module named encodings' >&2; "
                            "exit 1");
    assert_state(all, "python", "missing");
    assert_quotes(all, "python", "ImportError: no module named encodings");
    json_decref(all);

    /* The extension is refused: leat run could not record anything. */
    all = check_with_python(1, "foreign",
                            "case \"$2\" in *_record*) echo 'OSError: wrong ELF class' >&2; "
                            "exit 1;; *) echo version=3.12.4;; esac");
    assert_state(all, "leat", "missing");
    assert_quotes(all, "leat", "OSError: wrong ELF class");
    json_decref(all);

    all = check_with_python(1, "loud", "exec /bin/dd if=/dev/zero bs=1000 count=999");
    assert_state(all, "python", "missing");
    json_decref(all);
}

static void without_the_package(void **state)
{
    char environment[4096];
    snprintf(environment, sizeof environment, "PATH=%s/good LEAT_PYTHON_DIR=/nowhere", folder);
    json_t *all = check(1, environment, "");
    assert_state(all, "leat", "missing");
    assert_quotes(all, "leat", "/nowhere");
    json_decref(all);
}

/* Each folder in which an installation may put the package, relative to a copy of the executable.
 */
static void places_of_installation(void **state)
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

static void few_open_files(void **state)
{
    char environment[4096];
    snprintf(environment, sizeof environment, "ulimit -n 211; PATH=%s/good", folder);
    json_t *all = check(0, environment, "");
    assert_state(all, "open files", "limited");
    assert_true(json_find_number(item(all, "open files"), "facts.soft", -1) == 211);
    json_decref(all);
}

/* Every item that is not ok has a hint. Returns how many such items there were. */
static int ways(const char *environment)
{
    int count = 0;
    run(text, sizeof text, "%s %s check --json", environment, leat());
    json_t *all = checked(text), *row;
    size_t i;
    json_array_foreach (json_object_get(all, "items"), i, row) {
        const char *way = json_find_text(row, "way_out", "");
        int ok = strcmp(json_find_text(row, "state", ""), "ok") == 0;
        if (ok != !*way)
            fail_msg("%s: %s: way out \"%s\"", environment, json_find_text(row, "name", ""), way);
        count += !ok;
    }
    json_decref(all);
    return count;
}

static void every_problem_has_a_way(void **state)
{
    static const struct {
        const char *name, *answer;
    } pythons[] = {
        {"fit",     "echo version=3.12.4; echo torch=2.9.1; echo loaded=1"                     },
        {"bare",    "echo version=3.9.0; echo loaded=1"                                        },
        {"old",     "echo version=3.8.18"                                                      },
        {"ancient", "echo version=3.9.0; echo torch=1.13.1; echo loaded=1"                     },
        {"broken",  "exit 1"                                                                   },
        {"unfit",   "case \"$2\" in *_record*) exit 1;; *) echo version=3.12.4;; esac"         },
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
        cmocka_unit_test(without_python),         cmocka_unit_test(a_known_python),
        cmocka_unit_test(unusable_pythons),       cmocka_unit_test(without_the_package),
        cmocka_unit_test(places_of_installation), cmocka_unit_test(without_rights),
        cmocka_unit_test(few_open_files),         cmocka_unit_test(every_problem_has_a_way),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
