/* bench_process.c: see bench_process.h. */
#include "launch/bench_process.h"

#include "base/clock.h"
#include "base/mem.h"
#include "launch/private_socket.h"
#include "observe/observe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_LINE = 4 << 20,    /* bytes of JSON without a line end; then the peer is not ours */
    MEMORY_EVERY_MS = 500, /* reading it takes milliseconds per process */
    PROGRESS_EVERY_MS = 250,
    LEAVE_MS = 1500, /* for the script to flush its output and exit */
    STOP_MS = 5000,  /* for a script that was interrupted before it reached its loader */
    SWEEPS = 50      /* attempts to kill remaining processes, 20 ms apart */
};

struct bench {
    const struct bench_process_options *options;
    struct session *session;
    pid_t child;   /* what was started */
    pid_t process; /* what iterates the loader: the child, or one below it; 0 before */
    struct private_socket listener;
    int connection;
    struct str received;
    uint64_t kill_ns; /* when to kill everything; 0: not yet */
    uint64_t memory_ns, progress_ns;
    int signal;   /* that ended it; 0 */
    int out, err; /* leat's own stdout and stderr while the script has others */
    int progress_shown;
};

/* ---- the socket ------------------------------------------------------------------------------ */

/* The first process to connect is measured. Other ranks cannot connect, and run normally. */
static void accept_one(struct bench *b)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    int fd = accept4(b->listener.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) < 0 || who.uid != geteuid()) {
        close(fd);
        return;
    }
    b->connection = fd;
    b->process = who.pid;
    private_socket_close(&b->listener);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void read_memory(struct bench *b, uint64_t now_ns)
{
    int64_t *pids = NULL, total = 0, one;
    size_t count = 0;
    b->memory_ns = now_ns;
    if (b->session->stage != SESSION_ROW || proc_tree("/", b->process, &pids, &count) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (proc_pss("/", pids[i], &one) == 0)
            total += one;
    mem_free(pids);
    if (total > 0)
        session_memory(b->session, total);
}

/* ---- actions of the session ------------------------------------------------------------------ */

static void kill_tree(pid_t root)
{
    int64_t *pids = NULL;
    size_t count = 0;
    if (proc_tree("/", root, &pids, &count) == 0)
        for (size_t i = 0; i < count; i++)
            kill((pid_t)pids[i], SIGKILL);
    mem_free(pids);
}

static void send_output(struct bench *b)
{
    struct str *output = &b->session->output;
    size_t sent = 0;
    /* Requests are short and few: they fit the socket's buffer. */
    while (b->connection >= 0 && sent < output->length) {
        ssize_t n = send(b->connection, output->text + sent, output->length - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    str_done(output);
}

static void do_action(struct bench *b, uint64_t now_ns)
{
    enum session_action action = b->session->action;
    b->session->action = SESSION_NO_ACTION;
    send_output(b);
    if (action == SESSION_INTERRUPT)
        kill(b->process, SESSION_SIGNAL);
    if (action == SESSION_KILL && !b->kill_ns)
        b->kill_ns = now_ns + LEAVE_MS * NS_PER_MS;
}

/* ---- events ---------------------------------------------------------------------------------- */

static int on_started(void *context, pid_t pid)
{
    struct bench *b = context;
    b->child = pid;
    return 0;
}

static int descriptor(void *context)
{
    struct bench *b = context;
    return b->connection >= 0 ? b->connection : b->listener.fd;
}

static void take_line(struct bench *b, const char *line, size_t length)
{
    uint64_t now_ns = clock_now_ns();
    int was_stopping = b->session->stopping;
    session_take_line(b->session, line, length, now_ns);
    /* All workers still exist at this moment. */
    if (b->session->stopping && !was_stopping)
        read_memory(b, now_ns);
    do_action(b, now_ns);
}

static void on_readable(void *context)
{
    struct bench *b = context;
    char bytes[65536];
    if (b->connection < 0) {
        accept_one(b);
        return;
    }
    ssize_t got = recv(b->connection, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0 || b->received.length > MAX_LINE) {
        close(b->connection); /* run_process notices the end of the script */
        b->connection = -1;
        return;
    }
    str_add_bytes(&b->received, bytes, (size_t)got);
    char *from = b->received.text, *end;
    while (from &&
           (end = memchr(from, '\n', b->received.length - (size_t)(from - b->received.text)))) {
        take_line(b, from, (size_t)(end - from));
        from = end + 1;
    }
    if (from && from > b->received.text) {
        size_t done = (size_t)(from - b->received.text);
        memmove(b->received.text, from, b->received.length - done + 1);
        b->received.length -= done;
    }
}

static void show_progress(struct bench *b, uint64_t now_ns)
{
    struct str line = {0};
    b->progress_ns = now_ns;
    session_progress(b->session, now_ns, &line);
    if (line.length)
        dprintf(b->err, "\r\033[Kleat: %.70s", str_text(&line));
    b->progress_shown = 1;
    str_done(&line);
}

static void on_tick(void *context)
{
    struct bench *b = context;
    uint64_t now_ns = clock_now_ns();
    session_tick(b->session, now_ns);
    if (now_ns - b->memory_ns > MEMORY_EVERY_MS * NS_PER_MS)
        read_memory(b, now_ns);
    do_action(b, now_ns);
    if (b->options->progress && now_ns - b->progress_ns > PROGRESS_EVERY_MS * NS_PER_MS)
        show_progress(b, now_ns);
    if (b->kill_ns && now_ns >= b->kill_ns)
        kill_tree(b->child);
}

/* Before the loader is reached, signals are passed to the script, which has STOP_MS to end. After
 * that they end the measurement. */
static int on_signal(void *context, int number)
{
    struct bench *b = context;
    uint64_t now_ns = clock_now_ns();
    if (number != SIGINT && number != SIGTERM && number != SIGHUP && number != SIGQUIT)
        return 0;
    if (!b->signal)
        b->signal = number;
    if (b->session->stage == SESSION_HELLO) {
        b->kill_ns = now_ns + STOP_MS * NS_PER_MS;
        return 0;
    }
    session_stop(b->session, now_ns);
    do_action(b, now_ns);
    return 1;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The script's output must not mix with leat's results: it goes to stderr, or is discarded. */
static void redirect_output(struct bench *b)
{
    fflush(NULL);
    b->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    b->err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    int to = b->options->quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : b->err;
    if (to < 0)
        return;
    dup2(to, STDOUT_FILENO);
    dup2(to, STDERR_FILENO);
    if (to != b->err)
        close(to);
}

static void restore(int saved, int to)
{
    if (saved < 0)
        return;
    dup2(saved, to);
    close(saved);
}

/* Kills everything that is left below leat, also workers whose parent has ended. */
static void kill_remaining(void)
{
    struct timespec pause = {0, 20 * (long)NS_PER_MS};
    for (int i = 0; i < SWEEPS; i++) {
        int64_t *pids = NULL;
        size_t count = 0;
        if (proc_tree("/", getpid(), &pids, &count) == 0)
            for (size_t k = 0; k < count; k++)
                if (pids[k] != getpid())
                    kill((pid_t)pids[k], SIGKILL);
        mem_free(pids);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (count <= 1)
            return;
        nanosleep(&pause, NULL);
    }
}

static void describe_end(const struct run_process_end *end, char *text, size_t bytes)
{
    if (end->signal > 0)
        snprintf(text, bytes, "the process was killed by signal %d (%s)", end->signal,
                 strsignal(end->signal));
    else
        snprintf(text, bytes, "the script ended with status %d", end->exit_status);
}

int bench_process(char **argv, const struct bench_process_options *options, struct session *session,
                  struct run_process_end *ret_end, int *ret_signal, struct leat_err *err)
{
    struct bench b = {.options = options,
                      .session = session,
                      .listener = {.fd = -1},
                      .connection = -1,
                      .out = -1,
                      .err = STDERR_FILENO};
    int result = private_socket_open(&b.listener, SOCK_STREAM, 1, err);
    if (result == 0) {
        setenv("LEAT_BENCH", b.listener.path, 1);
        unsetenv("LEAT_SOCKET"); /* nothing is recorded, also inside `leat run` */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        run_process_shield();
        redirect_output(&b);
        struct run_process_events events = {.context = &b,
                                            .started = on_started,
                                            .tick = on_tick,
                                            .descriptor = descriptor,
                                            .readable = on_readable,
                                            .takes_signal = on_signal};
        result = run_process(argv, options->inject_dir, &events, ret_end, err);
        if (b.connection >= 0) /* its last lines may be unread */
            on_readable(&b);
        kill_remaining();
        if (b.progress_shown)
            dprintf(b.err, "\r\033[K");
        restore(b.out, STDOUT_FILENO);
        restore(b.err, STDERR_FILENO);
    }
    if (result == 0 && session->stage != SESSION_END) {
        char how[96];
        describe_end(ret_end, how, sizeof how);
        session_process_ended(session, how, clock_now_ns());
    }
    if (b.connection >= 0)
        close(b.connection);
    private_socket_close(&b.listener);
    str_done(&b.received);
    *ret_signal = b.signal;
    return result;
}
