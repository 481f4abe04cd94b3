/* record_world.h: common code of the recorder's tests: a real socket, children that record, and
 * readers of their memory. */
#ifndef LEAT_TESTS_RECORD_WORLD_H
#define LEAT_TESTS_RECORD_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "leat/recorder.h"
#include "record/ring_reader.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[32], socket_path[64];
static int listener;

static inline int open_socket(void **state)
{
    strcpy(folder, "/tmp/leat-rec-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(socket_path, sizeof socket_path, "%s/s", folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, socket_path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0)
        return -1;
    return listen(listener, 64);
}

static inline int close_socket(void **state)
{
    close(listener);
    unlink(socket_path);
    return rmdir(folder);
}

/* The next process that sends a hello. */
static inline int receive_memfd(void)
{
    int fd = accept(listener, NULL, NULL), memfd = -1;
    struct rec_hello hello;
    struct iovec part = {&hello, sizeof hello};
    char control[CMSG_SPACE(sizeof(int))];
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof control};
    assert_int_equal(recvmsg(fd, &m, 0), sizeof hello);
    memcpy(&memfd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof memfd);
    assert_true(hello.magic == REC_MAGIC);
    close(fd);
    return memfd;
}

static inline void open_reader(struct ring_reader *reader)
{
    struct leat_err err = {""};
    int memfd = receive_memfd();
    if (ring_reader_open(reader, memfd, &err) < 0)
        fail_msg("%s", err.text);
    close(memfd);
}

static inline int take_all(struct ring_reader *reader, struct ring_record *last)
{
    struct ring_record records[100];
    int total = 0, n;
    while ((n = ring_reader_take(reader, records, 100)) > 0) {
        total += n;
        *last = records[n - 1];
    }
    return total;
}

static inline pid_t run_child(void (*work)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("LEAT_SOCKET", socket_path, 1);
        work();
        _exit(0);
    }
    return pid;
}

#endif
