/* test_store_rows.c: what is written is what is read, and reading changes nothing. */
#include "unit/store/store_testing.h"

#include <math.h>

static void values_come_back(void **state)
{
    struct store_writer *w = test_writer(test_path("values.db"));
    struct gpu_sample_row row = gpu_sample_row_nulls, read = {0};
    row.t_ns = -5;
    row.memory_used = INT64_MAX;
    row.utilization = 0.25;
    row.gpu = "GPU-\"1\"; DROP TABLE steps";
    assert_int_equal(store_add_gpu_sample(w, &row), 0);
    test_close(w);
    struct store_reader *r = test_reader(test_path("values.db"));
    struct store_cursor rows;
    struct leat_err err = {""};
    assert_int_equal(store_open_gpu_samples(r, "WHERE t_ns < 0", &rows, &err), 0);
    assert_int_equal(store_next_gpu_sample(&rows, &read), 1);
    assert_int_equal(read.t_ns, -5);
    assert_int_equal(read.memory_used, INT64_MAX);
    assert_true(read.utilization == 0.25);
    assert_string_equal(read.gpu, "GPU-\"1\"; DROP TABLE steps");
    assert_int_equal(read.memory_total, STORE_NULL);
    assert_null(read.throttle);
    assert_true(isnan(read.power_w));
    assert_int_equal(store_next_gpu_sample(&rows, &read), 0);
    store_cursor_done(&rows);
    store_reader_close(r);
}

/* Every cell of every table is read back as it was written, and every NULL as NULL. */
static void every_column_of_every_table(void **state)
{
    enum { MOST = 32 };
    union {
        int64_t integer;
        double real;
        const char *text;
    } cells[MOST], read[MOST];
    for (int null = 0; null < 2; null++)
        for (enum store_table t = 0; t < STORE_TABLES; t++) {
            const struct store_table_info *info = &store_tables[t];
            assert_true(info->column_count <= MOST);
            for (int c = 0; c < info->column_count; c++) {
                int is_null = null && info->columns[c].null[0];
                if (info->columns[c].type == STORE_TEXT)
                    cells[c].text = is_null ? NULL : "text";
                else if (info->columns[c].type == STORE_REAL)
                    cells[c].real = is_null ? (double)NAN : c + 0.5;
                else
                    cells[c].integer = is_null ? STORE_NULL : c + 1000;
            }
            struct store_writer *w = test_writer(test_path("every.db"));
            assert_int_equal(store_add_row(w, t, cells), 0);
            test_close(w);
            struct store_reader *r = test_reader(test_path("every.db"));
            struct store_cursor rows;
            struct leat_err err = {""};
            const char *tail = t == STORE_meta ? "WHERE key = 'text'" : "";
            assert_int_equal(store_open_rows(r, t, tail, &rows, &err), 0);
            assert_int_equal(store_next_row(&rows, read), 1);
            for (int c = 0; c < info->column_count; c++) {
                if (info->columns[c].type == STORE_TEXT && cells[c].text)
                    assert_string_equal(read[c].text, cells[c].text);
                else if (info->columns[c].type == STORE_REAL)
                    assert_true(isnan(cells[c].real) ? isnan(read[c].real)
                                                     : read[c].real == cells[c].real);
                else
                    assert_int_equal(read[c].integer, cells[c].integer);
            }
            assert_int_equal(store_next_row(&rows, read), 0);
            store_cursor_done(&rows);
            store_reader_close(r);
        }
}

