/* test_rights.c: rights and the BPF trial. What this kernel allows is not known beforehand, so the
 * live tests compare results with and without the rights. */
#include "unit/observe/observe_testing.h"

#include "observe/observe.h"

#include <errno.h>
#include <grp.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void recorded_rights(void **state)
{
    struct rights_info r;
    assert_int_equal(rights_read(data_root("v1"), &r), 0);
    assert_i64(r.uid, 1000);
    assert_false(rights_has(&r, RIGHT_BPF));
    assert_i64(r.seccomp, 0);
    assert_i64(r.ptrace_scope, -1);
    assert_i64(r.perf_event_paranoid, INT64_MIN);
    assert_string_equal(r.lockdown, "");
    assert_false(bpf_has_types(data_root("v1")));
}

static void hostile_rights(void **state)
{
    struct rights_info r;
    assert_int_equal(rights_read(data_root("hostile"), &r), 0);
    assert_i64(r.uid, -1);
}

static void live_rights(void **state)
{
    struct rights_info r;
    assert_int_equal(rights_read("/", &r), 0);
    assert_i64(r.uid, geteuid());
    assert_int_equal(bpf_has_types("/"), access("/sys/kernel/btf/vmlinux", R_OK) == 0);
}

/* As an ordinary user the load must fail for want of rights. */
static void exit_as_ordinary_user(void)
{
    struct bpf_trial trial;
    if (setgroups(0, NULL) < 0 || setgid(65534) < 0 || setuid(65534) < 0)
        _exit(2);
    bpf_try(&trial);
    if (!trial.why || !trial.way)
        _exit(3);
    _exit(trial.code == -ENOSYS || trial.code == -EPERM ? 0 : 4);
}

static void trial_agrees_with_the_rights(void **state)
{
    struct bpf_trial trial;
    struct rights_info r;
    rights_read("/", &r);
    bpf_try(&trial);
    assert_true(trial.code <= 0);
    assert_int_equal(trial.code < 0, trial.why != NULL && trial.way != NULL);
    int entitled = rights_has(&r, RIGHT_SYS_ADMIN) ||
                   (rights_has(&r, RIGHT_BPF) && rights_has(&r, RIGHT_PERFMON));
    if (!entitled)
        assert_true(trial.code < 0);
    if (geteuid() != 0)
        skip();
    pid_t child = fork();
    if (child == 0)
        exit_as_ordinary_user();
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_rights),
        cmocka_unit_test(hostile_rights),
        cmocka_unit_test(live_rights),
        cmocka_unit_test(trial_agrees_with_the_rights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
