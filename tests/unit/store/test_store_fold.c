/* test_store_fold.c: however long the run, the tables stay within their limits, and what was folded
 * still adds up to the step, to the nanosecond and to the bin. */
#include "unit/store/store_testing.h"

#include <math.h>

/* Small enough that every limit is reached many times in a second. */
static const struct store_limits small = {
    .step_rows = 500,
    .first_steps = 20,
    .kept_rows = 60,
    .fold_rows = 50,
    .fold_steps = 8,
    .fold_batch = 100,
    .table_rows = 200,
};

enum { RANKS = 3, STEPS = 20011, STALL_EVERY = 211 };

/* The ordinary step, but now and then one that stands out, and marked ones. */
static struct step_row varied_step(int rank, int64_t step)
{
    struct step_row row = test_step(rank, step);
    if (step % STALL_EVERY == 0) {
        row.phase_ns[PHASE_INPUT] += 1000000 + step;
        row.wall_ns += 1000000 + step;
    }
    if (step % 1009 == 0)
        row.flags |= STEP_CHECKPOINT;
    if (rank == 1) { /* it was not measured, and is in `other` */
        row.phase_ns[PHASE_OTHER] += row.phase_ns[PHASE_SYNC];
        row.phase_ns[PHASE_SYNC] = STORE_NULL;
    }
    if (rank == 2)
        row.samples = STORE_NULL;
    return row;
}

static int64_t total_of(int rank, int64_t (*value)(const struct step_row *))
{
    int64_t sum = 0;
    for (int64_t s = 0; s < STEPS; s++) {
        struct step_row row = varied_step(rank, s);
        sum += value(&row);
    }
    return sum;
}

static int64_t wall_of(const struct step_row *row)
{
    return row->wall_ns;
}
static int64_t input_of(const struct step_row *row)
{
    return row->phase_ns[PHASE_INPUT];
}
static int64_t samples_of(const struct step_row *row)
{
    return row->samples;
}

static int64_t rank_int(struct store_reader *r, int rank, const char *sql)
{
    char with_rank[512];
    snprintf(with_rank, sizeof with_rank, "WITH it(rank) AS (VALUES(%d)) %s", rank, sql);
    return query_int(r, with_rank, INT64_MIN);
}

static void check_sums(struct store_reader *r, int rank)
{
    int64_t rows =
        rank_int(r, rank, "SELECT count(*) FROM steps WHERE id>>40=(SELECT rank FROM it)");
    int64_t folded =
        rank_int(r, rank, "SELECT sum(n) FROM step_folds WHERE rank=(SELECT rank FROM it)");
    assert_int_equal(rows + folded, STEPS);
    assert_int_equal(
        rank_int(r, rank,
                 "SELECT (SELECT sum(wall_ns) FROM steps WHERE id>>40=(SELECT rank FROM it)) + "
                 "(SELECT sum(wall_ns) FROM step_folds WHERE rank=(SELECT rank FROM it))"),
        total_of(rank, wall_of));
    assert_int_equal(
        rank_int(r, rank,
                 "SELECT (SELECT sum(input_ns) FROM steps WHERE id>>40=(SELECT rank FROM it)) + "
                 "(SELECT sum(input_ns) FROM step_folds WHERE rank=(SELECT rank FROM it))"),
        total_of(rank, input_of));
    if (rank != 2)
        assert_int_equal(
            rank_int(r, rank,
                     "SELECT (SELECT sum(samples) FROM steps WHERE id>>40=(SELECT rank FROM it)) + "
                     "(SELECT sum(samples) FROM step_folds WHERE rank=(SELECT rank FROM it))"),
            total_of(rank, samples_of));
    /* Unknown stays unknown. */
    assert_int_equal(
        rank_int(r, rank, "SELECT count(h2d_ns) FROM step_folds WHERE rank=(SELECT rank FROM it)"),
        0);
    if (rank == 1)
        assert_int_equal(
            rank_int(r, rank,
                     "SELECT count(sync_ns) FROM step_folds WHERE rank=(SELECT rank FROM it)"),
            0);
    if (rank == 2)
        assert_int_equal(
            rank_int(r, rank,
                     "SELECT count(samples) FROM step_folds WHERE rank=(SELECT rank FROM it)"),
            0);
    /* One histogram entry a folded step and known phase. */
    assert_int_equal(
        rank_int(r, rank,
                 "SELECT sum(n) FROM step_hist WHERE rank=(SELECT rank FROM it) AND phase='wall'"),
        folded);
    assert_int_equal(
        rank_int(r, rank,
                 "SELECT sum(n) FROM step_hist WHERE rank=(SELECT rank FROM it) AND phase='input'"),
        folded);
    assert_int_equal(
        rank_int(r, rank,
                 "SELECT count(*) FROM step_hist WHERE rank=(SELECT rank FROM it) AND phase='h2d'"),
        0);
}

