/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* bpf_try.c: finds out whether this process may load tracing programs, by loading one.
 *
 * The program is "r0 = 0; exit" of the tracepoint kind, which needs the same rights as all tracing
 * (CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN); a socket filter does not. It is never attached and
 * ends when its descriptor is closed.
 *
 * The kernel answers EPERM for several reasons. The reason is worked out from the rights, seccomp,
 * the user namespace, lockdown and the limit of locked memory.
 *
 * The advice is never "setcap" on leat: a program with file capabilities starts without the user's
 * LD_LIBRARY_PATH and LD_PRELOAD, and so would the training.
 */
#include "observe/observe.h"

#include "base/proc_text.h"

#include <linux/bpf.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int load_program(void)
{
    const struct bpf_insn program[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
        {.code = BPF_JMP | BPF_EXIT                          },
    };
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_TRACEPOINT;
    attr.insn_cnt = sizeof program / sizeof *program;
    attr.insns = (uint64_t)(uintptr_t)program;
    attr.license = (uint64_t)(uintptr_t) "GPL";
    /* Old kernels refuse a longer struct than they know. */
    long fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, offsetof(union bpf_attr, prog_flags));
    if (fd < 0)
        return -errno;
    close((int)fd);
    return 0;
}

static void explain_refusal(struct bpf_trial *trial)
{
    struct rights_info rights;
    struct rlimit locked;
    rights_read("/", &rights);
    int admin = rights_has(&rights, RIGHT_SYS_ADMIN);
    int bpf = admin || rights_has(&rights, RIGHT_BPF);
    int perfmon = admin || rights_has(&rights, RIGHT_PERFMON);
    if (!bpf || !perfmon) {
        trial->why = bpf       ? "CAP_PERFMON is missing."
                     : perfmon ? "CAP_BPF is missing."
                               : "CAP_BPF and CAP_PERFMON are missing.";
        trial->way = "Run as root, or: setpriv --inh-caps=+bpf,+perfmon "
                     "--ambient-caps=+bpf,+perfmon leat run train.py";
    } else if (rights.seccomp == 2) {
        trial->why = "A seccomp filter, as containers have, refuses bpf(2).";
        trial->way = "Start the container with --privileged or --security-opt seccomp=unconfined";
    } else if (rights.own_users) {
        trial->why = "The rights hold only inside this user namespace (a rootless container).";
        trial->way = "Run leat outside the container, as root";
    } else if (strcmp(rights.lockdown, "confidentiality") == 0) {
        trial->why = "The kernel is locked down to confidentiality (secure boot).";
        trial->way = "Boot with lockdown=integrity or lockdown=none";
    } else if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur < 1 << 20) {
        trial->why = "The limit of locked memory is too low: kernels before 5.11 count programs.";
        trial->way = "ulimit -l unlimited";
    } else {
        trial->why = "The kernel refuses although the rights are there.";
        trial->way = "See the kernel log: a security module may forbid it";
    }
}

void bpf_try(struct bpf_trial *ret_trial)
{
    struct bpf_trial trial = {.code = load_program()};
    switch (trial.code) {
    case 0: break;
    case -EPERM:
    case -EACCES: explain_refusal(&trial); break;
    case -ENOSYS:
        trial.why = "This kernel or sandbox has no bpf(2).";
        trial.way = "A kernel with CONFIG_BPF_SYSCALL, in a container that permits it";
        break;
    case -EINVAL:
        trial.why = "This kernel has BPF but no tracing programs.";
        trial.way = "A kernel with CONFIG_BPF_EVENTS";
        break;
    default: trial.why = err_text(trial.code); trial.way = "See the kernel log";
    }
    *ret_trial = trial;
}

int bpf_has_types(const char *root)
{
    char byte[2];
    return proc_text_read_at(root, "/sys/kernel/btf/vmlinux", byte, sizeof byte) > 0;
}
