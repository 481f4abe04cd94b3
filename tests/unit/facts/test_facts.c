/* test_facts.c: which steps are kept, what their figures are, which rank is typical, and that every
 * failed allocation is reported. */
#include "unit/diagnose/golden_testing.h"

#include "base/mem.h"
#include "base/stats.h"
#include "facts/facts_load.h"

#include <math.h>

static char db_path[64];

/* ---- warm-up ------------------------------------------------------------------------------- */

static double walls[4000], scratch[4000];

static size_t warmup(size_t n)
{
    return facts_warmup(walls, n, scratch);
}

static void even(size_t n, double ms)
{
    for (size_t i = 0; i < n; i++)
        walls[i] = ms * (1 + (double)(i * 7919 % 11) / 500);
}

static void test_warmup_least_and_most(void **state)
{
    even(1000, 10);
    assert_int_equal(warmup(1000), 3);
    assert_int_equal(warmup(20), 3);
    assert_int_equal(warmup(19), 0);
    assert_int_equal(warmup(0), 0);
    assert_int_equal(warmup(1), 0);
    /* Not settled in the first tenth: a tenth is left out, no more. */
    for (size_t i = 0; i < 400; i++)
        walls[i] = 30;
    assert_int_equal(warmup(1000), 100);
    /* A tenth of 25 steps is below the minimum. */
    even(25, 10);
    walls[0] = walls[1] = walls[2] = walls[3] = walls[4] = 90;
    assert_int_equal(warmup(25), 3);
}

static void test_warmup_ends_where_it_settles(void **state)
{
    even(1000, 10);
    for (size_t i = 0; i < 17; i++)
        walls[i] = 40 - (double)i;
    assert_int_equal(warmup(1000), 17);
    /* Full prefetch queues make first steps fast: they are no part of the settled run either. */
    even(1000, 10);
    for (size_t i = 0; i < 12; i++)
        walls[i] = 3;
    size_t n = warmup(1000);
    assert_true(n >= 9 && n <= 12); /* the running median looks five steps ahead */
    /* One fast step among slow ones does not end the warm-up. */
    even(1000, 10);
    for (size_t i = 0; i < 15; i++)
        walls[i] = 40;
    walls[4] = 10;
    assert_int_equal(warmup(1000), 15);
    /* A single slow step after the start is a stall, and stays. */
    even(1000, 10);
    walls[6] = 300;
    assert_int_equal(warmup(1000), 3);
    /* Steps that always vary settle at once. */
    for (size_t i = 0; i < 1000; i++)
        walls[i] = i % 2 ? 5 : 15;
    assert_int_equal(warmup(1000), 3);
}

static void test_warmup_of_short_runs(void **state)
{
    even(10, 10);
    walls[0] = 300;
    assert_int_equal(warmup(10), 1);
    walls[0] = 20;
    assert_int_equal(warmup(10), 0);
    walls[0] = 300;
    assert_int_equal(warmup(3), 1);
    assert_int_equal(warmup(2), 0); /* one step would be left: nothing to compare with */
}

/* ---- figures ------------------------------------------------------------------------------- */

static void fill_rank(struct rank_facts *r, size_t n, double (*wall)(size_t))
{
    *r = (struct rank_facts){.count = n, .kept = (int64_t)n, .steps = (int64_t)n};
    r->wall_ms = mem_alloc_array(n, sizeof *r->wall_ms);
    r->weight = mem_alloc_array(n, sizeof *r->weight);
    for (size_t i = 0; i < n; i++) {
        r->wall_ms[i] = wall(i);
        r->weight[i] = 1;
        r->kept_ms += r->wall_ms[i];
    }
}

static void free_rank(struct rank_facts *r)
{
    mem_free(r->wall_ms);
    mem_free(r->weight);
    mem_free(r->stats);
}

static double wall_random(size_t i)
{
    return (double)(stats_random(1, i) % 100000) / 7.0;
}
static double wall_constant(size_t i)
{
    return 12.5;
}
static double wall_zeros(size_t i)
{
    return i % 3 ? 0 : (double)i;
}
static double wall_wide(size_t i)
{
    return ldexp(1.0 + (double)(i % 7), (int)(i % 60) - 40);
}