static void everything_adds_up(void **state)
{
    struct store_writer *w = test_writer(test_path("fold.db"));
    store_writer_limits(w, &small);
    for (int64_t s = 0; s < STEPS; s++) {
        for (int rank = 0; rank < RANKS; rank++) {
            struct step_row row = varied_step(rank, s);
            assert_int_equal(store_add_step(w, &row), 0);
        }
        if (s % 50 == 0)
            assert_int_equal(store_flush(w), 0);
    }
    test_close(w);
    struct store_reader *r = test_reader(test_path("fold.db"));
    for (int rank = 0; rank < RANKS; rank++)
        check_sums(r, rank);
    /* The limits hold, with the slack of one batch. */
    assert_true(test_int(r, "SELECT count(*) FROM step_folds") <= small.fold_rows);
    assert_true(test_int(r, "SELECT count(*) FROM steps") <=
                small.step_rows + small.fold_batch + small.kept_rows + RANKS * small.first_steps);
    /* The first and the newest steps are whole, in every rank. */
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE (id & ((1<<40)-1)) < 20"),
                     RANKS * 20);
    assert_int_equal(
        test_int(r, "SELECT count(*) FROM steps WHERE (id & ((1<<40)-1)) >= 20011-150"),
        RANKS * 150);
    /* What stood out most is still a row: the last stalls that were folded around. */
    assert_true(test_int(r, "SELECT count(*) FROM steps WHERE wall_ns > 1000000 AND "
                            "(id & ((1<<40)-1)) BETWEEN 20 AND 19800") >= 20);
    /* Intervals are of one length, on multiples of it, and never overlap. */
    int64_t length = test_int(r, "SELECT min(b-a) FROM (SELECT first_step a, lead(first_step) OVER "
                                 "(PARTITION BY rank ORDER BY first_step) b FROM step_folds)");
    assert_true(length > small.fold_steps && (length & (length - 1)) == 0);
    assert_int_equal(test_int(r, "SELECT count(*) FROM step_folds WHERE first_step % 8 <> 0"), 0);
    /* The flags of what was folded live on. */
    assert_int_equal(test_int(r, "SELECT max(flags) FROM (SELECT flags FROM step_folds UNION ALL "
                                 "SELECT flags FROM steps)"),
                     STEP_CHECKPOINT);
    store_reader_close(r);
}

/* Within the limit, every outlier and every flagged step of the folded range is a row. */
static void outliers_stay_whole(void **state)
{
    struct store_limits roomy = small;
    roomy.kept_rows = 100000;
    struct store_writer *w = test_writer(test_path("outliers.db"));
    store_writer_limits(w, &roomy);
    for (int64_t s = 0; s < STEPS; s++) {
        struct step_row row = varied_step(0, s);
        assert_int_equal(store_add_step(w, &row), 0);
        if (s % 40 == 0)
            assert_int_equal(store_flush(w), 0);
    }
    test_close(w);
    struct store_reader *r = test_reader(test_path("outliers.db"));
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE wall_ns > 1000000"),
                     (STEPS + STALL_EVERY - 1) / STALL_EVERY);
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE flags & 4"),
                     (STEPS + 1008) / 1009);
    assert_true(test_int(r, "SELECT sum(n) FROM step_folds") > STEPS * 9 / 10);
    store_reader_close(r);
}

