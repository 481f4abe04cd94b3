/* collector_world.h: common code of the collector's tests: a real socket, real processes that
 * record into real memory, and queries on the database. */
#ifndef LEAT_TESTS_COLLECTOR_WORLD_H
#define LEAT_TESTS_COLLECTOR_WORLD_H

#include "collect/collector.h"

#include "base/clock.h"
#include "base/mem.h"
#include "leat/recorder.h"
#include "record/layout.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "unit/store/query.h"

static struct world {
    char dir[64], socket_path[96], db_path[96];
    int listener;
    struct store_writer *writer;
    struct store_reader *reader;
    struct collector *collector;
    int64_t max_steps;
    const char *proc_root; /* NULL: the machine's own */
} w;

/* ---- the scene ------------------------------------------------------------------------------ */

static inline int setup(void **state)
{
    memset(&w, 0, sizeof w);
    snprintf(w.dir, sizeof w.dir, "/tmp/leat-collector-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    snprintf(w.socket_path, sizeof w.socket_path, "%s/socket", w.dir);
    snprintf(w.db_path, sizeof w.db_path, "%s/run.db", w.dir);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, w.socket_path, strlen(w.socket_path) + 1);
    w.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(w.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(w.listener, 64), 0);
    return 0;
}

static inline void begin(pid_t root)
{
    struct leat_err err;
    assert_int_equal(store_writer_open(w.db_path, &w.writer, &err), 0);
    struct collector_options options = {.proc_root = w.proc_root ? w.proc_root : "/",
                                        .start_ns = clock_now_ns() - NS_PER_S,
                                        .root_pid = root,
                                        .max_steps = w.max_steps};
    assert_int_equal(collector_new(w.writer, &options, &w.collector, &err), 0);
}

static inline int teardown(void **state)
{
    char command[128];
    collector_free(w.collector);
    store_reader_close(w.reader);
    if (w.writer)
        store_writer_close(w.writer, NULL);
    close(w.listener);
    unlink(w.socket_path);
    snprintf(command, sizeof command, "rm -r %s", w.dir);
    return system(command);
}

/* One hello, if there is one. */
static inline bool adopt(void)
{
    int fd = accept(w.listener, NULL, NULL);
    if (fd < 0)
        return false;
    struct rec_hello hello;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {&hello, sizeof hello};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct ucred who;
    socklen_t length = sizeof who;
    assert_int_equal(recvmsg(fd, &message, 0), sizeof hello);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length), 0);
    int memfd;
    memcpy(&memfd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof memfd);
    close(fd);
    struct leat_err err;
    assert_int_equal(collector_adopt(w.collector, memfd, who.pid, &err), 0);
    return true;
}

static inline void adopt_all(void)
{
    while (adopt())
        ;
}

/* Waits until a hello has come. */
static inline void adopt_one(void)
{
    struct pollfd p = {w.listener, POLLIN, 0};
    assert_int_equal(poll(&p, 1, 60000), 1);
    assert_true(adopt());
}

static inline pid_t child(void (*body)(void))
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    setenv("LEAT_SOCKET", w.socket_path, 1);
    if (leat_recorder_open() != 0)
        _exit(9);
    body();
    _exit(0);
}

static inline int wait_for(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Runs a body to its end, then reads what it left. */
static inline pid_t run(void (*body)(void))
{
    pid_t pid = child(body);
    int status = wait_for(pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    adopt_all();
    return pid;
}

/* A worker of this process that does `body` and ends; loader -1: it does not declare its loader. */
static inline void fork_worker(int worker, int loader, void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        leat_recorder_role(LEAT_ROLE_WORKER, worker);
        leat_recorder_worker_loader(loader);
        body();
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static inline void pause_ms(int ms)
{
    struct pollfd none = {-1, 0, 0};
    poll(&none, 1, ms);
}

/* The rows of now, while the run goes on. */
static inline void open_reader(void)
{
    struct leat_err err;
    store_flush(w.writer);
    assert_int_equal(store_reader_of_writer(w.writer, &w.reader, &err), 0);
}

static inline void close_reader(void)
{
    store_reader_close(w.reader);
    w.reader = NULL;
}

static inline void finish(void)
{
    assert_true(collector_drain(w.collector) >= 0);
    assert_int_equal(collector_finish(w.collector), 0);
    open_reader();
}

/* The one number of a query; -1 for NULL or no row. */
static inline int64_t ask(const char *sql)
{
    return query_int(w.reader, sql, -1);
}

static inline const char *ask_text(const char *sql)
{
    return query_text(w.reader, sql);
}

static inline int make_area(size_t bytes, struct rec_area **ret_area)
{
    int fd = memfd_create("test", MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    *ret_area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(*ret_area != MAP_FAILED);
    return fd;
}

/* A memory that the collector reads, to be filled with garbage. The caller unmaps it. */
static inline struct rec_area *adopt_area(void)
{
    struct rec_area *area;
    struct leat_err err = {""};
    int fd = make_area(sizeof *area, &area);
    area->header.magic = REC_MAGIC;
    area->header.version = REC_VERSION;
    assert_int_equal(collector_adopt(w.collector, fd, getpid(), &err), 0);
    return area;
}

/* Random numbers for garbage. */
static inline uint64_t scramble(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 16;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
