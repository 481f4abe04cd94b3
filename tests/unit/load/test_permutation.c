/* test_permutation.c: the computed order is an order, and none that a statistic tells from chance.
 *
 * The bars: a chi-square of k cells with fixed seeds is compared with k + 5 sqrt(2k), five standard
 * deviations above its mean; chance exceeds that once in some million. The figures are the same on
 * every machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "load/permutation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_bijection(uint64_t n, uint64_t key)
{
    struct permutation p;
    int64_t *indices = malloc((n + 1) * sizeof *indices);
    char *seen = calloc(n + 1, 1);
    permutation_init(&p, n, key);
    assert_true((uint64_t)p.a * p.b >= n);
    permutation_fill(&p, 0, n, 0, indices);
    for (uint64_t i = 0; i < n; i++) {
        assert_in_range(indices[i], 0, n - 1);
        assert_int_equal(seen[indices[i]]++, 0);
    }
    free(indices);
    free(seen);
}

static void is_a_bijection(void **state)
{
    for (uint64_t n = 0; n < 600; n++)
        check_bijection(n, n * 7 + 1);
    static const uint64_t sizes[] = {1023, 1024, 1025, 65535, 65536, 65537, 99991, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t key = 0; key < 3; key++)
            check_bijection(sizes[i], key);
}

/* Bulk and single positions agree from any start, for any count. */
static void bulk_equals_single(void **state)
{
    static const uint64_t sizes[] = {
        1, 7, 300, 70000, 7000000, UINT64_C(1) << 40, UINT64_C(1) << 62};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct permutation p;
        permutation_init(&p, sizes[s], 42);
        for (uint64_t first = 0; first < sizes[s]; first += sizes[s] / 3 + 1) {
            int64_t indices[700];
            size_t most = sizes[s] - first < 700 ? (size_t)(sizes[s] - first) : 700;
            for (size_t count = 1; count <= most; count += 37) {
                permutation_fill(&p, first, count, 5, indices);
                for (size_t i = 0; i < count; i++)
                    assert_int_equal(indices[i] - 5, permutation_at(&p, first + i));
            }
        }
    }
}

static double chi_square(const int *cells, size_t count, double expected)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (cells[i] - expected) * (cells[i] - expected) / expected;
    return sum;
}

static void assert_even(const int *cells, size_t count, double expected, const char *what)
{
    double k = (double)count - 1, chi = chi_square(cells, count, expected);
    if (chi > k + 5 * sqrt(2 * k) || chi < k - 5 * sqrt(2 * k))
        fail_msg("%s: chi-square %.1f for %.0f degrees of freedom", what, chi, k);
}

/* All 120 orders of five, and the 24 of four, are equally likely over keys. */
static void small_orders_are_all_likely(void **state)
{
    int cells[3125] = {0}, found[120], count = 0;
    for (uint64_t key = 0; key < 120000; key++) {
        struct permutation p;
        int code = 0;
        permutation_init(&p, 5, key);
        for (uint64_t i = 0; i < 5; i++)
            code = code * 5 + (int)permutation_at(&p, i);
        cells[code]++;
    }
    for (int i = 0; i < 3125; i++)
        if (cells[i]) {
            assert_true(count < 120);
            found[count++] = cells[i];
        }
    assert_int_equal(count, 120);
    assert_even(found, 120, 1000, "orders of five");
}

/* Over keys, each place holds each index equally often. */
static void every_place_is_likely(void **state)
{
    enum { N = 101, KEYS = 20000 };
    static int cells[N * N];
    for (uint64_t key = 0; key < KEYS; key++) {
        struct permutation p;
        int64_t indices[N];
        permutation_init(&p, N, key);
        permutation_fill(&p, 0, N, 0, indices);
        for (int i = 0; i < N; i++)
            cells[i * N + indices[i]]++;
    }
    /* Rows and columns have fixed sums, so the freedom is (N-1)^2; the factor puts that right. */
    double k = (N - 1.0) * (N - 1.0), chi = chi_square(cells, N * N, (double)KEYS / N);
    assert_true(fabs(chi - k) < 5 * sqrt(2 * k));
}

