/* private_socket.h: a Unix socket, in a folder of its own, for processes of this user only. */
#ifndef LEAT_LAUNCH_PRIVATE_SOCKET_H
#define LEAT_LAUNCH_PRIVATE_SOCKET_H

#include "base/err.h"

struct private_socket {
    int fd; /* listening, non-blocking; -1 when closed */
    char folder[96], path[108];
};

/* `type` is SOCK_STREAM or SOCK_SEQPACKET. Call close after a failure too. */
int private_socket_open(struct private_socket *s, int type, int backlog, struct leat_err *err);
/* Removes the folder too. May be called again. */
void private_socket_close(struct private_socket *s);

#endif
