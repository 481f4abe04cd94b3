/* private_socket.c: see private_socket.h.
 *
 * The folder is private (0700), which keeps other users out on every kernel. A socket's path must
 * be short, so with a long TMPDIR the folder is made in /tmp.
 */
#include "launch/private_socket.h"

#include "base/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int make_folder(struct private_socket *s)
{
    const char *parents[] = {path_temporary(), "/tmp", "/dev/shm"};
    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
        if (strlen(parents[i]) > 60)
            continue;
        snprintf(s->folder, sizeof s->folder, "%s/leat-XXXXXX", parents[i]);
        if (mkdtemp(s->folder))
            return 0;
    }
    s->folder[0] = 0;
    return -errno;
}

int private_socket_open(struct private_socket *s, int type, int backlog, struct leat_err *err)
{
    *s = (struct private_socket){.fd = -1};
    int result = make_folder(s);
    if (result < 0)
        return err_set(err, result,
                       "No folder for leat's socket could be made (%s): nothing can be measured. "
                       "Set TMPDIR to a folder that can be written.",
                       err_text(result));
    snprintf(s->path, sizeof s->path, "%s/socket", s->folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, s->path, sizeof address.sun_path);
    s->fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        chmod(s->path, 0600) < 0 || listen(s->fd, backlog) < 0)
        return err_set(err, -errno,
                       "leat's socket %s cannot be opened: %s. Nothing can be measured.", s->path,
                       err_text(errno));
    return 0;
}

void private_socket_close(struct private_socket *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    if (s->folder[0]) {
        unlink(s->path);
        rmdir(s->folder);
        s->folder[0] = 0;
    }
}
