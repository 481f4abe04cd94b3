/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* bpf_try.c: may this process load tracing programs? The only honest answer is to load one.
 *
 * The program is "r0 = 0; exit" of the tracepoint kind: that kind needs the same rights as all
 * tracing (CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN), which a socket filter does not. It is never
 * attached, and gone when its descriptor is closed.
 *
 * The advice is never "setcap" on leat: a program with rights of its own starts without the user's
 * LD_LIBRARY_PATH and LD_PRELOAD, and so would the training.
 *
 * The kernel answers EPERM for half a dozen reasons, so the sentence is made from what else can be
 * read: rights, seccomp, user namespace, lockdown, the limit of locked memory.
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
    /* Only as much as the oldest kernels know: a longer one would be refused by them. */
    long fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, offsetof(union bpf_attr, prog_flags));
    if (fd < 0)
        return -errno;
    close((int)fd);
    return 0;
}

static int explain_refusal(int code, struct leat_err *err)
{
    struct rights_info rights;
    rights_read("/", &rights);
    int admin = rights_has(&rights, RIGHT_SYS_ADMIN);
    int bpf = admin || rights_has(&rights, RIGHT_BPF);
    int perfmon = admin || rights_has(&rights, RIGHT_PERFMON);
    if (!bpf || !perfmon)
        return err_set(err, code,
                       "%s missing: run as root, or with these rights alone (setpriv "
                       "--inh-caps=+bpf,+perfmon --ambient-caps=+bpf,+perfmon).",
                       !bpf && !perfmon ? "CAP_BPF and CAP_PERFMON are"
                       : !bpf           ? "CAP_BPF is"
                                        : "CAP_PERFMON is");
    if (rights.seccomp == 2)
        return err_set(err, code,
                       "A seccomp filter, as containers have, refuses bpf(2): start the container "
                       "with --privileged or --security-opt seccomp=unconfined.");
    if (rights.own_users)
        return err_set(err, code,
                       "The rights hold only inside this user namespace (a rootless container): "
                       "run leat outside it, as root.");
    if (strcmp(rights.lockdown, "confidentiality") == 0)
        return err_set(err, code,
                       "The kernel is locked down to confidentiality (secure boot): tracing is "
                       "off until it is booted with lockdown=integrity or none.");
    struct rlimit locked;
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur < 1 << 20)
        return err_set(err, code,
                       "Kernels before 5.11 count programs as locked memory, and the limit is "
                       "%llu bytes: ulimit -l unlimited.",
                       (unsigned long long)locked.rlim_cur);
    return err_set(err, code,
                   "The kernel refuses although the rights are there: a security module may forbid "
                   "it (see the kernel log).");
}

int bpf_try(struct leat_err *err)
{
    int code = load_program();
    switch (code) {
    case 0: return 0;
    case -EPERM:
    case -EACCES: return explain_refusal(code, err);
    case -ENOSYS:
        return err_set(err, code,
                       "This kernel or sandbox has no bpf(2): it needs CONFIG_BPF_SYSCALL, and a "
                       "container that lets it through.");
    case -EINVAL:
        return err_set(err, code,
                       "This kernel has BPF but no tracing programs: it needs CONFIG_BPF_EVENTS.");
    default: return err_set(err, code, "Loading a program fails: %s.", err_text(code));
    }
}

int bpf_has_types(const char *root)
{
    char byte[2];
    return proc_text_read_at(root, "/sys/kernel/btf/vmlinux", byte, sizeof byte) > 0;
}
