/* private_socket.h: a Unix socket that only this user's processes can reach, in a folder of its
 * own.
 */
#ifndef LEAT_CLI_PRIVATE_SOCKET_H
#define LEAT_CLI_PRIVATE_SOCKET_H

#include "base/err.h"

struct private_socket {
    int fd; /* listening, non-blocking; -1 when closed */
    char folder[96], path[108];
};

/* `type` is SOCK_STREAM or SOCK_SEQPACKET. After a failure, with its sentence, close is still due.
 */
int private_socket_open(struct private_socket *s, int type, int backlog, struct leat_err *err);
/* Also takes the folder away. May be called again. */
void private_socket_close(struct private_socket *s);

#endif
