/* test_proc_process.c: one process and its family, recorded, hostile and live. */
#include "unit/observe/observe_testing.h"

#include "base/mem.h"
#include "observe/observe.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void recorded_process(void **state)
{
    struct proc_info p;
    assert_int_equal(proc_read(data_root("v1"), 4242, &p), 0);
    assert_i64(p.pid, 4242);
    assert_i64(p.ppid, 4200);
    assert_string_equal(p.comm, "python3");
    assert_i64(p.start_ticks, 8675309);
    assert_i64(p.cpu_ns, 300 * (1000000000 / sysconf(_SC_CLK_TCK)));
    assert_i64(p.rss_bytes, 123456 * 1024);
    assert_i64(p.shared_bytes, 43456 * 1024);
    assert_i64(p.threads, 3);
    assert_i64(p.fds, 5);
    assert_i64(p.fd_limit, 1021);
    assert_i64(p.voluntary, 101 + 1000 + 10000); /* every thread once, the first too */
    assert_i64(p.involuntary, 7 + 20 + 300);
    assert_i64(p.minor_faults, 2003);
    assert_i64(p.major_faults, 31);
    assert_i64(p.read_bytes, 409600);
    assert_i64(p.write_bytes, 8192);
    assert_i64(p.read_calls, 211);
    assert_i64(p.run_delay_ns, 4003000);
}

static void absent_is_not_zero(void **state)
{
    struct proc_info p;
    assert_int_equal(proc_read(data_root("v1"), 4300, &p), 0); /* has a stat file only */
    assert_i64(p.ppid, 1);
    assert_i64(p.rss_bytes, -1);
    assert_i64(p.fds, -1);
    assert_i64(p.fd_limit, -1);
    assert_i64(p.voluntary, -1);
    assert_i64(p.read_bytes, -1);
    assert_i64(p.run_delay_ns, -1);
    assert_int_equal(proc_read(data_root("v1"), 7, &p), -ESRCH);
}

