/* rights.c: the rights of this process and the restrictions of the machine, which explain a refused
 * BPF load or an unreadable /proc/PID. */
#include "observe/observe.h"

#include "base/proc_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t read_number(const char *root, const char *path)
{
    char text[64];
    if (proc_text_read_at(root, path, text, sizeof text) <= 0)
        return -1;
    const char *at = text;
    return proc_text_number(&at);
}

/* perf_event_paranoid may be -1 (everything is allowed), so unknown is INT64_MIN. */
static int64_t read_paranoid(const char *root)
{
    char text[64];
    if (proc_text_read_at(root, "/proc/sys/kernel/perf_event_paranoid", text, sizeof text) <= 0)
        return INT64_MIN;
    return strtoll(text, NULL, 10);
}

static void read_status(const char *root, struct rights_info *info)
{
    char text[4096];
    if (proc_text_read_at(root, "/proc/self/status", text, sizeof text) <= 0)
        return;
    const char *line = strstr(text, "\nUid:");
    if (line) {
        line += strlen("\nUid:");
        proc_text_number(&line);
        info->uid = proc_text_number(&line); /* real, then effective */
    }
    line = strstr(text, "\nCapEff:");
    if (line)
        info->capabilities = strtoull(line + strlen("\nCapEff:"), NULL, 16);
    info->seccomp = proc_text_field(text, "Seccomp:");
}

/* The initial user namespace maps all ids to themselves: "0 0 4294967295". */
static int has_own_users(const char *root)
{
    char text[256];
    if (proc_text_read_at(root, "/proc/self/uid_map", text, sizeof text) <= 0)
        return 0;
    const char *at = text;
    int64_t inside = proc_text_number(&at), outside = proc_text_number(&at);
    return !(inside == 0 && outside == 0 && proc_text_number(&at) == 4294967295);
}

/* "none [integrity] confidentiality": the active one is in brackets. */
static void read_lockdown(const char *root, struct rights_info *info)
{
    char text[128];
    if (proc_text_read_at(root, "/sys/kernel/security/lockdown", text, sizeof text) <= 0)
        return;
    char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    if (close)
        snprintf(info->lockdown, sizeof info->lockdown, "%.*s", (int)(close - open - 1), open + 1);
}

int rights_read(const char *root, struct rights_info *ret_info)
{
    struct rights_info info = {.uid = -1, .seccomp = -1};
    read_status(root, &info);
    info.own_users = has_own_users(root);
    info.perf_event_paranoid = read_paranoid(root);
    info.unprivileged_bpf_disabled =
        read_number(root, "/proc/sys/kernel/unprivileged_bpf_disabled");
    info.ptrace_scope = read_number(root, "/proc/sys/kernel/yama/ptrace_scope");
    read_lockdown(root, &info);
    *ret_info = info;
    return 0;
}

int rights_has(const struct rights_info *info, int capability)
{
    return (info->capabilities >> capability & 1) != 0;
}
