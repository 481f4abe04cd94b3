/* test_store_limits.c: the limits that a run has when nobody sets others, which are those of the
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

/* `columns` begin with the one that differs from row to row; the others are the rest of the key. */
static const struct {
    const char *table, *columns, *types;
    int64_t most;
} documented[] = {
    {"proc_samples",   "t_ns,pid",                     "ii",    65536 },
    {"sys_samples",    "t_ns",                         "i",     65536 },
    {"gpu_samples",    "t_ns,gpu",                     "ii",    65536 },
    {"memory_samples", "t_ns,rank,device",             "iii",   65536 },
    {"spans",          "end_ns,start_ns",              "ii",    65536 },
    {"workers",        "pid",                          "i",     65536 },
    {"processes",      "pid",                          "i",     8192  },
    {"loaders",        "pid,loader",                   "ii",    8192  },
    {"engines",        "pid,loader",                   "ii",    8192  },
    {"cuda_calls",     "pid,span,class",               "iii",   8192  },
    {"gpu_clock",      "pid,phase",                    "ii",    8192  },
    {"cuda_lines",     "pid,file,line,function,class", "iiiii", 8192  },
    {"input_parts",    "worker,pid,loader,part",       "iiii",  8192  },
    {"input_hist",     "bin,pid,loader,worker,part",   "iiiii", 131072},
    {"input_lines",    "id,pid,loader,worker",         "iiii",  32768 },
    {"lost",           "n,what",                       "ii",    8192  },
};

static void add(struct store_writer *w, int i, int64_t number)
{
    const int64_t one = 1;
    /* Seconds, so that thinning by time finds something to thin. */
    int64_t value = number * INT64_C(1000000000);
    assert_int_equal(store_add(w, documented[i].table, documented[i].columns, documented[i].types,
                               value, one, one, one, one),
                     0);
}

static int64_t rows_of(struct store_writer *w, int i)
{
    struct store_reader *r = NULL;
    struct leat_err err = {""};
    char sql[64];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", documented[i].table);
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
            fail_msg("%s has no room for %lld rows", documented[i].table, (long long)most);
        add(w, i, most + 1);
        int64_t left = rows_of(w, i);
        if (left > most * 3 / 4 || left < most / 4)
            fail_msg("%s: of %lld rows %lld were left", documented[i].table, (long long)most + 1,
                     (long long)left);
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
