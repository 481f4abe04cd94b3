/* store_testing.h: what the tests of the store share: a folder of their own, steps whose sums are
 * known, and single numbers out of a database. */
#ifndef LEAT_TESTS_STORE_TESTING_H
#define LEAT_TESTS_STORE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/mem.h"
#include "unit/store/query.h"

static char test_folder[64];

/* The path of `name` in the test's folder, which is empty at the start of each program. Up to four
 * paths live at a time. */
static inline const char *test_path(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder, name);
    return path;
}

static inline int test_folder_make(void **state)
{
    strcpy(test_folder, "/tmp/leat-test-XXXXXX");
    return mkdtemp(test_folder) ? 0 : -1;
}

static inline int test_folder_remove(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", test_folder);
    return system(command);
}

static inline struct store_writer *test_writer(const char *path)
{
    struct store_writer *w = NULL;
    struct leat_err err = {""};
    unlink(path);
    if (store_writer_open(path, &w, &err))
        fail_msg("%s", err.text);
    return w;
}

/* Step `step` of `rank`: every number follows from the two, and wall is the sum of the phases. */
static inline struct step_row test_step(int rank, int64_t step)
{
    struct step_row row = {
        .id = store_step_id(rank, step), .samples = 32, .micro_steps = 1, .records = 5};
    for (int p = 0; p < PHASES; p++) {
        row.phase_ns[p] = p == PHASE_H2D ? STORE_NULL : 1000 + 37 * p + (step * 7 + rank) % 101;
        row.wall_ns += p == PHASE_H2D ? 0 : row.phase_ns[p];
    }
    row.end_ns = (step + 1) * 10000;
    return row;
}

static inline int64_t test_wall_sum(int rank, int64_t from, int64_t to)
{
    int64_t sum = 0;
    for (int64_t s = from; s < to; s++)
        sum += test_step(rank, s).wall_ns;
    return sum;
}

static inline void test_add_steps(struct store_writer *w, int rank, int64_t from, int64_t to)
{
    for (int64_t s = from; s < to; s++) {
        struct step_row row = test_step(rank, s);
        assert_int_equal(store_add_step(w, &row), 0);
    }
}

static inline int64_t test_int(struct store_reader *r, const char *sql)
{
    return query_int(r, sql, INT64_MIN);
}

static inline struct store_reader *test_reader(const char *path)
{
    struct store_reader *r = NULL;
    struct leat_err err = {""};
    if (store_reader_open(path, &r, &err))
        fail_msg("%s", err.text);
    return r;
}

/* Closes the writer, which must not have lost anything. */
static inline void test_close(struct store_writer *w)
{
    struct leat_err note = {""};
    assert_int_equal(store_writer_close(w, &note), 0);
    assert_string_equal(note.text, "");
}

#endif
