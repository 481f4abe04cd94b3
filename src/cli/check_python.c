/* check_python.c: the items of `leat check` on the user's Python, its torch, and leat's package.
 *
 * The interpreter is started twice: as it is, to print its version and torch's (torch is not
 * imported: that takes seconds, and its version is in a small file), and with leat's folder
 * injected as `leat run` does it, to load the extension. A broken environment cannot block or flood
 * leat: it has 20 seconds, and its output is cut and untrusted.
 */
#include "cli/check.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/path.h"
#include "launch/python_home.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_S = 20 };

/* Prints "key=value" lines. Runs on Python 2 too, so that a wrong version is reported, not a syntax
 * error. The working folder is removed from sys.path: a folder torch in it is not PyTorch. */
static const char ask_python[] =
    "import sys\n"
    "say = lambda k, v: sys.stdout.write('%s=%s\\n' % (k, v))\n"
    "say('version', '%d.%d.%d' % sys.version_info[:3])\n"
    "say('executable', sys.executable)\n"
    "sys.path = [p for p in sys.path if p]\n"
    "try:\n"
    "    import importlib.util, os, re\n"
    "    spec = importlib.util.find_spec('torch')\n"
    "    if spec and spec.origin:\n"
    "        folder = os.path.dirname(spec.origin)\n"
    "        say('torch_dir', folder)\n"
    "        try:\n"
    "            text = open(os.path.join(folder, 'version.py')).read()\n"
    "        except Exception:\n"
    "            text = ''\n"
    "        found = re.search(r'__version__[^=\\n]*=\\s*[\\'\"]([^\\'\"]+)', text)\n"
    "        if found:\n"
    "            say('torch', found.group(1))\n"
    "        else:\n"
    "            from importlib import metadata\n"
    "            say('torch', metadata.version('torch'))\n"
    "        for key in ('cuda', 'hip'):\n"
    "            found = re.search(r'^%s[^=\\n]*=\\s*[\\'\"]([^\\'\"]+)' % key, text, re.M)\n"
    "            say('torch_' + key, found.group(1) if found else '')\n"
    "except Exception:\n"
    "    pass\n";

static const char load_extension[] =
    "import sys, importlib.util\n"
    "spec = importlib.util.spec_from_file_location('leat._record', sys.argv[1])\n"
    "module = importlib.util.module_from_spec(spec)\n"
    "spec.loader.exec_module(module)\n"
    "sys.stdout.write('loaded=1\\n')\n";

struct answer {
    char out[8192], err[4096]; /* what was printed, cut to fit */
    size_t out_length, err_length;
    int status; /* of waitpid; undefined when timed_out */
    int timed_out;
};

/* In the child: between fork and exec. */
static void exec_python(const char *python, const char *script, const char *argument,
                        const char *inject_dir, int out, int err)
{
    int null = open("/dev/null", O_RDONLY);
    setpgid(0, 0); /* a wrapper may start more processes: all are killed together */
    dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    unsetenv("LEAT_SOCKET"); /* inside a run: record nothing there */
    if (inject_dir)
        python_home_inject(inject_dir);
    execl(python, python, "-c", script, argument, (char *)NULL);
    dprintf(2, "%s\n", err_text(errno));
    _exit(127);
}

/* Reads what is there; returns 0 at the end of the stream. The buffer full, the rest is dropped. */
static int read_some(int fd, char *buffer, size_t bytes, size_t *length)
{
    char scratch[1024];
    ssize_t got = read(fd, scratch, sizeof scratch);
    if (got < 0)
        return errno == EINTR;
    size_t space = bytes - 1 - *length;
    size_t keep = (size_t)got < space ? (size_t)got : space;
    memcpy(buffer + *length, scratch, keep);
    *length += keep;
    buffer[*length] = 0;
    return got > 0;
}

