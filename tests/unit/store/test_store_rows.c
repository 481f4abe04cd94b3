/* test_store_rows.c: what is written is what is read, and reading changes nothing. */
#include "unit/store/store_testing.h"

#include <math.h>

static int see_row(const struct store_row *row, void *context)
{
    (*(int *)context)++;
    assert_int_equal(store_column_int(row, 0), -5);
    assert_int_equal(store_column_int(row, 1), INT64_MAX);
    assert_true(store_column_real(row, 2) == 0.25);
    assert_string_equal(store_column_text(row, 3), "GPU-\"1\"; DROP TABLE steps");
    assert_true(store_column_is_null(row, 4));
    assert_true(isnan(store_column_real(row, 4)));
    assert_int_equal(store_column_int(row, 4), 0);
    assert_null(store_column_text(row, 5));
    assert_true(store_column_is_null(row, 6)); /* NaN is "not measured" */
    return 0;
}

static void values_come_back(void **state)
{
    struct store_writer *w = test_writer(test_path("values.db"));
    assert_int_equal(store_add(w, "gpu_samples",
                               "t_ns,memory_used,utilization,gpu,memory_total,throttle,power_w",
                               "iudsnsd", (int64_t)-5, UINT64_MAX, 0.25,
                               "GPU-\"1\"; DROP TABLE steps", NULL, NAN),
                     0);
    test_close(w);
    struct store_reader *r = test_reader(test_path("values.db"));
    int rows = 0;
    struct leat_err err;
    assert_int_equal(store_select(r,
                                  "SELECT t_ns,memory_used,utilization,gpu,memory_total,throttle,"
                                  "power_w FROM gpu_samples",
                                  NULL, 0, see_row, &rows, &err),
                     0);
    assert_int_equal(rows, 1);
    store_reader_close(r);
}

static void steps_come_back(void **state)
{
    struct store_writer *w = test_writer(test_path("steps.db"));
    test_add_steps(w, 0, 0, 101);
    test_add_steps(w, 3, 0, 23);
    test_close(w);
    struct store_reader *r = test_reader(test_path("steps.db"));
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE id>>40=0"), 101);
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE id>>40=3"), 23);
    assert_int_equal(test_int(r, "SELECT max(id & ((1<<40)-1)) FROM steps WHERE id>>40=3"), 22);
    assert_int_equal(test_int(r, "SELECT sum(wall_ns) FROM steps WHERE id>>40=0"),
                     test_wall_sum(0, 0, 101));
    assert_int_equal(test_int(r, "SELECT count(h2d_ns) FROM steps"), 0);
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE wall_ns <> input_ns+forward_ns+"
                                 "backward_ns+optimizer_ns+sync_ns+other_ns"),
                     0);
    store_reader_close(r);
}

static void a_key_is_replaced(void **state)
{
    struct store_writer *w = test_writer(test_path("key.db"));
    assert_int_equal(store_set_meta(w, "ended", "killed"), 0);
    assert_int_equal(store_set_metaf(w, "ended", "%s %d", "failed", 3), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(store_add(w, "processes", "pid,role", "is", (int64_t)7, "main"), 0);
    test_close(w);
    struct store_reader *r = test_reader(test_path("key.db"));
    assert_int_equal(test_int(r, "SELECT count(*) FROM meta WHERE key='ended' AND "
                                 "value='failed 3'"),
                     1);
    assert_int_equal(test_int(r, "SELECT count(*) FROM processes"), 1);
    store_reader_close(r);
}

static void mistakes_are_refused(void **state)
{
    struct store_writer *w = test_writer(test_path("mistakes.db"));
    assert_int_equal(store_add(w, "nosuch", "a", "i", (int64_t)1), -EINVAL);
    assert_int_equal(store_add(w, "lost", "what,nosuch", "si", "x", (int64_t)1), -EINVAL);
    assert_int_equal(store_add(w, "lost", "what,n,why", "si", "x", (int64_t)1), -EINVAL);
    struct step_row row = test_step(0, 1);
    row.rank = -1;
    assert_int_equal(store_add_step(w, &row), -EINVAL);
    row = test_step(0, -1);
    assert_int_equal(store_add_step(w, &row), -EINVAL);
    /* A row that breaks a constraint is refused alone; its neighbours are kept, and it is told. */
    assert_int_equal(store_add(w, "lost", "what,n", "si", "a", (int64_t)1), 0);
    assert_int_equal(store_add(w, "steps", "id", "i", (int64_t)1), 0);
    assert_int_equal(store_add(w, "lost", "what,n", "si", "b", (int64_t)1), 0);
    assert_int_equal(store_flush(w), -EINVAL);
    test_close(w);
    struct store_reader *r = test_reader(test_path("mistakes.db"));
    assert_int_equal(test_int(r, "SELECT count(*) FROM lost WHERE what IN ('a','b')"), 2);
    assert_int_equal(test_int(r, "SELECT n FROM lost WHERE what='rows'"), 1);
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 0);
    store_reader_close(r);
}

