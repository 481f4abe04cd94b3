/* test_many_workers.c: many epochs leave thousands of ended worker processes. The summary must not
 * read all their rows again for each worker. */
#include "report_testing.h"

enum { WORKERS = 10000, PARTS = 5 };

static const enum leat_part parts[PARTS] = {LEAT_PART_SAMPLE, LEAT_PART_COLLATE, LEAT_PART_PICKLE,
                                            LEAT_PART_IDLE, LEAT_PART_FETCH};

struct many {
    struct hand_run run;
    struct worker_fact *workers;
    struct input_part *rows;
};

/* Worker i of loader 0 took i + 1 ms for each part. */
static void make_many(struct many *m)
{
    hand_slow_input(&m->run);
    m->workers = mem_alloc_array(WORKERS, sizeof *m->workers);
    m->rows = mem_alloc_array((size_t)WORKERS * PARTS, sizeof *m->rows);
    assert_non_null(m->workers);
    assert_non_null(m->rows);
    for (int i = 0; i < WORKERS; i++) {
        m->workers[i] = (struct worker_fact){.pid = 2000 + i,
                                             .parent_pid = 1000,
                                             .worker_id = i,
                                             .batches = 1,
                                             .samples = 32,
                                             .busy_ms = 10,
                                             .alive_ms = 100};
        for (int k = 0; k < PARTS; k++)
            m->rows[i * PARTS + k] = (struct input_part){
                .pid = 1000, .worker = i, .part = parts[k], .n = 1, .total_ms = i + 1};
    }
    m->run.facts.workers = m->workers;
    m->run.facts.worker_count = WORKERS;
    m->run.facts.input_parts = m->rows;
    m->run.facts.input_part_count = (size_t)WORKERS * PARTS;
}

static void drop_many(struct many *m)
{
    mem_free(m->workers);
    mem_free(m->rows);
    findings_done(&m->run.findings);
}

static void a_worker_reads_its_own_rows(void **state)
{
    static struct many m;
    make_many(&m);
    for (int i = 0; i < WORKERS; i += 997) {
        struct part_stats s;
        size_t read = facts_part(&m.run.facts, 1000, 0, i, LEAT_PART_PICKLE, &s);
        assert_int_equal(read, PARTS);
        assert_true(s.n == 1 && s.total == i + 1);
    }
    struct part_stats all;
    assert_int_equal(facts_part(&m.run.facts, 1000, 0, FACTS_ALL, LEAT_PART_PICKLE, &all),
                     WORKERS * PARTS);
    assert_true(all.n == WORKERS);
    assert_int_equal(facts_part(&m.run.facts, 1000, 1, FACTS_ALL, LEAT_PART_PICKLE, &all), 0);
    assert_int_equal(facts_part(&m.run.facts, 999, 0, FACTS_ALL, LEAT_PART_PICKLE, &all), 0);
    drop_many(&m);
}

/* Rows of an unknown loader count for the only loader of the process. */
static void rows_of_an_unknown_loader(void **state)
{
    static struct many m;
    struct part_stats s;
    make_many(&m);
    for (int k = 0; k < PARTS; k++) { /* they come first, as in the query */
        m.rows[k].loader = -1;
        m.rows[k].worker = 7;
    }
    assert_int_equal(facts_part(&m.run.facts, 1000, 0, 7, LEAT_PART_PICKLE, &s), 2 * PARTS);
    assert_true(s.n == 2 && s.total == 1 + 8);
    assert_int_equal(facts_part(&m.run.facts, 1000, 0, FACTS_ALL, LEAT_PART_PICKLE, &s),
                     WORKERS * PARTS);
    drop_many(&m);
}

static void the_summary_lists_a_part_of_them(void **state)
{
    static struct many m;
    struct leat_err err = {""};
    json_t *summary = NULL;
    make_many(&m);
    assert_int_equal(summary_build(&m.run.facts, &m.run.findings, &summary, &err), 0);
    const json_t *list = json_find(summary, "input.workers");
    assert_int_equal(json_array_size(list), 1024);
    const json_t *last = json_array_get(list, 1023);
    assert_true(json_find_number(last, "pickle.mean", NAN) == 1024);
    json_decref(summary);
    drop_many(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_reads_its_own_rows),
        cmocka_unit_test(rows_of_an_unknown_loader),
        cmocka_unit_test(the_summary_lists_a_part_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