static void folded_steps_can_be_dropped(void **state)
{
    struct store_writer *w = test_writer(test_path("dropped.db"));
    store_writer_limits(w, &small);
    test_add_steps(w, 0, 0, 5000);
    test_add_steps(w, 1, 0, 5000);
    assert_int_equal(store_flush(w), 0);
    assert_int_equal(store_drop_steps(w, 0, 0), 0);
    test_add_steps(w, 0, 0, 3000);
    test_close(w);
    struct store_reader *r = test_reader(test_path("dropped.db"));
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(
            rank_int(r, rank,
                     "SELECT (SELECT count(*) FROM steps WHERE id>>40=(SELECT rank FROM it)) + "
                     "(SELECT sum(n) FROM step_folds WHERE rank=(SELECT rank FROM it))"),
            rank ? 5000 : 3000);
        assert_int_equal(
            rank_int(r, rank,
                     "SELECT (SELECT sum(n) FROM step_folds WHERE rank=(SELECT rank FROM it)) - "
                     "(SELECT sum(n) FROM step_hist WHERE rank=(SELECT rank FROM it) AND "
                     "phase='wall')"),
            0);
    }
    assert_true(test_int(r, "SELECT count(*) FROM steps") <= 500 + 100 + 60 + 2 * 20);
    store_reader_close(r);
}

/* A run with one step per distinct time, so that the batches are all alike. */
static void equal_steps_fold_too(void **state)
{
    struct store_writer *w = test_writer(test_path("equal.db"));
    store_writer_limits(w, &small);
    for (int64_t s = 0; s < 5000; s++) {
        struct step_row row = test_step(0, 0);
        row.id = s;
        row.flags = STEP_EPOCH_START; /* all marked: the limit on kept rows must still hold */
        assert_int_equal(store_add_step(w, &row), 0);
        if (s % 100 == 0)
            assert_int_equal(store_flush(w), 0);
    }
    test_close(w);
    struct store_reader *r = test_reader(test_path("equal.db"));
    assert_int_equal(test_int(r, "SELECT (SELECT count(*) FROM steps) + (SELECT sum(n) FROM "
                                 "step_folds)"),
                     5000);
    assert_true(test_int(r, "SELECT count(*) FROM steps") <= 500 + 100 + 60 + 20);
    store_reader_close(r);
}

static void samples_are_thinned_evenly(void **state)
{
    enum { TICKS = 5000, PIDS = 4 };
    struct store_writer *w = test_writer(test_path("thin.db"));
    store_writer_limits(w, &small);
    for (int64_t t = 0; t < TICKS; t++) {
        for (int64_t pid = 1; pid <= PIDS; pid++)
            assert_int_equal(
                store_add_proc_sample(w, &(struct proc_sample_row){.t_ns = t * INT64_C(1000000000),
                                                                   .pid = pid,
                                                                   .cpu_ns = t * 10}),
                0);
        assert_int_equal(
            store_add_sys_sample(
                w, &(struct sys_sample_row){.t_ns = t * INT64_C(1000000000), .cpu_ratio = 0.5}),
            0);
        if (t % 7 == 0)
            assert_int_equal(store_flush(w), 0);
    }
    test_close(w);
    struct store_reader *r = test_reader(test_path("thin.db"));
    assert_true(test_int(r, "SELECT count(*) FROM proc_samples") <= small.table_rows);
    assert_true(test_int(r, "SELECT count(*) FROM sys_samples") <= small.table_rows);
    /* Every process keeps its last total, and rows from the first quarter of the run. */
    assert_int_equal(test_int(r, "SELECT count(*) FROM proc_samples WHERE cpu_ns=49990"), PIDS);
    assert_int_equal(test_int(r, "SELECT count(DISTINCT pid) FROM proc_samples WHERE t_ns < "
                                 "1250000000000"),
                     PIDS);
    /* No hole is longer than four windows of the last thinning. */
    assert_int_equal(test_int(r, "SELECT count(*) FROM (SELECT t_ns - lag(t_ns) OVER (PARTITION BY "
                                 "pid ORDER BY t_ns) d FROM proc_samples) WHERE d > 4 * (SELECT "
                                 "value FROM meta WHERE key='thinned.proc_samples')"),
                     0);
    assert_int_equal(test_int(r, "SELECT count(*) FROM lost"), 0);
    store_reader_close(r);
}