static void long_texts_are_cut_between_characters(void **state)
{
    char text[8192];
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\u00e9", 3);
    text[0] = text[1] = 'x'; /* "xxé...": 1024 falls on a boundary, so shift by one */
    memmove(text + 1, text, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct store_writer *w = test_writer(test_path("long.db"));
    assert_int_equal(store_add(w, "processes", "pid,command", "is", (int64_t)1, text), 0);
    test_close(w);
    struct store_reader *r = test_reader(test_path("long.db"));
    assert_int_equal(test_int(r, "SELECT length(CAST(command AS BLOB)) FROM processes"), 1023);
    store_reader_close(r);
}

static void parameters_and_early_end(void **state)
{
    struct store_writer *w = test_writer(test_path("parameters.db"));
    test_add_steps(w, 0, 0, 50);
    /* Read through the writer, before anything was flushed by hand. */
    struct store_reader *r;
    struct leat_err err = {""};
    assert_int_equal(store_reader_of_writer(w, &r, &err), 0);
    int64_t params[] = {10, 20}, value = -1;
    assert_int_equal(store_select(r, "SELECT count(*) FROM steps WHERE id>=?1 AND id<?2", params, 2,
                                  test_take_int, &value, &err),
                     0);
    assert_int_equal(value, 10);
    assert_true(store_select(r, "SELECT nosuch FROM steps", NULL, 0, test_take_int, &value, &err) <
                0);
    assert_non_null(strstr(err.text, "nosuch"));
    store_reader_close(r);
    test_add_steps(w, 0, 50, 60);
    test_close(w);
    r = test_reader(test_path("parameters.db"));
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 60);
    store_reader_close(r);
}

static void drop_takes_steps_back(void **state)
{
    struct store_writer *w = test_writer(test_path("drop.db"));
    test_add_steps(w, 0, 0, 40);
    test_add_steps(w, 1, 0, 40);
    assert_int_equal(store_flush(w), 0);
    test_add_steps(w, 0, 40, 60); /* pending ones are taken back too */
    assert_int_equal(store_drop_steps(w, 0, 0), 0);
    test_add_steps(w, 0, 0, 7);
    test_close(w);
    struct store_reader *r = test_reader(test_path("drop.db"));
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE id>>40=0"), 7);
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE id>>40=1"), 40);
    store_reader_close(r);
}

static void never_overwrites(void **state)
{
    test_close(test_writer(test_path("once.db")));
    struct stat before, after;
    assert_int_equal(stat(test_path("once.db"), &before), 0);
    assert_int_equal(before.st_mode & 0777, 0600);
    struct store_writer *w = NULL;
    struct leat_err err = {""};
    assert_int_equal(store_writer_open(test_path("once.db"), &w, &err), -EEXIST);
    assert_non_null(strstr(err.text, "once.db"));
    assert_int_equal(stat(test_path("once.db"), &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof after.st_mtim);
    assert_int_equal(store_writer_open(test_path("no/folder/run.db"), &w, &err), -ENOENT);
    assert_int_equal(access(test_path("once.db-journal"), F_OK), -1);
}

static uint64_t checksum(const char *path)
{
    uint64_t sum = 14695981039346656037u;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;)
        sum = (sum ^ (uint64_t)c) * 1099511628211u;
    fclose(f);
    return sum;
}

static void reading_changes_nothing(void **state)
{
    /* A name with everything that means something in a URI. */
    const char *path = test_path("a b?c#d%20e&f=g+h'\xc3\xa9.db");
    struct store_writer *w = test_writer(path);
    test_add_steps(w, 0, 0, 500);
    test_close(w);
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    uint64_t sum = checksum(path);
    struct store_reader *r = test_reader(path);
    int64_t value;
    struct leat_err err = {""};
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 500);
    assert_true(store_select(r, "DELETE FROM steps", NULL, 0, test_take_int, &value, &err) < 0);
    assert_true(store_select(r, "INSERT INTO meta VALUES('a','b')", NULL, 0, test_take_int, &value,
                             &err) < 0);
    store_reader_close(r);
    assert_int_equal(stat(path, &after), 0);
    assert_true(sum == checksum(path));
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof after.st_mtim);
    assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof after.st_ctim);
}

static int stop_early(const struct store_row *row, void *context)
{
    return ++*(int *)context == 3 ? -ECANCELED : 0;
}

static void a_callback_may_stop(void **state)
{
    struct store_writer *w = test_writer(test_path("stop.db"));
    test_add_steps(w, 0, 0, 10);
    test_close(w);
    struct store_reader *r = test_reader(test_path("stop.db"));
    int rows = 0;
    struct leat_err err = {""};
    assert_int_equal(store_select(r, "SELECT id FROM steps", NULL, 0, stop_early, &rows, &err),
                     -ECANCELED);
    assert_int_equal(rows, 3);
    store_reader_close(r);
    store_reader_close(NULL);
    assert_int_equal(store_writer_close(NULL, NULL, NULL), 0);
}

static void phases_have_the_names_of_the_columns(void **state)
{
    struct store_writer *w = test_writer(test_path("phases.db"));
    struct store_reader *r;
    struct leat_err err = {""};
    assert_int_equal(store_reader_of_writer(w, &r, &err), 0);
    for (int p = 0; p < PHASES; p++) {
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT count(%s_ns) FROM steps", leat_phase_names[p]);
        assert_int_equal(test_int(r, sql), 0);
    }
    store_reader_close(r);
    test_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(steps_come_back),
        cmocka_unit_test(a_key_is_replaced),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(parameters_and_early_end),
        cmocka_unit_test(drop_takes_steps_back),
        cmocka_unit_test(never_overwrites),
        cmocka_unit_test(reading_changes_nothing),
        cmocka_unit_test(a_callback_may_stop),
        cmocka_unit_test(phases_have_the_names_of_the_columns),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
