/* observe_testing.h: what the tests of observe share. */
#ifndef LEAT_TESTS_OBSERVE_TESTING_H
#define LEAT_TESTS_OBSERVE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The recorded root "root-NAME" under tests/data. */
static inline const char *data_root(const char *name)
{
    static char path[4096];
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(path, sizeof path, "%s/root-%s", data ? data : "tests/data", name);
    return path;
}

/* assert_int_equal goes by unsigned long; this one shows -1 as -1. */
#define assert_i64(actual, expected)                                                               \
    do {                                                                                           \
        int64_t actual_ = (actual), expected_ = (expected);                                        \
        if (actual_ != expected_)                                                                  \
            fail_msg("%s is %lld, not %lld", #actual, (long long)actual_, (long long)expected_);   \
    } while (0)

#endif
