/* test_facts_input.c: what the input path's tables become: sums and quantiles over workers, lines
 * over workers, and rows whose loader is unknown. */
#include "unit/diagnose/golden_testing.h"

#include "base/mem.h"

#include <math.h>

static char db_path[64];

/* The database of a script written here. */
static struct facts *load(const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    unlink(db_path);
    assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
    golden_schema(db);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s", message);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return golden_load(db_path);
}

static void near(double value, double expected, double ratio)
{
    if (!(fabs(value - expected) <= ratio * fabs(expected)))
        fail_msg("%g, expected %g", value, expected);
}

#define META "INSERT INTO meta VALUES ('schema', '" STORE_SCHEMA "');"

/* Bin 508 begins at 0.983 ms, 540 at 1.966 ms, 613 at 9.70 ms. */
static void test_quantiles_merge_workers(void **state)
{
    struct facts *f =
        load(META "INSERT INTO input_parts VALUES"
                  " (7, 0, 0, 'sample', 90, 90000000, 1100000, 0),"
                  " (7, 0, 1, 'sample', 8, 80000000, 10000000, 0),"
                  " (7, 0, -2, 'sample', 2, 20000000, 10000000, 0)," /* without a number */
                  " (7, 0, -1, 'unpickle', 4, 8000000, 3000000, 4096),"
                  " (7, 1, 0, 'sample', 50, 50000000000, 1000000000, 0);"
                  "INSERT INTO input_hist VALUES (7, 0, 0, 'sample', 508, 60),"
                  " (7, 0, 0, 'sample', 540, 30), (7, 0, 1, 'sample', 613, 10),"
                  " (7, 1, 0, 'sample', 783, 50);");
    struct part_stats s;
    facts_part(f, 7, 0, FACTS_WORKERS, LEAT_PART_SAMPLE, &s);
    near(s.n, 100, 0);
    near(s.total, 190, 1e-9);
    near(s.mean, 1.9, 1e-9);
    near(s.median, 1.0, 0.02);
    near(s.p90, 2.0, 0.02);
    near(s.p99, 9.94, 0.02);
    near(s.max, 10, 1e-9);
    facts_part(f, 7, 0, 1, LEAT_PART_SAMPLE, &s); /* one worker */
    near(s.median, 9.94, 0.02);
    facts_part(f, 7, 0, FACTS_PROCESS, LEAT_PART_UNPICKLE, &s);
    near(s.mean, 2, 1e-9);
    near(s.bytes, 4096, 0);
    assert_true(isnan(s.median)); /* no bins: not known, rather than 0 */
    facts_part(f, 7, 0, FACTS_ALL, LEAT_PART_PIN, &s);
    near(s.n, 0, 0);
    assert_true(isnan(s.mean) && isnan(s.max));
    double values[10];
    assert_int_equal(facts_part_quantiles(f, 7, 0, FACTS_WORKERS, LEAT_PART_SAMPLE, 10, values), 1);
    near(values[0], 1.0, 0.02);
    near(values[8], 2.0, 0.02);
    near(values[9], 9.94, 0.02);
    assert_int_equal(facts_part_quantiles(f, 7, 0, FACTS_ALL, LEAT_PART_PIN, 10, values), 0);
    facts_free(f);
}

static void test_ready_batches(void **state)
{
    struct facts *f =
        load(META "INSERT INTO input_ready VALUES (7, 0, -1, 0, 60), (7, 0, -1, 2, 30),"
                  " (7, 0, -1, 4, 10), (7, 0, -1, 9, -5), (8, 0, -1, 1, 1000);");
    struct ready_stats s;
    facts_ready(f, 7, 0, FACTS_PROCESS, &s);
    near(s.requests, 100, 0);
    near(s.mean, 1.0, 1e-9);
    assert_true(s.median == 0);
    near(s.none_share, 0.6, 1e-9);
    facts_ready(f, 7, 1, FACTS_PROCESS, &s);
    assert_true(s.requests == 0 && isnan(s.mean) && isnan(s.median) && isnan(s.none_share));
    facts_free(f);
}