static void read_answer(int out, int err, struct answer *answer)
{
    struct pollfd fds[2] = {
        {.fd = out, .events = POLLIN},
        {.fd = err, .events = POLLIN}
    };
    uint64_t deadline = clock_now_ns() + TIMEOUT_S * NS_PER_S;
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        uint64_t now = clock_now_ns();
        if (now >= deadline) {
            answer->timed_out = 1;
            return;
        }
        if (poll(fds, 2, (int)((deadline - now) / NS_PER_MS) + 1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents && !read_some(out, answer->out, sizeof answer->out, &answer->out_length))
            fds[0].fd = -1;
        if (fds[1].revents && !read_some(err, answer->err, sizeof answer->err, &answer->err_length))
            fds[1].fd = -1;
        fds[0].revents = fds[1].revents = 0;
    }
}

static int ask(const char *python, const char *script, const char *argument, const char *inject_dir,
               struct answer *answer)
{
    memset(answer, 0, sizeof *answer);
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(err, O_CLOEXEC) < 0) {
        close(out[0]);
        close(out[1]);
        return -errno;
    }
    pid_t pid = fork();
    if (pid == 0)
        exec_python(python, script, argument, inject_dir, out[1], err[1]);
    int result = pid < 0 ? -errno : 0;
    close(out[1]);
    close(err[1]);
    if (pid > 0) {
        setpgid(pid, pid); /* in both processes: either may run first */
        read_answer(out[0], err[0], answer);
        if (answer->timed_out)
            kill(-pid, SIGKILL);
        while (waitpid(pid, &answer->status, 0) < 0 && errno == EINTR)
            ;
    }
    close(out[0]);
    close(err[0]);
    return result;
}

/* The value of "key=value" in the answer, or "". */
static const char *value_of(const struct answer *answer, const char *key, char *buffer,
                            size_t bytes)
{
    size_t length = strlen(key);
    buffer[0] = 0;
    for (const char *line = answer->out; *line;) {
        const char *end = strchrnul(line, '\n');
        if (strncmp(line, key, length) == 0 && line[length] == '=')
            snprintf(buffer, bytes, "%.*s", (int)(end - line - (ptrdiff_t)length - 1),
                     line + length + 1);
        line = *end ? end + 1 : end;
    }
    return buffer;
}

/* The last line on stderr: from Python, the exception. */
static const char *last_error_line(struct answer *answer)
{
    char *end = answer->err + answer->err_length;
    while (end > answer->err && (end[-1] == '\n' || end[-1] == ' '))
        *--end = 0;
    char *line = strrchr(answer->err, '\n');
    line = line ? line + 1 : answer->err;
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < 0x20)
            *at = ' ';
    return *line ? line : "it printed no error";
}

static int succeeded(const struct answer *answer)
{
    return !answer->timed_out && WIFEXITED(answer->status) && WEXITSTATUS(answer->status) == 0;
}

/* "3.11.2" as 311; 0 when invalid. */
static int version_number(const char *text)
{
    int major = 0, minor = 0;
    return sscanf(text, "%3d.%3d", &major, &minor) == 2 ? major * 100 + minor : 0;
}

/* Fills the item. Returns 1 when this Python can be used. */
static int fill_python(struct check_item *item, const char *python, struct answer *answer)
{
    char version[64], executable[1024];
    int result = ask(python, ask_python, NULL, NULL, answer);
    value_of(answer, "version", version, sizeof version);
    value_of(answer, "executable", executable, sizeof executable);
    check_fact(item, "path", json_string(python));
    if (result < 0 || !version[0]) {
        check_missing(item, "Choose another one: leat check --python PATH", "%s does not run: %s.",
                      python,
                      result < 0          ? err_text(result)
                      : answer->timed_out ? "no answer within 20 seconds"
                                          : last_error_line(answer));
        return 0;
    }
    check_fact(item, "version", json_string(version));
    check_fact(item, "executable", json_text_or_null(executable[0] ? executable : NULL));
    if (version_number(version) < 309) {
        check_missing(item,
                      "Activate an environment with a newer one, or: leat check --python PATH",
                      "%s is Python %s; leat needs 3.9 or later.", python, version);
        return 0;
    }
    check_ok(item, "%s, version %s", python, version);
    return 1;
}