static void other_tables_are_bounded(void **state)
{
    struct store_writer *w = test_writer(test_path("bounded.db"));
    store_writer_limits(w, &small);
    for (int64_t i = 0; i < 3000; i++) {
        struct process_row process = {
            .pid = i + 1, .role = i == 5 ? "main" : "worker", .started_ns = i, .ended_ns = i + 1};
        struct proc_sample_row sample = {.t_ns = i, .pid = i};
        assert_int_equal(store_add_process(w, &process), 0);
        assert_int_equal(store_add_proc_sample(w, &sample), 0);
        if (i % 31 == 0)
            assert_int_equal(store_flush(w), 0);
    }
    test_close(w);
    struct store_reader *r = test_reader(test_path("bounded.db"));
    assert_true(test_int(r, "SELECT count(*) FROM processes") <= small.table_rows / 8);
    assert_int_equal(test_int(r, "SELECT count(*) FROM processes WHERE role='main'"), 1);
    assert_int_equal(test_int(r, "SELECT count(*) FROM processes WHERE pid=3000"), 1);
    assert_true(test_int(r, "SELECT count(*) FROM proc_samples") <= small.table_rows);
    /* What could not be kept is counted exactly. */
    assert_int_equal(test_int(r, "SELECT sum(n) + (SELECT count(*) FROM processes) FROM lost WHERE "
                                 "why LIKE 'processes:%'"),
                     3000);
    store_reader_close(r);
}

/* Of the lines the longest stay, and none without the user's line that called it. */
static void input_tables_are_bounded(void **state)
{
    struct store_writer *w = test_writer(test_path("input.db"));
    store_writer_limits(w, &small);
    for (int64_t i = 0; i < 1000; i++) {
        int64_t ns = i * 37 % 1000;
        struct input_line_row line = {.pid = 1,
                                      .id = 2 * i,
                                      .below = STORE_NULL,
                                      .part = "sample",
                                      .file = "x.py",
                                      .function = "f",
                                      .ns = ns};
        struct input_bin_row bin = {.pid = 1, .part = "sample", .bin = i, .n = ns};
        struct input_ready_row ready = {.pid = 1, .batches = i, .n = ns};
        struct input_part_row part = {.pid = 1, .worker = i, .part = "sample", .total_ns = ns};
        assert_int_equal(store_add_input_line(w, &line), 0);
        line.id = 2 * i + 1;
        line.below = 2 * i;
        assert_int_equal(store_add_input_line(w, &line), 0);
        assert_int_equal(store_add_input_bin(w, &bin), 0);
        assert_int_equal(store_add_input_part(w, &part), 0);
        assert_int_equal(store_add_input_ready(w, &ready), 0);
        if (i % 31 == 0)
            assert_int_equal(store_flush(w), 0);
    }
    test_close(w);
    struct store_reader *r = test_reader(test_path("input.db"));
    assert_true(test_int(r, "SELECT count(*) FROM input_lines") <= small.table_rows / 2);
    assert_int_equal(test_int(r, "SELECT count(*) FROM input_lines WHERE ns=999"), 2);
    assert_int_equal(test_int(r, "SELECT count(*) FROM input_lines WHERE below IS NOT NULL AND "
                                 "below NOT IN (SELECT id FROM input_lines)"),
                     0);
    assert_true(test_int(r, "SELECT count(*) FROM input_hist") <= small.table_rows * 2);
    assert_int_equal(test_int(r, "SELECT max(n) FROM input_hist"), 999);
    assert_true(test_int(r, "SELECT count(*) FROM input_ready") <= small.table_rows);
    assert_int_equal(test_int(r, "SELECT max(n) FROM input_ready"), 999);
    assert_true(test_int(r, "SELECT count(*) FROM input_parts") <= small.table_rows / 8);
    assert_int_equal(test_int(r, "SELECT max(total_ns) FROM input_parts"), 999);
    assert_int_equal(test_int(r, "SELECT sum(n) + (SELECT count(*) FROM input_lines) FROM lost "
                                 "WHERE why LIKE 'input_lines:%'"),
                     2000);
    store_reader_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_adds_up),          cmocka_unit_test(outliers_stay_whole),
        cmocka_unit_test(folded_steps_can_be_dropped), cmocka_unit_test(equal_steps_fold_too),
        cmocka_unit_test(samples_are_thinned_evenly),  cmocka_unit_test(other_tables_are_bounded),
        cmocka_unit_test(input_tables_are_bounded),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
