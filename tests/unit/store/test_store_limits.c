/* test_store_limits.c: the default limits of a run, which are those of the
 * table "Size" in docs/run-db.md. The other tests of the store set small ones, to see them at work,
 * and would pass with any default. */
#include "unit/store/store_testing.h"

/* A million steps are too many for a test: bench/report_time.py --long writes them. */
static void steps_have_the_documented_limits(void **state)
{
    assert_int_equal(store_limits_default.first_steps, 1024);
    assert_int_equal(store_limits_default.step_rows, 1000000);
    assert_int_equal(store_limits_default.kept_rows, 65536);
    assert_int_equal(store_limits_default.fold_rows, 65536);
    assert_int_equal(store_limits_default.fold_steps, 64);
}

static const struct {
    enum store_table table;
    const char *column; /* differs from row to row; the others are the same in all */
    int64_t most;
} documented[] = {
    {STORE_proc_samples,   "t_ns",    65536 },
    {STORE_sys_samples,    "t_ns",    65536 },
    {STORE_gpu_samples,    "t_ns",    65536 },
    {STORE_memory_samples, "t_ns",    65536 },
    {STORE_workers,        "pid",     65536 },
    {STORE_processes,      "pid",     8192  },
    {STORE_loaders,        "pid",     8192  },
    {STORE_engines,        "pid",     8192  },
    {STORE_cuda_calls,     "pid",     8192  },
    {STORE_gpu_clock,      "pid",     8192  },
    {STORE_cuda_lines,     "pid",     8192  },
    {STORE_input_parts,    "worker",  8192  },
    {STORE_input_hist,     "bin",     131072},
    {STORE_input_ready,    "batches", 65536 },
    {STORE_input_lines,    "id",      32768 },
    {STORE_lost,           "n",       8192  },
};

static void add(struct store_writer *w, int i, int64_t number)
{
    union { /* a row of any table is an array of cells (tables.h) */
        int64_t integer;
        double real;
        const char *text;
    } cells[32] = {{0}};
    const struct store_table_info *t = &store_tables[documented[i].table];
    for (int c = 0; c < t->column_count; c++) {
        if (t->columns[c].type == STORE_TEXT)
            cells[c].text = "x";
        else if (t->columns[c].type == STORE_REAL)
            cells[c].real = 0.5;
        else /* seconds, so that thinning by time finds something to thin */
            cells[c].integer =
                strcmp(t->columns[c].name, documented[i].column) ? 1 : number * INT64_C(1000000000);
    }
    assert_int_equal(store_add_row(w, documented[i].table, cells), 0);
}

static int64_t rows_of(struct store_writer *w, int i)
{
    struct store_reader *r = NULL;
    struct leat_err err = {""};
    char sql[64];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", store_tables[documented[i].table].name);
    assert_int_equal(store_flush(w), 0);
    assert_int_equal(store_reader_of_writer(w, &r, &err), 0);
    int64_t rows = test_int(r, sql);
    store_reader_close(r);
    return rows;
}

/* Full to the last row; one more, and about half of them go. */
static void tables_have_the_documented_limits(void **state)
{
    for (int i = 0; i < (int)(sizeof documented / sizeof *documented); i++) {
        struct store_writer *w = test_writer(test_path("limits.db"));
        int64_t most = documented[i].most;
        for (int64_t number = 1; number <= most; number++)
            add(w, i, number);
        if (rows_of(w, i) != most)
            fail_msg("%s has no room for %lld rows", store_tables[documented[i].table].name,
                     (long long)most);
        add(w, i, most + 1);
        int64_t left = rows_of(w, i);
        if (left > most * 3 / 4 || left < most / 4)
            fail_msg("%s: of %lld rows %lld were left", store_tables[documented[i].table].name,
                     (long long)most + 1, (long long)left);
        test_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_the_documented_limits),
        cmocka_unit_test(tables_have_the_documented_limits),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
