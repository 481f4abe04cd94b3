/* test_nvml.c: GPUs, against a counterfeit library of known figures; and the real one if there is
 * one. */
#include "unit/observe/observe_testing.h"

#include "observe/nvml.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct nvml *open_fake(const char *name, const char *mode, const char *root)
{
    char path[4096];
    const char *build = getenv("LEAT_BUILD");
    struct nvml *nvml = NULL;
    struct leat_err err = {0};
    snprintf(path, sizeof path, "%s/tests/unit/observe/%s", build ? build : ".", name);
    if (mode)
        setenv("FAKE_NVML", mode, 1);
    else
        unsetenv("FAKE_NVML");
    if (nvml_open_library(path, root, &nvml, &err) < 0)
        fail_msg("%s", err.text);
    return nvml;
}

static void known_figures(void **state)
{
    struct nvml *nvml = open_fake("fake_nvml.so", NULL, "/");
    struct gpu_info g;
    assert_int_equal(nvml_count(nvml), 2);
    assert_string_equal(nvml_driver(nvml), "999.13");
    assert_int_equal(nvml_read(nvml, 0, &g), 0);
    assert_string_equal(g.name, "Fake 9000");
    assert_string_equal(g.uuid, "GPU-fake-0");
    assert_true(fabs(g.utilization - 0.37) < 1e-12);
    assert_i64(g.memory_total, 1000);
    assert_i64(g.memory_used, 600);
    assert_i64(g.temperature_c, 71);
    assert_i64(g.temperature_limit_c, 89);
    assert_true(fabs(g.power_w - 251.5) < 1e-9);
    assert_true(fabs(g.power_limit_w - 700) < 1e-9);
    assert_i64(g.sm_clock_mhz, 1410);
    assert_string_equal(g.throttle, "power_cap,thermal");
    /* A million bytes between two readings, at least 2 ms apart. */
    assert_true(g.pcie_tx_bytes_s > 0 && g.pcie_tx_bytes_s <= 500000000);
    double ratio = (double)g.pcie_rx_bytes_s / (double)g.pcie_tx_bytes_s;
    assert_true(ratio > 2.99 && ratio < 3.01);
    nvml_close(nvml);
}

static void unsupported_is_unknown(void **state)
{
    struct nvml *nvml = open_fake("fake_nvml.so", NULL, "/");
    struct gpu_info g;
    assert_int_equal(nvml_read(nvml, 1, &g), 0);
    assert_true(isnan(g.utilization));
    assert_true(isnan(g.power_w));
    assert_i64(g.temperature_c, -1);
    assert_i64(g.sm_clock_mhz, -1);
    assert_i64(g.pcie_rx_bytes_s, -1);
    assert_string_equal(g.throttle, "");
    assert_int_equal(nvml_read(nvml, 2, &g), -EINVAL);
    assert_int_equal(nvml_read(nvml, -1, &g), -EINVAL);
    nvml_close(nvml);
}

static void old_library(void **state)
{
    setenv("FAKE_NVML_PID", "4242", 1);
    struct nvml *nvml = open_fake("fake_nvml_old.so", NULL, "/");
    const int64_t ours[] = {4240, 4242}, foreign[] = {4240};
    struct gpu_info g;
    assert_int_equal(nvml_count(nvml), 2);
    assert_string_equal(nvml_driver(nvml), "");
    assert_int_equal(nvml_read(nvml, 0, &g), 0);
    assert_i64(g.memory_used, 600);
    assert_true(isnan(g.utilization));
    assert_int_equal(nvml_uses(nvml, 1, ours, 2), 1); /* entries of 16 bytes */
    assert_int_equal(nvml_uses(nvml, 0, ours, 2), 0);
    assert_int_equal(nvml_uses(nvml, 1, foreign, 1), 0);
    nvml_close(nvml);
}

static void instances(void **state)
{
    setenv("FAKE_NVML_PID", "4242", 1);
    struct nvml *nvml = open_fake("fake_nvml.so", "mig", "/");
    const int64_t ours[] = {4242};
    struct gpu_info g;
    assert_int_equal(nvml_count(nvml), 3); /* two instances and the other device */
    assert_int_equal(nvml_read(nvml, 1, &g), 0);
    assert_string_equal(g.name, "Fake 9000 MIG 1g.10gb");
    assert_string_equal(g.uuid, "MIG-fake");
    assert_i64(g.memory_total, 500);
    assert_true(isnan(g.utilization));
    assert_i64(g.temperature_c, 71); /* of the whole device */
    assert_int_equal(nvml_uses(nvml, 0, ours, 1), 0);
    assert_int_equal(nvml_uses(nvml, 1, ours, 1), 1);
    nvml_close(nvml);
}