static void command_and_environment(void **state)
{
    const char *root = data_root("v1");
    char text[64];
    assert_int_equal(proc_command(root, 4242, text, sizeof text), 0);
    assert_string_equal(text, "python3 -c import torch print(1) --name caf\xc3\xa9");
    assert_int_equal(proc_command(root, 4242, text, 44), 0); /* would split the last character */
    assert_string_equal(text, "python3 -c import torch print(1) --name caf");
    assert_int_equal(proc_command(root, 7, text, sizeof text), -ESRCH);

    assert_int_equal(proc_environ(root, 4242, "RANK", text, sizeof text), 0);
    assert_string_equal(text, "3");
    assert_int_equal(proc_environ(root, 4242, "EMPTY", text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(proc_environ(root, 4242, "LAST", text, sizeof text), 0);
    assert_string_equal(text, "x");
    assert_int_equal(proc_environ(root, 4242, "JUNK", text, sizeof text), -ENOENT);
    assert_int_equal(proc_environ(root, 4242, "OME", text, sizeof text), -ENOENT);
    assert_int_equal(proc_environ(root, 4242, "HOME", text, 5), -ENOSPC);
    assert_int_equal(proc_environ(root, 7, "HOME", text, sizeof text), -ESRCH);
}

static void recorded_family(void **state)
{
    int64_t *pids = NULL;
    size_t count = 0;
    assert_int_equal(proc_tree(data_root("v1"), 4242, &pids, &count), 0);
    assert_int_equal(count, 4);
    assert_i64(pids[0], 4242); /* itself first, then by generation */
    assert_i64(pids[1], 4250);
    assert_i64(pids[2], 4251);
    assert_i64(pids[3], 4260);
    mem_free(pids);
    assert_int_equal(proc_tree(data_root("v1"), 7, &pids, &count), -ESRCH);
}

static void hostile_process(void **state)
{
    const char *root = data_root("hostile");
    struct proc_info p;
    char text[64];
    assert_int_equal(proc_read(root, 10, &p), 0);
    assert_string_equal(p.comm, "a) R 1 (b) c?"); /* the name, its newline made harmless */
    assert_i64(p.ppid, 7);
    assert_i64(p.threads, -1);
    assert_int_equal(proc_command(root, 10, text, sizeof text), 0);
    assert_string_equal(text, "[a) R 1 (b) c?]");
    assert_int_equal(proc_environ(root, 10, "A", text, sizeof text), -ENOENT);
    assert_int_equal(proc_environ(root, 10, "", text, sizeof text), 0);

    assert_int_equal(proc_read(root, 11, &p), 0);
    assert_i64(p.ppid, -1);
    assert_int_equal(proc_read(root, 12, &p), 0);
    assert_i64(p.start_ticks, -1);

    assert_int_equal(proc_read(root, 13, &p), 0);
    assert_i64(p.ppid, -1); /* too large for any type */
    assert_i64(p.minor_faults, -1);
    assert_i64(p.cpu_ns, -1); /* the sum overflows */
    assert_i64(p.rss_bytes, -1);
    assert_i64(p.voluntary, -1);
    assert_i64(p.read_calls, -1);
    assert_i64(p.read_bytes, 7);
    assert_i64(p.fd_limit, -1);
    assert_int_equal(proc_command(root, 13, text, sizeof text), 0);
    assert_string_equal(text, "");
}

static void hostile_family(void **state)
{
    int64_t *pids = NULL;
    size_t count = 0;
    assert_int_equal(proc_tree(data_root("hostile"), 20, &pids, &count), 0);
    assert_int_equal(count, 2); /* the circle of 20 and 21, each once; no made-up names */
    assert_i64(pids[0], 20);
    assert_i64(pids[1], 21);
    mem_free(pids);
    assert_int_equal(proc_tree(data_root("hostile"), 22, &pids, &count), 0);
    assert_int_equal(count, 1);
    mem_free(pids);
}

/* ---- live ----------------------------------------------------------------------------------- */

enum { FILES = 23, THREADS = 5, GROWTH_PAGES = 16411, NAPS = 211, THREAD_NAPS = 103 };

static void nap(int times)
{
    for (int i = 0; i < times; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL); /* gives up the CPU of its own will */
}

static atomic_int go, rested;

static void *sleeper(void *arg)
{
    while (!atomic_load(&go))
        nap(1);
    if (arg)
        nap(THREAD_NAPS);
    atomic_fetch_add(&rested, 1);
    pause();
    return NULL;
}

static void say(int fd)
{
    if (write(fd, "x", 1) != 1)
        _exit(3);
}

static void hear(int fd)
{
    char byte;
    if (read(fd, &byte, 1) != 1)
        _exit(4);
}

/* ThreadSanitizer has threads and shadow memory of its own: there the truths are lower bounds. */
#ifdef __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Closes all files but the pipes, opens up to FILES, starts threads, then grows by known pages. */
static void be_known(int in, int out)
{
    char name[] = "leat) R (9\n";
    FILE *comm = fopen("/proc/self/comm", "w");
    fputs(name, comm);
    fclose(comm);
    dup2(in, 100);
    dup2(out, 101);
    close_range(0, 99, 0);
    close_range(102, ~0u, 0);
    for (int i = 0; i < FILES - 2; i++)
        if (open("/dev/null", O_RDONLY) < 0)
            _exit(5);
    struct rlimit files = {211, 211};
    setrlimit(RLIMIT_NOFILE, &files);
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int i = 0; i < THREADS - 1; i++)
        pthread_create(&thread, &small, sleeper, i == 0 ? &go : NULL);
    say(101);
    hear(100);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *grown =
        mmap(NULL, GROWTH_PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(grown, GROWTH_PAGES * page, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < GROWTH_PAGES; i++)
        grown[i * page] = 1;
    nap(NAPS);
    atomic_store(&go, 1);
    while (atomic_load(&rested) < THREADS - 1)
        nap(1);
    say(101);
    hear(100);
    _exit(0);
}

static void live_child(void **state)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid_t child = fork();
    if (child == 0)
        be_known(to[0], from[1]);
    close(to[0]);
    close(from[1]);
    struct proc_info before, after;
    hear(from[0]);
    assert_int_equal(proc_read("/", child, &before), 0);
    assert_string_equal(before.comm, "leat) R (9?"); /* the newline made harmless */
    assert_i64(before.ppid, getpid());
    assert_i64(before.fds, FILES);
    assert_i64(before.fd_limit, 211);
    assert_true(SANITIZED ? before.threads >= THREADS : before.threads == THREADS);
    assert_true(before.start_ticks > 0);
    assert_true(before.cpu_ns >= 0);
    say(to[1]);
    hear(from[0]);
    assert_int_equal(proc_read("/", child, &after), 0);
    long page = sysconf(_SC_PAGESIZE);
    int64_t grown = after.rss_bytes - before.rss_bytes, known = (int64_t)GROWTH_PAGES * page;
    /* The kernel counts resident pages per CPU and folds them in batches: within 2 %. */
    assert_true(grown > known - known / 50 && (SANITIZED || grown < known + known / 50));
    assert_true(after.minor_faults - before.minor_faults >= GROWTH_PAGES);
    /* The naps of the main thread and of one other. */
    assert_true(after.voluntary - before.voluntary >= NAPS + THREAD_NAPS);
    assert_true(after.involuntary >= before.involuntary);
    assert_i64(after.start_ticks, before.start_ticks);

    int64_t *pids = NULL;
    size_t count = 0;
    assert_int_equal(proc_tree("/", getpid(), &pids, &count), 0);
    assert_int_equal(count, 2);
    assert_i64(pids[1], child);
    mem_free(pids);

    say(to[1]);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(proc_read("/", child, &after), 0); /* a zombie can still be read */
    assert_i64(after.rss_bytes, 0);
    assert_i64(after.fds, 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(proc_read("/", child, &after), -ESRCH);
    close(to[1]);
    close(from[0]);
}

static void live_reads(void **state)
{
    struct proc_info before, after;
    assert_int_equal(proc_read("/", getpid(), &before), 0);
    int fd = open("/dev/zero", O_RDONLY);
    char byte;
    for (int i = 0; i < 1009; i++)
        assert_int_equal(read(fd, &byte, 1), 1);
    close(fd);
    assert_int_equal(proc_read("/", getpid(), &after), 0);
    if (before.read_calls < 0)
        skip(); /* a kernel without I/O accounting */
    /* proc_read reads too: a handful of its own calls. */
    int64_t calls = after.read_calls - before.read_calls;
    assert_true(calls >= 1009 && calls < 1009 + 40);
}

static void last_pid(void **state)
{
    assert_i64(proc_last_pid(data_root("v1")), 4300);
    assert_i64(proc_last_pid(data_root("v2")), -1);      /* has no such file */
    assert_i64(proc_last_pid(data_root("hostile")), -1); /* a sandbox in which it is always 0 */
    int64_t before = proc_last_pid("/");
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(before > 0 && proc_last_pid("/") > 0 && proc_last_pid("/") != before);
}

/* Every allocation of the tree fails once: nothing leaks (the sanitizer sees to it), nothing is
 * returned. */
static void no_memory(void **state)
{
    int64_t *pids = (int64_t *)1;
    size_t count = 99;
    const char *root = data_root("v1");
    int result = -ENOMEM;
    for (unsigned long n = 1; result == -ENOMEM && n < 100; n++) {
        mem_fail_at(n);
        result = proc_tree(root, 4242, &pids, &count);
        if (result < 0)
            assert_int_equal(count, 99);
    }
    mem_fail_at(0);
    assert_int_equal(result, 0);
    mem_free(pids);
}

static void test_wait_status(void **state)
{
    int status = 0, waited;
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(proc_wait_status("/", pid, &status), -EAGAIN);
    kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(proc_wait_status("/", pid, &status), 0);
    assert_int_equal(waitpid(pid, &waited, 0), pid);
    assert_int_equal(status, waited);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(proc_wait_status("/", pid, &status), -ESRCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_status),   cmocka_unit_test(recorded_process),
        cmocka_unit_test(absent_is_not_zero), cmocka_unit_test(command_and_environment),
        cmocka_unit_test(recorded_family),    cmocka_unit_test(hostile_process),
        cmocka_unit_test(hostile_family),     cmocka_unit_test(live_child),
        cmocka_unit_test(live_reads),         cmocka_unit_test(last_pid),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