/* Within one large order: first halves and places, neighbours, and the step between neighbours. */
static void large_orders_look_random(void **state)
{
    enum { N = 1000003, CELLS = 100 };
    int64_t *indices = malloc(N * sizeof *indices);
    for (uint64_t key = 0; key < 4; key++) {
        static int by_place[CELLS * CELLS], pairs[CELLS * CELLS], steps[CELLS];
        memset(by_place, 0, sizeof by_place);
        memset(pairs, 0, sizeof pairs);
        memset(steps, 0, sizeof steps);
        struct permutation p;
        double correlation = 0, middle = (N - 1) / 2.0;
        permutation_init(&p, N, key);
        permutation_fill(&p, 0, N, 0, indices);
        for (int64_t i = 0; i < N; i++) {
            int64_t next = indices[(i + 1) % N], cell = indices[i] * CELLS / N;
            by_place[i * CELLS / N * CELLS + cell]++;
            pairs[cell * CELLS + next * CELLS / N]++;
            steps[(next - indices[i] + N) % N * CELLS / N]++;
            correlation += ((double)indices[i] - middle) * ((double)next - middle);
        }
        assert_even(by_place, CELLS * CELLS, (double)N / (CELLS * CELLS), "place against index");
        assert_even(pairs, CELLS * CELLS, (double)N / (CELLS * CELLS), "neighbours");
        assert_even(steps, CELLS, (double)N / CELLS, "steps");
        /* Of N independent pairs it has a standard deviation of 1 / sqrt(N). */
        correlation /= (double)N * ((double)N * N - 1) / 12.0;
        assert_true(fabs(correlation) < 5 / sqrt(N));
    }
    free(indices);
}

/* Keys that differ in one bit give unrelated orders: about one index keeps its place. */
static void keys_are_unrelated(void **state)
{
    enum { N = 20011 };
    static int64_t a[N], b[N];
    int kept = 0, pairs = 0;
    for (int bit = 0; bit < 64; bit++) {
        struct permutation p;
        permutation_init(&p, N, 99);
        permutation_fill(&p, 0, N, 0, a);
        permutation_init(&p, N, 99 ^ UINT64_C(1) << bit);
        permutation_fill(&p, 0, N, 0, b);
        for (int i = 0; i < N; i++)
            kept += a[i] == b[i];
        pairs++;
    }
    /* Poisson with mean 64. */
    assert_in_range(kept, pairs - 5 * 8, pairs + 5 * 8);
}

/* The number of cycles of a random permutation is about ln n: no hidden structure. */
static void the_number_of_cycles_is_random(void **state)
{
    enum { N = 65537, KEYS = 200 };
    static char seen[N];
    static int64_t indices[N];
    double cycles = 0, expected = 0, variance = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        struct permutation p;
        permutation_init(&p, N, key);
        permutation_fill(&p, 0, N, 0, indices);
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < N; i++) {
            if (!seen[i])
                cycles++;
            for (int64_t k = i; !seen[k]; k = indices[k])
                seen[k] = 1;
        }
    }
    for (int i = 1; i <= N; i++) {
        expected += 1.0 / i;
        variance += 1.0 / i - 1.0 / i / i;
    }
    assert_true(fabs(cycles / KEYS - expected) < 5 * sqrt(variance / KEYS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_a_bijection),
        cmocka_unit_test(bulk_equals_single),
        cmocka_unit_test(small_orders_are_all_likely),
        cmocka_unit_test(every_place_is_likely),
        cmocka_unit_test(large_orders_look_random),
        cmocka_unit_test(keys_are_unrelated),
        cmocka_unit_test(the_number_of_cycles_is_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