static void test_quantiles_are_exact(void **state)
{
    double (*const kinds[])(size_t) = {wall_random, wall_constant, wall_zeros, wall_wide};
    const size_t sizes[] = {1, 2, 3, 10, 101, 3000};
    for (size_t k = 0; k < 4; k++)
        for (size_t j = 0; j < 6; j++) {
            struct rank_facts r;
            fill_rank(&r, sizes[j], kinds[k]);
            assert_int_equal(facts_compute_stats(&r), 0);
            const double *got = &r.stats[PHASES].median;
            const double wanted[] = {0.5, 0.9, 0.99};
            for (int q = 0; q < 3; q++) {
                memcpy(scratch, r.wall_ms, sizes[j] * sizeof *scratch);
                double truth = stats_quantile(scratch, sizes[j], wanted[q]);
                if (fabs(got[q] - truth) > 1e-9 * (1 + truth))
                    fail_msg("kind %zu, n %zu, q %g: %g is not %g", k, sizes[j], wanted[q], got[q],
                             truth);
            }
            free_rank(&r);
        }
}

static void test_kept_steps_and_phases(void **state)
{
    /* Three compile steps of 200, three of warm-up; no transfer was measured. */
    golden_make("stall-silent-compile.sql", db_path);
    struct facts *f = golden_load(db_path);
    assert_int_equal(f->rank_count, 1);
    const struct rank_facts *r = &f->ranks[0];
    assert_int_equal(r->steps, 200);
    assert_int_equal(r->compile_steps, 3);
    assert_int_equal(r->warmup_steps, 3);
    assert_int_equal(r->kept, 194);
    assert_int_equal(r->samples, 194 * 32);
    assert_int_equal(r->micro_steps, 194);
    assert_true(r->compile_ms > 12000 && r->compile_ms < 12100);
    assert_null(r->phase_ms[PHASE_H2D]);
    assert_true(fabs(r->cost_ms - 6 * 500e-6) < 1e-12);
    struct step_stats all, part;
    double shares = 0;
    facts_stats(f, -1, PHASES, &all);
    assert_true(fabs(all.mean * 194 - r->kept_ms) < 1e-6);
    for (int p = 0; p < PHASES; p++) {
        facts_stats(f, 0, p, &part);
        if (!isnan(part.share))
            shares += part.share;
    }
    assert_true(fabs(shares - 1) < 1e-9);
    facts_stats(f, 0, PHASE_H2D, &part);
    assert_true(isnan(part.mean) && isnan(part.share));
    facts_stats(f, 7, PHASES, &part);
    assert_true(isnan(part.mean));
    facts_free(f);
}