static void by_process_id(void **state)
{
    setenv("FAKE_NVML_PID", "4242", 1);
    struct nvml *nvml = open_fake("fake_nvml.so", NULL, "/");
    const int64_t ours[] = {7, 4242}, foreign[] = {7, 8}, zero[] = {0};
    assert_int_equal(nvml_uses(nvml, 0, ours, 2), 0);
    assert_int_equal(nvml_uses(nvml, 1, ours, 2), 1);
    assert_int_equal(nvml_uses(nvml, 1, foreign, 2), 0);
    assert_int_equal(nvml_uses(nvml, 1, zero, 1), 0); /* 0 stands for "not of this container" */
    assert_int_equal(nvml_uses(nvml, 2, ours, 2), -EINVAL);
    nvml_close(nvml);
}

/* A root with a process namespace of its own, in which NVML's ids mean nothing: what process 7 has
 * open decides. */
static void by_open_device(void **state)
{
    char root[] = "/tmp/leat-nvml-XXXXXX", path[4096];
    assert_non_null(mkdtemp(root));
    const char *folders[] = {"proc", "proc/self", "proc/self/ns", "proc/7", "proc/7/fd"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%s/proc/self/ns/pid", root);
    assert_int_equal(symlink("pid:[4026532999]", path), 0);
    snprintf(path, sizeof path, "%s/proc/7/fd/3", root);
    assert_int_equal(symlink("/dev/nvidia42", path), 0); /* device 1 */
    snprintf(path, sizeof path, "%s/proc/7/fd/4", root);
    assert_int_equal(symlink("/dev/nvidiactl", path), 0);

    setenv("FAKE_NVML_PID", "31337", 1);
    struct nvml *nvml = open_fake("fake_nvml.so", NULL, root);
    const int64_t ours[] = {6, 7}, foreign[] = {6};
    assert_int_equal(nvml_uses(nvml, 1, ours, 2), 1);
    assert_int_equal(nvml_uses(nvml, 0, ours, 2), 0);
    assert_int_equal(nvml_uses(nvml, 1, foreign, 1), 0);
    nvml_close(nvml);

    snprintf(path, sizeof path, "rm -r %s", root);
    assert_int_equal(system(path), 0);
}

static void each_failure_has_a_code(void **state)
{
    char path[4096];
    const char *build = getenv("LEAT_BUILD");
    struct nvml *nvml = NULL;
    struct leat_err err = {0};
    snprintf(path, sizeof path, "%s/tests/unit/observe/fake_nvml.so", build ? build : ".");
    setenv("FAKE_NVML", "unloaded", 1);
    assert_int_equal(nvml_open_library(path, "/", &nvml, &err), -ENXIO);
    setenv("FAKE_NVML", "empty", 1);
    assert_int_equal(nvml_open_library(path, "/", &nvml, &err), -ENODEV);
    assert_int_equal(nvml_open_library("libnothing-of-the-kind.so.1", "/", &nvml, &err), -ENOENT);
    assert_non_null(strstr(err.text, "libnothing-of-the-kind.so.1")); /* names the library */
    /* A library without NVML's functions. */
    assert_int_equal(nvml_open_library("libc.so.6", "/", &nvml, &err), -ENOSYS);
    assert_null(nvml);
    nvml_close(NULL);
}

static void real_device(void **state)
{
    struct nvml *nvml = NULL;
    struct leat_err err = {0};
    if (nvml_open(&nvml, &err) < 0) {
        assert_true(strlen(err.text) > 20);
        skip();
    }
    for (int i = 0; i < nvml_count(nvml); i++) {
        struct gpu_info g;
        assert_int_equal(nvml_read(nvml, i, &g), 0);
        assert_true(strlen(g.name) > 0 && strlen(g.uuid) > 0);
        assert_true(g.memory_total > 0 && g.memory_used >= 0 && g.memory_used <= g.memory_total);
        assert_true(isnan(g.utilization) || (g.utilization >= 0 && g.utilization <= 1));
        assert_true(g.temperature_c < 120);
    }
    const int64_t self[] = {getpid()};
    assert_int_equal(nvml_uses(nvml, 0, self, 1), 0); /* NVML is no context */
    nvml_close(nvml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_figures),
        cmocka_unit_test(unsupported_is_unknown),
        cmocka_unit_test(old_library),
        cmocka_unit_test(instances),
        cmocka_unit_test(by_process_id),
        cmocka_unit_test(by_open_device),
        cmocka_unit_test(each_failure_has_a_code),
        cmocka_unit_test(real_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
