/* test_call_site_table.c: counts by call site: exact from many threads, until the table is full and
 * after.
 */
#include "record/call_site_table.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct call_site_table table;

static int begin(void **state)
{
    memset(&table, 0, sizeof table);
    return 0;
}

static int rows_used(void)
{
    int n = 0;
    for (uint32_t i = 0; i < CALL_SITES; i++)
        n += call_site_find(&table, i) != NULL;
    return n;
}

/* The sums of all rows that have a class and the first word of a stack. */
static struct call_site_row sum_of(uint32_t class, uint64_t first)
{
    struct call_site_row sum = {0};
    for (uint32_t i = 0; i < CALL_SITES; i++) {
        const struct call_site_row *row = call_site_find(&table, i);
        if (!row || row->class != class || row->stack[0] != first)
            continue;
        sum.n += row->n;
        sum.ns += row->ns;
        sum.bytes += row->bytes;
        sum.steps += row->steps;
        sum.words = row->words;
    }
    return sum;
}

static void a_place_is_a_class_and_a_stack(void **state)
{
    const uint64_t one[] = {0x7f0000001000, 12}, other[] = {0x7f0000001000, 14};
    for (int i = 0; i < 7; i++)
        assert_int_equal(call_site_add(&table, 3, one, 2, 0, 10, 100), i == 0);
    call_site_add(&table, 3, other, 2, 0, 1, 0);
    call_site_add(&table, 4, one, 2, 0, 1, 0);
    call_site_add(&table, 3, one, 1, 0, 1, 0);
    assert_int_equal(rows_used(), 4);
    struct call_site_row sum = sum_of(3, one[0]);
    assert_int_equal(sum.n, 9);
    assert_int_equal(sum.ns, 72);
    assert_int_equal(sum.bytes, 700);
    assert_int_equal(sum_of(4, one[0]).n, 1);
}

static void steps_are_those_in_which_it_happened(void **state)
{
    const uint64_t place = 0x1000;
    for (uint64_t step = 0; step < 23; step++)
        for (int i = 0; i < 5; i++)
            call_site_add(&table, 0, &place, 1, step, 1, 1);
    struct call_site_row sum = sum_of(0, place);
    assert_int_equal(sum.n, 115);
    assert_int_equal(sum.steps, 23);
}

static void a_full_table_counts_what_it_lost(void **state)
{
    for (uint64_t place = 1; place <= CALL_SITES + 11; place++)
        for (int i = 0; i < 3; i++)
            call_site_add(&table, 1, &place, 1, 0, 2, 1);
    assert_int_equal(rows_used(), CALL_SITES);
    assert_int_equal(table.lost, 3 * 11);
    for (uint64_t place = 1; place <= CALL_SITES; place++) {
        assert_int_equal(sum_of(1, place).n, 3);
        assert_int_equal(sum_of(1, place).ns, 6);
    }
}

static void a_long_stack_is_cut(void **state)
{
    uint64_t stack[CALL_SITE_WORDS + 9] = {5};
    call_site_add(&table, 1, stack, CALL_SITE_WORDS + 9, 0, 1, 0);
    stack[CALL_SITE_WORDS] = 1; /* frames beyond the limit do not distinguish call sites */
    call_site_add(&table, 1, stack, CALL_SITE_WORDS + 9, 0, 1, 0);
    assert_int_equal(rows_used(), 1);
    assert_int_equal(sum_of(1, 5).n, 2);
    assert_int_equal(sum_of(1, 5).words, CALL_SITE_WORDS);
}

enum { THREADS = 8, TIMES = 20000, PLACES = 13 };

static void *add_many(void *unused)
{
    for (uint64_t i = 0; i < TIMES; i++) {
        uint64_t stack[2] = {1 + i % PLACES, 7};
        call_site_add(&table, 2, stack, 2, i, 3, 5);
    }
    return unused;
}

static void threads_lose_nothing(void **state)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t n = 0, ns = 0, bytes = 0;
    for (uint64_t place = 1; place <= PLACES; place++) {
        n += sum_of(2, place).n;
        ns += sum_of(2, place).ns;
        bytes += sum_of(2, place).bytes;
    }
    assert_int_equal(table.lost, 0);
    assert_int_equal(n, (uint64_t)THREADS * TIMES);
    assert_int_equal(ns, 3 * n);
    assert_int_equal(bytes, 5 * n);
}

static void nothing_is_allocated(void **state)
{
    size_t before = mallinfo2().uordblks;
    for (uint64_t place = 1; place <= 2 * CALL_SITES; place++)
        call_site_add(&table, 1, &place, 1, 0, 2, 1);
    assert_int_equal(mallinfo2().uordblks, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_place_is_a_class_and_a_stack, begin),
        cmocka_unit_test_setup(steps_are_those_in_which_it_happened, begin),
        cmocka_unit_test_setup(a_full_table_counts_what_it_lost, begin),
        cmocka_unit_test_setup(a_long_stack_is_cut, begin),
        cmocka_unit_test_setup(threads_lose_nothing, begin),
        cmocka_unit_test_setup(nothing_is_allocated, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