static void test_folded_steps(void **state)
{
    golden_make("compute-fires.sql", db_path);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
    /* Steps 100 to 149 of 10 ms each become one interval; sums are kept, and the histogram. */
    assert_int_equal(
        sqlite3_exec(db,
                     "INSERT INTO step_folds SELECT 0, 100, count(*), max(end_ns), sum(wall_ns),"
                     " sum(input_ns), NULL, sum(forward_ns), sum(backward_ns), sum(optimizer_ns),"
                     " NULL, sum(other_ns), sum(samples), sum(micro_steps), sum(records), 0"
                     " FROM steps WHERE id BETWEEN 100 AND 149;"
                     "INSERT INTO step_hist VALUES (0, 'wall', 613, 50);"
                     "DELETE FROM steps WHERE id BETWEEN 100 AND 149",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    struct facts *f = golden_load(db_path);
    const struct rank_facts *r = &f->ranks[0];
    struct step_stats wall;
    assert_int_equal(r->steps, 200);
    assert_int_equal(r->kept, 197);
    assert_int_equal(r->count, 148);
    assert_int_equal(r->samples, 197 * 32);
    assert_int_equal(r->folded, 1);
    facts_stats(f, -1, PHASES, &wall);
    assert_true(fabs(wall.mean - 10) < 0.05);
    assert_true(fabs(wall.median - 10) < 0.2);
    assert_true(fabs(wall.share - 1) < 1e-9);
    facts_free(f);
}

static void test_typical_rank(void **state)
{
    /* Rank 0 is late and rank 1 waits for it: their steps are equally long. */
    golden_make("straggler-fires.sql", db_path);
    struct facts *f = golden_load(db_path);
    assert_int_equal(f->ranks[f->typical].rank, 1);
    facts_free(f);
    golden_make("straggler-fires-forward.sql", db_path);
    f = golden_load(db_path);
    assert_int_not_equal(f->ranks[f->typical].rank, 2);
    facts_free(f);
}

/* ---- failures ------------------------------------------------------------------------------ */

static int load_and_diagnose(void)
{
    struct store_reader *reader = NULL;
    struct facts *facts = NULL;
    struct findings found = {0};
    struct leat_err err = {""};
    int result = store_reader_open(db_path, &reader, &err);
    if (result >= 0)
        result = facts_load(reader, &facts, &err);
    if (result >= 0)
        result = diagnose(facts, &found, &err);
    if (result < 0 && !err.text[0])
        fail_msg("a failure without a sentence");
    findings_done(&found);
    facts_free(facts);
    store_reader_close(reader);
    return result;
}

static void test_every_allocation_may_fail(void **state)
{
    const char *const scripts[] = {"straggler-fires.sql",
                                   "input-fires-few-workers.sql",
                                   "stall-fires.sql",
                                   "input-fires-loader-tensors.sql",
                                   "memory_creep-fires-worker.sql",
                                   "memory_pressure-fires.sql",
                                   "memory_imbalance-fires.sql",
                                   "oom-fires-uncounted.sql",
                                   "wait-fires-sync.sql",
                                   "insufficient-fires-pythonpath.sql"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        golden_make(scripts[i], db_path);
        mem_fail_at(0);
        assert_int_equal(load_and_diagnose(), 0);
        unsigned long made = mem_fail_at(0);
        assert_true(made > 20);
        for (unsigned long n = 1; n <= made; n++) {
            mem_fail_at(n);
            int result = load_and_diagnose();
            mem_fail_at(0);
            if (result >= 0)
                fail_msg("%s: allocation %lu of %lu failed unnoticed", scripts[i], n, made);
        }
    }
}

/* Writes a row of `table` in which column i holds 1000 + i. */
static void add_numbered_row(struct store_writer *w, enum store_table table)
{
    union { /* a row is an array of cells (store/tables.h) */
        int64_t integer;
        const char *text;
    } cells[32];
    for (int i = 0; i < store_tables[table].column_count; i++) {
        assert_int_not_equal(store_tables[table].columns[i].type, STORE_REAL);
        if (store_tables[table].columns[i].type == STORE_TEXT)
            cells[i].text = "x";
        else
            cells[i].integer = 1000 + i;
    }
    assert_int_equal(store_add_row(w, table, cells), 0);
}

static void check_numbered_row(enum store_table table, const void *row)
{
    const int64_t *cells = row;
    for (int i = 0; i < store_tables[table].column_count; i++)
        assert_int_equal(cells[i],
                         store_tables[table].columns[i].type == STORE_TEXT ? 0 : 1000 + i);
}

/* A column that is added to tables.def reaches rules and report without a change of facts. */
static void test_every_column_is_in_the_row(void **state)
{
    struct store_writer *w = NULL;
    unlink(db_path);
    assert_int_equal(store_writer_open(db_path, &w, NULL), 0);
    add_numbered_row(w, STORE_loaders);
    add_numbered_row(w, STORE_engines);
    add_numbered_row(w, STORE_workers);
    add_numbered_row(w, STORE_processes);
    assert_int_equal(store_writer_close(w, NULL), 0);
    struct facts *f = golden_load(db_path);
    check_numbered_row(STORE_loaders, &f->loaders[0].row);
    check_numbered_row(STORE_engines, &f->engines[0].row);
    check_numbered_row(STORE_workers, &f->workers[0].row);
    check_numbered_row(STORE_processes, &f->procs[0].row);
    facts_free(f);
}

int main(void)
{
    snprintf(db_path, sizeof db_path, "/tmp/leat-facts-%d.db", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup_least_and_most),
        cmocka_unit_test(test_warmup_ends_where_it_settles),
        cmocka_unit_test(test_warmup_of_short_runs),
        cmocka_unit_test(test_quantiles_are_exact),
        cmocka_unit_test(test_kept_steps_and_phases),
        cmocka_unit_test(test_folded_steps),
        cmocka_unit_test(test_typical_rank),
        cmocka_unit_test(test_every_column_is_in_the_row),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(db_path);
    return failed;
}
