/* test_permutation.c: the computed order has each index exactly once, and statistical tests do not
 * distinguish it from a random order.
 *
 * A chi-square with k degrees of freedom has the mean k and the standard deviation sqrt(2k). The
 * tests allow five standard deviations from the mean. A random order exceeds that once in 70 000
 * times with k = 99, the smallest here, and less often with a larger k. The keys are fixed, so the
 * figures are the same on every machine. */
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

static void every_index_comes_once(void **state)
{
    for (uint64_t n = 0; n < 600; n++)
        check_bijection(n, n * 7 + 1);
    static const uint64_t sizes[] = {1023, 1024, 1025, 65535, 65536, 65537, 99991, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t key = 0; key < 3; key++)
            check_bijection(sizes[i], key);
}

/* From any start, for any count. */
static void fill_equals_single_positions(void **state)
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

static void assert_equal_counts(const int *cells, size_t count, double expected, const char *what)
{
    double k = (double)count - 1, chi = chi_square(cells, count, expected);
    if (chi > k + 5 * sqrt(2 * k) || chi < k - 5 * sqrt(2 * k))
        fail_msg("%s: chi-square %.1f for %.0f degrees of freedom", what, chi, k);
}

/* Over 120 000 keys, each of the 120 orders of five indices comes equally often. An order is
 * counted in the cell whose number is its indices as digits to the base 5. */
static void orders_of_five_are_equally_likely(void **state)
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
    assert_equal_counts(found, 120, 1000, "orders of five");
}

/* Over 20 000 keys, each position has each index equally often. */
static void indices_are_equally_likely_at_every_position(void **state)
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
    /* The sums of rows and columns are fixed: (N-1)^2 degrees of freedom. The exact mean of chi,
     * N (N-1), is 0.7 standard deviations above that. */
    double k = (N - 1.0) * (N - 1.0), chi = chi_square(cells, N * N, (double)KEYS / N);
    assert_true(fabs(chi - k) < 5 * sqrt(2 * k));
}

/* In one large order: a position and its index are independent, so are the indices of neighbours,
 * and every difference between neighbours (modulo N) is equally likely. */
static void large_orders_look_random(void **state)
{
    enum { N = 1000003, CELLS = 100 };
    int64_t *indices = malloc(N * sizeof *indices);
    for (uint64_t key = 0; key < 4; key++) {
        static int by_position[CELLS * CELLS], pairs[CELLS * CELLS], differences[CELLS];
        memset(by_position, 0, sizeof by_position);
        memset(pairs, 0, sizeof pairs);
        memset(differences, 0, sizeof differences);
        struct permutation p;
        double correlation = 0, middle = (N - 1) / 2.0;
        permutation_init(&p, N, key);
        permutation_fill(&p, 0, N, 0, indices);
        for (int64_t i = 0; i < N; i++) {
            int64_t next = indices[(i + 1) % N], cell = indices[i] * CELLS / N;
            by_position[i * CELLS / N * CELLS + cell]++;
            pairs[cell * CELLS + next * CELLS / N]++;
            differences[(next - indices[i] + N) % N * CELLS / N]++;
            correlation += ((double)indices[i] - middle) * ((double)next - middle);
        }
        assert_equal_counts(by_position, CELLS * CELLS, (double)N / (CELLS * CELLS),
                            "position and index");
        assert_equal_counts(pairs, CELLS * CELLS, (double)N / (CELLS * CELLS), "neighbours");
        assert_equal_counts(differences, CELLS, (double)N / CELLS, "differences");
        /* For N independent pairs its standard deviation is 1 / sqrt(N). */
        correlation /= (double)N * ((double)N * N - 1) / 12.0;
        assert_true(fabs(correlation) < 5 / sqrt(N));
    }
    free(indices);
}

/* Keys that differ in one bit give unrelated orders: on average one index has the same position in
 * both. */
static void similar_keys_give_unrelated_orders(void **state)
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
    /* A Poisson distribution with mean 64, so a standard deviation of 8. */
    assert_in_range(kept, pairs - 5 * 8, pairs + 5 * 8);
}

/* A random permutation of n has 1 + 1/2 + ... + 1/n cycles on average. */
static void number_of_cycles_is_that_of_random_orders(void **state)
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
        cmocka_unit_test(every_index_comes_once),
        cmocka_unit_test(fill_equals_single_positions),
        cmocka_unit_test(orders_of_five_are_equally_likely),
        cmocka_unit_test(indices_are_equally_likely_at_every_position),
        cmocka_unit_test(large_orders_look_random),
        cmocka_unit_test(similar_keys_give_unrelated_orders),
        cmocka_unit_test(number_of_cycles_is_that_of_random_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
