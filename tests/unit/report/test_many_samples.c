/* test_many_samples.c: a run that started new workers every epoch for days has as many workers and
 * samples as the tables hold. Its diagnosis takes about as long as that of a run with a few:
 * nothing goes through all samples for each worker.
 *
 * The limit is CPU time of this process, twenty times what is needed; going through 65 536 samples
 * for each of 65 536 workers needs more by far. */
#include "unit/diagnose/golden_testing.h"

#include "report/report.h"

#include <sys/resource.h>

enum { ROWS = 65536, MOST_SECONDS = 5 };

static char db_path[64];

static int make_path(void **state)
{
    snprintf(db_path, sizeof db_path, "/tmp/leat-many-%d.db", (int)getpid());
    return 0;
}

static int remove_path(void **state)
{
    return unlink(db_path);
}

static void add_dead_workers(void)
{
    sqlite3 *db = NULL;
    char sql[1024];
    snprintf(
        sql, sizeof sql,
        "PRAGMA synchronous = OFF; BEGIN;"
        "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1000 + %d)"
        "INSERT INTO workers(pid, parent_pid, rank, worker_id, batches, busy_ns, first_ns, "
        "last_ns, max_ns, loader) SELECT i, 100, 0, i %% 2, 1, 1000, 0, 2000, 1000, 0 FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1000 + %d)"
        "INSERT INTO proc_samples(t_ns, pid, cpu_ns, rss_bytes, threads) "
        "SELECT 1000000, i, 1000, 1000, 1 FROM n; COMMIT",
        ROWS, ROWS);
    assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static double cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_utime.tv_sec + (double)use.ru_utime.tv_usec / 1e6;
}

/* The causes that look at the samples of each worker: threads, cores, reads. */
static void diagnosis_of_many_workers(void **state)
{
    static const char *const scripts[] = {"input-fires-crowd-threads.sql",
                                          "input-fires-storage.sql"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        golden_make(scripts[i], db_path);
        add_dead_workers();
        double start = cpu_seconds();
        struct facts *facts = golden_load(db_path);
        assert_true(facts->worker_count > ROWS);
        json_t *summary = NULL;
        struct leat_err err = {""};
        struct store_reader *reader = NULL;
        assert_int_equal(store_reader_open(db_path, &reader, &err), 0);
        assert_int_equal(summary_from_database(reader, &summary, &err), 0);
        double seconds = cpu_seconds() - start;
        print_message("%s: %.2f s\n", scripts[i], seconds);
        assert_true(seconds < MOST_SECONDS);
        json_decref(summary);
        store_reader_close(reader);
        facts_free(facts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(diagnosis_of_many_workers),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
