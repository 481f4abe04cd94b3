/* The probe where CUDA is in no global scope: a plug-in loads it with RTLD_LOCAL, as an extension
 * of Python does. This program is linked with the probe and with nothing of CUDA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "record/probe_abi.h"

#include <dlfcn.h>
#include <stdlib.h>

extern int leat_probe_read(uint32_t classes, struct leat_cuda_total *ret_totals);
extern int cudaDeviceSynchronize(void);

static uint64_t count(enum leat_cuda_class class)
{
    struct leat_cuda_total totals[LEAT_CUDA_CLASSES_COUNT];
    return leat_probe_read(LEAT_CUDA_CLASSES_COUNT, totals) ? totals[class].n : 0;
}

static void without_cuda_there_is_no_device(void **state)
{
    assert_int_equal(cudaDeviceSynchronize(), 100);
    assert_int_equal(count(LEAT_CUDA_SYNC), 0);
}

static void a_plugin_reaches_its_own_cuda(void **state)
{
    void *plugin = dlopen(getenv("LEAT_TEST_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    if (!plugin)
        fail_msg("%s", dlerror());
    assert_null(dlsym(RTLD_DEFAULT, "fake_calls")); /* a precondition of this test */
    int (*launch)(void) = (int (*)(void))dlsym(plugin, "fake_plugin_launch");
    int (*missing)(void) = (int (*)(void))dlsym(plugin, "fake_plugin_missing");
    const _Atomic long *calls = dlsym(plugin, "fake_calls");
    for (int i = 0; i < 101; i++)
        assert_int_equal(launch(), 0);
    assert_int_equal(*calls, 101);
    assert_int_equal(count(LEAT_CUDA_LAUNCH), 101);
    assert_int_equal(missing(), 100); /* a function that this CUDA lacks */
    assert_int_equal(count(LEAT_CUDA_D2D), 0);
    assert_null(dlerror());
}

/* The first version is in the global scope now, as PyTorch's is; a library linked with the second
 * must still get that one, and a program linked with none the global one. */
static void two_versions_stay_apart(void **state)
{
    void *global = dlopen(getenv("LEAT_TEST_GLOBAL"), RTLD_NOW | RTLD_GLOBAL);
    void *other = dlopen(getenv("LEAT_TEST_OTHER"), RTLD_NOW | RTLD_LOCAL);
    if (!global || !other)
        fail_msg("%s", dlerror());
    int (*launch)(void) = (int (*)(void))dlsym(other, "fake_plugin_launch");
    const _Atomic long *first = dlsym(global, "fake_calls"), *second = dlsym(other, "other_calls");
    long first_before = *first;
    uint64_t before = count(LEAT_CUDA_LAUNCH);
    for (int i = 0; i < 23; i++)
        assert_int_equal(launch(), 0);
    assert_int_equal(*second, 23);
    assert_int_equal(*first, first_before);
    assert_int_equal(count(LEAT_CUDA_LAUNCH) - before, 23);
    assert_int_equal(cudaDeviceSynchronize(), 0); /* this program is linked with none */
    assert_int_equal(*first, first_before + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_cuda_there_is_no_device),
        cmocka_unit_test(a_plugin_reaches_its_own_cuda),
        cmocka_unit_test(two_versions_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