/* A column that is never NULL refuses it. */
static void null_is_refused_where_it_means_nothing(void **state)
{
    struct store_writer *w = test_writer(test_path("notnull.db"));
    for (enum store_table t = 0; t < STORE_TABLES; t++)
        for (int c = 0; c < store_tables[t].column_count; c++) {
            struct store_reader *r;
            char sql[256];
            const struct store_column *column = &store_tables[t].columns[c];
            snprintf(sql, sizeof sql,
                     "SELECT \"notnull\" FROM pragma_table_info('%s') WHERE name='%s'",
                     store_tables[t].name, column->name);
            assert_int_equal(store_reader_of_writer(w, &r, NULL), 0);
            if (test_int(r, sql) != (column->null[0] == 0))
                fail_msg("%s.%s", store_tables[t].name, column->name);
            store_reader_close(r);
        }
    test_close(w);
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
        assert_int_equal(store_add_process(w, &(struct process_row){.pid = 7, .role = "main"}), 0);
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
    struct step_row row = test_step(-1, 1);
    assert_int_equal(row.id, -1);
    assert_int_equal(store_add_step(w, &row), -EINVAL);
    assert_int_equal(store_step_id(0, -1), -1);
    assert_int_equal(store_step_id(1 << 22, 0), -1);
    assert_int_equal(store_step_id(0, INT64_C(1) << 40), -1);
    /* A row that breaks a constraint is refused alone; its neighbours are kept. */
    assert_int_equal(store_add_lost(w, &(struct lost_row){.what = "a", .n = 1}), 0);
    row = test_step(0, 1);
    row.wall_ns = STORE_NULL;
    assert_int_equal(store_add_step(w, &row), -EINVAL);
    assert_int_equal(store_add_lost(w, &(struct lost_row){.what = "b", .n = 1}), 0);
    assert_int_equal(store_flush(w), 0);
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
    struct process_row row = {.pid = 1, .role = "other", .command = text};
    assert_int_equal(store_add_process(w, &row), 0);
    test_close(w);
    struct store_reader *r = test_reader(test_path("long.db"));
    assert_int_equal(test_int(r, "SELECT length(CAST(command AS BLOB)) FROM processes"), 1023);
    store_reader_close(r);
}

static void a_reader_of_the_writer(void **state)
{
    struct store_writer *w = test_writer(test_path("parameters.db"));
    test_add_steps(w, 0, 0, 50);
    /* Read through the writer, before anything was flushed by hand. */
    struct store_reader *r;
    struct leat_err err = {""};
    assert_int_equal(store_reader_of_writer(w, &r, &err), 0);
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps WHERE id>=10 AND id<20"), 10);
    struct store_cursor rows;
    assert_true(store_open_steps(r, "WHERE nosuch = 1", &rows, &err) < 0);
    assert_non_null(strstr(err.text, "nosuch"));
    store_cursor_done(&rows);
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
    assert_int_equal(test_int(r, "SELECT count(*) FROM steps"), 500);
    assert_int_not_equal(sql_exec(r->db, "DELETE FROM steps"), SQLITE_OK);
    assert_int_not_equal(sql_exec(r->db, "INSERT INTO meta VALUES('a','b')"), SQLITE_OK);
    store_reader_close(r);
    assert_int_equal(stat(path, &after), 0);
    assert_true(sum == checksum(path));
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof after.st_mtim);
    assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof after.st_ctim);
}

static void a_cursor_may_end_early(void **state)
{
    struct store_writer *w = test_writer(test_path("stop.db"));
    test_add_steps(w, 0, 0, 10);
    test_close(w);
    struct store_reader *r = test_reader(test_path("stop.db"));
    struct store_cursor rows;
    struct step_row row;
    struct leat_err err = {""};
    assert_int_equal(store_open_steps(r, "ORDER BY id", &rows, &err), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_next_step(&rows, &row), 1);
    assert_int_equal(row.id, 2);
    store_cursor_done(&rows);
    store_reader_close(r);
    store_reader_close(NULL);
    assert_int_equal(store_writer_close(NULL, NULL), 0);
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
        cmocka_unit_test(every_column_of_every_table),
        cmocka_unit_test(null_is_refused_where_it_means_nothing),
        cmocka_unit_test(steps_come_back),
        cmocka_unit_test(a_key_is_replaced),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(a_reader_of_the_writer),
        cmocka_unit_test(drop_takes_steps_back),
        cmocka_unit_test(never_overwrites),
        cmocka_unit_test(reading_changes_nothing),
        cmocka_unit_test(a_cursor_may_end_early),
        cmocka_unit_test(phases_have_the_names_of_the_columns),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