/* Rows of loader -1 count for the only loader; with two loaders they count for none. */
static void test_unknown_loader(void **state)
{
    static const char rows[] =
        META "INSERT INTO input_parts VALUES (7, -1, 0, 'fetch', 10, 10000000, 1, 0);"
             "INSERT INTO loaders(pid, loader) VALUES (7, 0), (8, 3)";
    char two[512];
    struct part_stats s;
    struct facts *f = load(rows);
    facts_part(f, 7, 0, FACTS_WORKERS, LEAT_PART_FETCH, &s);
    near(s.n, 10, 0);
    facts_free(f);
    snprintf(two, sizeof two, "%s, (7, 1);", rows);
    f = load(two);
    facts_part(f, 7, 0, FACTS_WORKERS, LEAT_PART_FETCH, &s);
    near(s.n, 0, 0);
    facts_free(f);
}

/* The same line of two workers, whose ids differ, is one; a library's line keeps its caller. */
static void test_lines_over_workers(void **state)
{
    struct facts *f =
        load(META "INSERT INTO input_lines VALUES"
                  " (7, 0, 0, 0, NULL, 'sample', 'a.py', 5, 'f', 9, 100000000, 0, 0, 0, 0),"
                  " (7, 0, 0, 1, 0, 'sample', 'lib.py', 90, 'g', 5, 50000000, 50000000, 0, 0, 1),"
                  " (7, 0, 1, 4, NULL, 'sample', 'a.py', 5, 'f', 9, 200000000, 0, 60000000, 0, 0),"
                  " (7, 0, 1, 2, NULL, 'collate', 'a.py', 9, 'c', 9, 40000000, 0, 0, 10000000, 0),"
                  " (7, 0, 1, 7, 4, 'sample', 'lib.py', 90, 'g', 5, 60000000, NULL, 0, 0, 1),"
                  " (7, 0, 1, 5, NULL, 'sample', 'a.py', 6, 'f', 2, 30000000, 0, 0, 0, 0),"
                  " (7, 0, 1, 8, 5, 'sample', 'lib.py', 90, 'g', 2, 20000000, 0, 0, 0, 1),"
                  " (8, 0, 1, 7, NULL, 'sample', 'b.py', 1, 'g', 5, 900000000, 0, 0, 0, 0);");
    struct line_fact *lines = NULL;
    size_t n = 0;
    assert_int_equal(facts_lines(f, 7, 0, &lines, &n), 0);
    assert_int_equal(n, 5);
    assert_int_equal(lines[0].line->line, 5);
    near(lines[0].ms, 300, 1e-9);
    near(lines[0].decode_ms, 60, 1e-9);
    assert_null(lines[0].below);
    assert_int_equal(lines[0].line->library, 0);
    assert_int_equal(lines[1].line->line, 90);
    assert_int_equal(lines[1].line->library, 1);
    near(lines[1].ms, 110, 1e-9);
    near(lines[1].read_ms, 50, 1e-9);
    assert_int_equal(lines[1].below->line, 5);
    assert_int_equal(lines[2].line->part, LEAT_PART_COLLATE);
    assert_int_equal(lines[4].line->line, 90); /* called from another line: another entry */
    assert_int_equal(lines[4].below->line, 6);
    mem_free(lines);
    facts_free(f);
}

/* A part of a later version and bins out of range are ignored. */
static void test_foreign_rows(void **state)
{
    struct facts *f = load(META "INSERT INTO input_parts VALUES (7, 0, 0, 'later', 5, 5, 5, 0),"
                                " (7, 0, 0, 'fetch', 2, 2000000, 1000000, 0);"
                                "INSERT INTO input_hist VALUES (7, 0, 0, 'fetch', -4, 1),"
                                " (7, 0, 0, 'fetch', 1000000, 1), (7, 0, 0, 'later', 3, 7);");
    struct part_stats s;
    facts_part(f, 7, 0, FACTS_ALL, LEAT_PART_FETCH, &s);
    near(s.n, 2, 0);
    assert_true(isfinite(s.median));
    facts_free(f);
}

int main(void)
{
    snprintf(db_path, sizeof db_path, "/tmp/leat-facts-input-%d.db", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles_merge_workers),
        cmocka_unit_test(test_ready_batches),
        cmocka_unit_test(test_unknown_loader),
        cmocka_unit_test(test_lines_over_workers),
        cmocka_unit_test(test_foreign_rows),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(db_path);
    return failed;
}
