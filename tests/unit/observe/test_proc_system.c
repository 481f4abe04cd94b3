/* test_proc_system.c: the machine and its limits, recorded, hostile and live. */
#include "unit/observe/observe_testing.h"

#include "base/cgroup.h"
#include "observe/observe.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static void recorded_machine(void **state)
{
    struct sys_info s;
    int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE);
    assert_int_equal(sys_read(data_root("v1"), &s), 0);
    /* user nice system idle iowait irq softirq steal; guest time is in user already */
    assert_i64(s.all_ns, (1000 + 20 + 300 + 40000 + 50 + 6 + 7 + 8) * tick_ns);
    assert_i64(s.busy_ns, (1000 + 20 + 300 + 6 + 7 + 8) * tick_ns);
    assert_i64(s.iowait_ns, 50 * tick_ns);
    assert_i64(s.steal_ns, 8 * tick_ns);
    assert_i64(s.memory_total, 4294967296); /* the cgroup's, not the machine's */
    assert_i64(s.memory_available, 4294967296 - (3000000000 - 700000000));
    assert_i64(s.swap_used_bytes, (8388604LL - 8257532) * 1024);
    assert_i64(s.swap_in_bytes, 11 * page);
    assert_i64(s.swap_out_bytes, 13 * page);
    assert_i64(s.oom_kills, 2);
    assert_i64(s.cpu_stall_us, 1009);
    assert_i64(s.memory_stall_us, 1013);
    assert_i64(s.io_stall_us, 1019);
    assert_i64(s.shm_total, -1);
}

/* Of the CPUs 0, 4, 8 and 12 this process may run on 0 and 8. */
static void only_cpus_it_may_use(void **state)
{
    struct sys_info s;
    int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    assert_int_equal(sys_read(data_root("v2"), &s), 0);
    assert_i64(s.all_ns, (100 + 10 + 1000 + 7 + 3 + 200 + 2000) * tick_ns);
    assert_i64(s.busy_ns, (100 + 10 + 3 + 200) * tick_ns);
    assert_i64(s.iowait_ns, 7 * tick_ns);
    assert_i64(s.steal_ns, 3 * tick_ns);
}

static void absent_is_not_zero(void **state)
{
    struct sys_info s;
    assert_int_equal(sys_read(data_root("v2"), &s), 0);
    assert_i64(s.oom_kills, -1);
    assert_i64(s.swap_in_bytes, -1);
    assert_i64(s.cpu_stall_us, -1);
    assert_int_equal(sys_read(data_root("that-is-not-there"), &s), 0);
    assert_i64(s.all_ns, -1);
    assert_i64(s.memory_total, -1);
    assert_i64(s.shm_used, -1);
}

static void hostile_machine(void **state)
{
    struct sys_info s;
    assert_int_equal(sys_read(data_root("hostile"), &s), 0);
    assert_i64(s.all_ns, -1);
    assert_i64(s.busy_ns, -1);
    assert_i64(s.steal_ns, -1);
    assert_i64(s.memory_total, -1);
    assert_i64(s.memory_available, -1);
    assert_i64(s.swap_used_bytes, -1); /* more free than there is */
    assert_i64(s.swap_in_bytes, -1);
    assert_i64(s.swap_out_bytes, -1);
    assert_i64(s.oom_kills, -1);
    assert_i64(s.cpu_stall_us, -1);
    assert_i64(s.memory_stall_us, -1);
    assert_i64(s.io_stall_us, -1);
}

static void live_machine(void **state)
{
    struct sys_info before, after;
    assert_int_equal(sys_read("/", &before), 0);
    struct sysinfo truth;
    assert_int_equal(sysinfo(&truth), 0);
    int64_t total = (int64_t)truth.totalram * truth.mem_unit;
    assert_true(before.memory_total > 0 && before.memory_total <= total);
    assert_true(before.memory_available > 0 && before.memory_available <= before.memory_total);
    assert_true(before.busy_ns > 0 && before.busy_ns < before.all_ns);
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0)
        assert_i64(before.shm_total, (int64_t)(shm.f_blocks * shm.f_frsize));
    assert_int_equal(sys_read("/", &after), 0);
    assert_true(after.all_ns >= before.all_ns);
    assert_true(after.busy_ns >= before.busy_ns);
}

static void near(double actual, double expected)
{
    if (!(fabs(actual - expected) < 1e-9))
        fail_msg("%g is not %g", actual, expected);
}

static void hybrid_limits(void **state)
{
    struct cgroup_info c;
    assert_int_equal(cgroup_read(data_root("v1"), &c), 0);
    assert_int_equal(c.version, 1);
    near(c.cpus, 1.5);                            /* a quota, below the 8 CPUs of the affinity */
    assert_i64(c.memory_limit_bytes, 4294967296); /* on the parent; our own group has none */
    assert_i64(c.memory_used_bytes, 2300000000);  /* of that parent, less cold page cache */
    assert_i64(c.oom_kills, 3);                   /* of our own group */
}

static void container_limits(void **state)
{
    struct cgroup_info c;
    assert_int_equal(cgroup_read(data_root("v2"), &c), 0);
    assert_int_equal(c.version, 2);
    near(c.cpus, 2.5); /* of seven: 0-3,8,10-11 */
    assert_i64(c.memory_limit_bytes, 8589934592);
    assert_i64(c.memory_used_bytes, 4500000000);
    assert_i64(c.oom_kills, 4);
}

/* Host paths in the container, part of the tree mounted, blanks in names; the least of three
 * groups counts, for each resource its own. */
static void nested_limits(void **state)
{
    struct cgroup_info c;
    assert_int_equal(cgroup_read(data_root("v2-nested"), &c), 0);
    assert_int_equal(c.version, 2);
    near(c.cpus, 0.5);
    assert_i64(c.memory_limit_bytes, 1073741824);
    assert_i64(c.memory_used_bytes, 536870912);
    assert_i64(c.oom_kills, 6);
}

static void hostile_limits(void **state)
{
    struct cgroup_info c;
    assert_int_equal(cgroup_read(data_root("hostile"), &c), 0);
    near(c.cpus, 0.01); /* the floor */
    assert_i64(c.memory_limit_bytes, -1);
    assert_i64(c.memory_used_bytes, -1);
    assert_int_equal(cgroup_read(data_root("that-is-not-there"), &c), 0);
    assert_int_equal(c.version, 0);
    assert_true(c.cpus >= 1);
}

static void live_limits(void **state)
{
    struct cgroup_info c;
    cpu_set_t set, one;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(cgroup_read("/", &c), 0);
    assert_true(c.cpus >= 0.01 && c.cpus <= CPU_COUNT(&set));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &set))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cgroup_read("/", &c), 0);
    assert_true(c.cpus <= 1);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_machine),   cmocka_unit_test(only_cpus_it_may_use),
        cmocka_unit_test(absent_is_not_zero), cmocka_unit_test(hostile_machine),
        cmocka_unit_test(live_machine),       cmocka_unit_test(hybrid_limits),
        cmocka_unit_test(container_limits),   cmocka_unit_test(nested_limits),
        cmocka_unit_test(hostile_limits),     cmocka_unit_test(live_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