static void fill_torch(struct check_item *item, const char *python, const struct answer *answer)
{
    char version[128], cuda[64], hip[64], folder[1024], way[256];
    value_of(answer, "torch", version, sizeof version);
    value_of(answer, "torch_cuda", cuda, sizeof cuda);
    value_of(answer, "torch_hip", hip, sizeof hip);
    value_of(answer, "torch_dir", folder, sizeof folder);
    check_fact(item, "version", json_text_or_null(version[0] ? version : NULL));
    check_fact(item, "cuda", json_text_or_null(cuda[0] ? cuda : NULL));
    check_fact(item, "folder", json_text_or_null(folder[0] ? folder : NULL));
    snprintf(way, sizeof way, "%.160s -m pip install torch, or activate its environment", python);
    if (!version[0])
        check_missing(item, way, "This Python has no torch: scripts run, without a verdict.");
    else if (version_number(version) < 200)
        check_limited(item, "Update torch: with older versions some figures are not measured.",
                      "%s; leat supports 2.0 and later.", version);
    else if (cuda[0])
        check_ok(item, "%s, built for CUDA %s", version, cuda);
    else if (hip[0])
        check_ok(item, "%s, built for ROCm %s", version, hip);
    else
        check_ok(item, "%s, a build without CUDA", version);
}

static void fill_leat(struct check_item *item, const char *python)
{
    struct leat_err err = {0};
    char *package = NULL;
    if (python_home_find(&package, &err) < 0) {
        check_missing(item,
                      "make build, or install leat's wheel; LEAT_PYTHON_DIR, if set, names its "
                      "folder",
                      "%s", err.text);
        return;
    }
    check_fact(item, "folder", json_string(package));
    char *extension = path_join(package, "_record.abi3.so", NULL);
    char *inject_dir = path_join(package, "_inject", NULL);
    struct answer answer;
    if (!python)
        check_limited(item, "See python", "Found in %s, not loaded: no Python.", package);
    else if (!extension || !inject_dir ||
             ask(python, load_extension, extension, inject_dir, &answer) < 0)
        check_missing(item,
                      "The limit of memory or processes was reached (ulimit -v, ulimit -u): run "
                      "leat check again",
                      "Found in %s, but Python could not be started.", package);
    else if (!succeeded(&answer) || !strstr(answer.out, "loaded=1"))
        check_missing(item, "Build or install leat for this machine: make build",
                      "This Python does not load %s: %s.", extension,
                      answer.timed_out ? "no answer within 20 seconds" : last_error_line(&answer));
    else if (answer.err_length > 0)
        check_limited(
            item, "Every run prints it: fix that environment, or: leat check --python PATH",
            "Loads from %s, but Python prints an error: %s.", package, last_error_line(&answer));
    else
        check_ok(item, "%s, loads in this Python", package);
    mem_free(extension);
    mem_free(inject_dir);
    mem_free(package);
}

void check_python(struct check *check, const char *python)
{
    char *found = NULL;
    struct answer answer = {0};
    struct check_item *item = check_add(check, CHECK_TRAINING, "python");
    item->needed = 1;
    int usable = 0;
    if (python_find_named(python, &found) == 0)
        usable = fill_python(item, found, &answer);
    else
        check_missing(item,
                      "Activate your environment, install python3, or: leat check --python PATH",
                      "%s%s%s", python ? "There is no program " : "There is neither python3 nor ",
                      python ? python : "python on PATH", ".");
    item = check_add(check, CHECK_TRAINING, "torch");
    if (usable)
        fill_torch(item, found, &answer);
    else
        check_missing(item, "See python", "Not searched: no Python.");
    item = check_add(check, CHECK_TRAINING, "leat");
    item->needed = 1;
    fill_leat(item, usable ? found : NULL);
    mem_free(found);
}
