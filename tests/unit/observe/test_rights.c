/* test_rights.c: rights and the BPF trial. What the kernel allows here is not known beforehand, so
 * the live tests compare: with the rights and without them. */
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

/* As an ordinary user the load must fail, and the sentence must name what is missing. */
static void refused(void)
{
    struct leat_err err = {0};
    if (setgroups(0, NULL) < 0 || setgid(65534) < 0 || setuid(65534) < 0)
        _exit(2);
    int code = bpf_try(&err);
    if (code == -ENOSYS)
        _exit(strstr(err.text, "CONFIG_BPF_SYSCALL") ? 0 : 3);
    _exit(code == -EPERM && strstr(err.text, "CAP_BPF") && strstr(err.text, "root") ? 0 : 4);
}

static void trial(void **state)
{
    struct leat_err err = {0};
    struct rights_info r;
    rights_read("/", &r);
    int code = bpf_try(&err);
    assert_true(code <= 0);
    assert_true(code == 0 ? err.text[0] == 0 : strlen(err.text) > 20);
    int entitled = rights_has(&r, RIGHT_SYS_ADMIN) ||
                   (rights_has(&r, RIGHT_BPF) && rights_has(&r, RIGHT_PERFMON));
    if (!entitled)
        assert_true(code < 0);
    if (geteuid() != 0)
        skip();
    pid_t child = fork();
    if (child == 0)
        refused();
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
        cmocka_unit_test(trial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
