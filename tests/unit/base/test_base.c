/* test_base.c: errors, memory, strings, numbers, files and statistics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/duration_histogram.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/path.h"
#include "base/stats.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void error_codes_have_texts(void **state)
{
    assert_string_equal(err_text(-LEAT_E_CORRUPT), "the data is damaged");
    assert_string_equal(err_text(LEAT_E_CORRUPT), "the data is damaged");
    assert_string_equal(err_text(-ENOENT), strerror(ENOENT));
    struct leat_err err = {""};
    assert_int_equal(err_set(&err, -EIO, "%s is gone", "x"), -EIO);
    assert_string_equal(err.text, "x is gone");
    assert_int_equal(err_set(NULL, -EIO, "nobody listens"), -EIO);
}

static void numbers_are_whole_or_nothing(void **state)
{
    uint64_t u = 7;
    int64_t i = 7;
    double d = 7;
    const char *bad[] = {"", " 1", "1 ", "-", "x", "1x", "+1", "18446744073709551616"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_true(num_parse_u64(bad[k], &u) < 0 && u == 7);
    assert_int_equal(num_parse_u64("18446744073709551615", &u), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(num_parse_i64("-9223372036854775808", &i), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(num_parse_i64("9223372036854775808", &i), -ERANGE);
    assert_int_equal(num_parse_i64("-", &i), -EINVAL);
    assert_int_equal(num_parse_f64("inf", &d), -ERANGE);
    assert_int_equal(num_parse_f64("0.03", &d), 0);
    assert_true(d == 0.03);
}

static void strings_grow_and_remember_failure(void **state)
{
    struct str s = {0};
    for (int k = 0; k < 1000; k++)
        str_addf(&s, "%d,", k);
    assert_int_equal(s.failed, 0);
    assert_int_equal(s.length, 3890);
    mem_fail_at(1);
    struct str t = {0};
    str_add(&t, "gone");
    mem_fail_at(0);
    str_add(&t, "also gone");
    assert_int_equal(t.failed, 1);
    assert_string_equal(str_text(&t), "");
    str_done(&s);
    str_done(&t);
}

static void quantiles_match_their_definition(void **state)
{
    double v[] = {4, 1, 3, 2};
    assert_true(stats_quantile(v, 4, 0.5) == 2.5);
    assert_true(stats_quantile(v, 4, 0) == 1);
    assert_true(stats_quantile(v, 4, 1) == 4);
    assert_true(isnan(stats_quantile(v, 0, 0.5)));
    double many[10007];
    for (int k = 0; k < 10007; k++)
        many[k] = (double)((k * 7919) % 10007);
    assert_true(stats_quantile(many, 10007, 0.99) == 0.99 * 10006);
    double same[1000];
    for (int k = 0; k < 1000; k++)
        same[k] = 5;
    assert_true(stats_quantile(same, 1000, 0.9) == 5);
}

static void several_quantiles_are_those_of_single_calls(void **state)
{
    static const double q[] = {0, 0.25, 0.25, 0.5, 0.9, 0.99, 1};
    enum { COUNT = sizeof q / sizeof *q, MOST = 50 };
    for (size_t n = 0; n <= MOST; n++) {
        double values[MOST + 1] = {0}, copy[MOST + 1], found[COUNT];
        for (size_t i = 0; i < n; i++)
            values[i] = (double)(stats_random(n, i) % 20);
        memcpy(copy, values, sizeof copy);
        stats_quantiles(copy, n, q, COUNT, found);
        for (size_t i = 0; i < COUNT; i++) {
            memcpy(copy, values, sizeof copy);
            double single = stats_quantile(copy, n, q[i]);
            assert_true(found[i] == single || (isnan(found[i]) && isnan(single)));
        }
    }
}

static void histograms_give_quantiles(void **state)
{
    uint64_t counts[DURATION_BUCKETS] = {0}, more[DURATION_BUCKETS] = {0};
    assert_true(isnan(duration_histogram_quantile_ns(counts, 0.5)));
    counts[duration_bucket_of(7)] = 3;
    more[duration_bucket_of(1000000)] = 1;
    more[duration_bucket_of(7)] = UINT64_MAX;
    duration_histogram_merge(counts, more);
    assert_true(counts[7] == UINT64_MAX);
    counts[7] = 3;
    assert_true(duration_histogram_quantile_ns(counts, 0) == 7);
    assert_true(duration_histogram_quantile_ns(counts, 0.75) == 7);
    double last = duration_histogram_quantile_ns(counts, 0.76);
    assert_true(fabs(last - 1e6) <= 0.016 * 1e6);
}

static void slope_is_robust(void **state)
{
    double x[101], y[101];
    for (int k = 0; k < 101; k++) {
        x[k] = k;
        y[k] = 3 * k + (k % 10 == 0 ? 500 : 0);
    }
    struct stats_slope slope;
    assert_int_equal(stats_theil_sen(x, y, 101, &slope), 0);
    assert_true(fabs(slope.slope - 3) < 0.01 && slope.low > 0 && slope.high < 10);
    for (int k = 0; k < 101; k++) /* noise around a constant: the interval holds zero */
        y[k] = (double)(stats_random(1, (uint64_t)k) % 1000);
    assert_int_equal(stats_theil_sen(x, y, 101, &slope), 0);
    assert_true(slope.low <= 0 && slope.high >= 0);
    assert_int_equal(stats_theil_sen(x, y, 2, &slope), -EINVAL);
}

static void files_are_whole_or_untouched(void **state)
{
    char folder[] = "/tmp/leat-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *deep = path_join(folder, "a", "b c", NULL);
    struct leat_err err = {""};
    assert_int_equal(path_make_dirs(deep, &err), 0);
    struct stat st;
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    char *file = path_join(deep, "f", NULL);
    assert_int_equal(path_write_file(file, "hello", 5, &err), 0);
    char *text;
    size_t bytes;
    assert_int_equal(path_read_file(file, 5, &text, &bytes, &err), 0);
    assert_string_equal(text, "hello");
    mem_free(text);
    assert_int_equal(path_read_file(file, 4, &text, &bytes, &err), -EFBIG);
    assert_int_equal(path_write_file("/proc/nowhere/f", "x", 1, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/proc/nowhere/f"));
    assert_true(path_make_dirs("/dev/null/x", &err) < 0);
    int why =
        path_make_dirs("/sys/leat", &err); /* no permission, or read-only: not "no such file" */
    assert_true(why < 0 && why != -ENOENT);
    unlink(file);
    rmdir(deep);
    char *middle = path_join(folder, "a", NULL);
    rmdir(middle);
    char *temporary = NULL, *start = path_join(folder, "leat-a b-", NULL);
    setenv("TMPDIR", folder, 1);
    assert_int_equal(path_make_temporary("a b", &temporary), 0);
    assert_int_equal(strncmp(temporary, start, strlen(start)), 0);
    assert_int_equal(stat(temporary, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    rmdir(temporary);
    mem_free(temporary);
    setenv("TMPDIR", "/nowhere/at/all", 1);
    assert_int_equal(path_make_temporary("a", &temporary), 0);
    assert_int_equal(strncmp(temporary, "/tmp/leat-a-", 12), 0);
    rmdir(temporary);
    setenv("TMPDIR", "not/from/the/root", 1);
    assert_string_equal(path_temporary(), "/tmp");
    assert_int_equal(rmdir(folder), 0); /* no temporary file was left */
    mem_free(temporary);
    mem_free(start);
    mem_free(file);
    mem_free(deep);
    mem_free(middle);
}

static void json_of_any_shape_is_safe(void **state)
{
    json_t *o = NULL;
    struct leat_err err = {""};
    const char *good = "{\"a\":{\"b\":2.5,\"c\":\"x\"}}";
    assert_int_equal(json_parse(good, strlen(good), &o, &err), 0);
    assert_true(json_find_number(o, "a.b", 0) == 2.5);
    assert_true(isnan(json_find_number(o, "a.c", NAN)));
    assert_string_equal(json_find_text(o, "a.c", ""), "x");
    assert_null(json_find(o, "a.b.c.d"));
    json_decref(o);
    assert_int_equal(json_parse("[1]", 3, &o, &err), -LEAT_E_FOREIGN);
    assert_int_equal(json_parse("{\"a\":", 5, &o, &err), -LEAT_E_CORRUPT);
    json_t *n = json_number_or_null(NAN);
    assert_true(json_is_null(n));
}

static void every_allocation_may_fail(void **state)
{
    int failures = 0;
    for (unsigned long n = 1; n < 50; n++) {
        mem_fail_at(n);
        char *p = path_join("a", "b", "c", NULL);
        struct stats_slope slope;
        double x[] = {1, 2, 3, 4}, y[] = {1, 2, 3, 4};
        int result = stats_theil_sen(x, y, 4, &slope);
        failures += !p + (result < 0);
        mem_free(p);
    }
    mem_fail_at(0);
    assert_int_equal(failures, 2); /* each of the two allocations failed once */
}

static void a_split_character_is_cut(void **state)
{
    static const char text[] =
        "a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80z"; /* a, 2, 3 and 4 bytes, z */
    static const size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_int_equal(str_whole_utf8(text, i), expected[i]);
    assert_int_equal(str_whole_utf8("\x80\x80\x80\x80\x80", 5), 5); /* not UTF-8 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_character_is_cut),
        cmocka_unit_test(error_codes_have_texts),
        cmocka_unit_test(numbers_are_whole_or_nothing),
        cmocka_unit_test(strings_grow_and_remember_failure),
        cmocka_unit_test(quantiles_match_their_definition),
        cmocka_unit_test(several_quantiles_are_those_of_single_calls),
        cmocka_unit_test(histograms_give_quantiles),
        cmocka_unit_test(slope_is_robust),
        cmocka_unit_test(files_are_whole_or_untouched),
        cmocka_unit_test(json_of_any_shape_is_safe),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
