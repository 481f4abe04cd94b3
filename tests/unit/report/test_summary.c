/* test_summary.c: the summary from facts made by hand; absent is null, never 0; and what is no
 * summary is refused with a sentence. */
#include "report_testing.h"

#include "base/path.h"

#include <unistd.h>

static json_t *build(const struct facts *facts, const struct findings *findings)
{
    json_t *summary = NULL;
    struct leat_err err = {""};
    assert_int_equal(summary_build(facts, findings, &summary, &err), 0);
    return summary;
}

static void assert_null_at(const json_t *summary, const char *path)
{
    const json_t *value = json_find(summary, path);
    if (!value)
        fail_msg("%s is not there at all", path);
    if (!json_is_null(value))
        fail_msg("%s is not null", path);
}

static void nothing_known_is_null(void **state)
{
    struct facts facts = hand_nothing();
    struct findings findings = {0};
    hand_finding(&findings, KIND_INSUFFICIENT_DATA, SECTION_STEP_TIME, SEVERITY_INFO, "No step.",
                 "");
    json_t *s = build(&facts, &findings);
    static const char *const nulls[] = {"run.name",
                                        "run.command",
                                        "run.started_at",
                                        "run.duration_s",
                                        "run.ended",
                                        "run.exit_status",
                                        "run.signal",
                                        "run.exception",
                                        "run.node",
                                        "run.max_steps",
                                        "run.torch",
                                        "run.python",
                                        "run.leat",
                                        "verdict.action",
                                        "verdict.predicted_gain",
                                        "verdict.alternative",
                                        "step_time.steps",
                                        "step_time.kept_steps",
                                        "step_time.warmup_steps",
                                        "step_time.compile_steps",
                                        "step_time.compile_ms",
                                        "step_time.clock",
                                        "step_time.kind",
                                        "step_time.rank",
                                        "step_time.samples_per_s",
                                        "step_time.mean",
                                        "step_time.median",
                                        "step_time.p90",
                                        "step_time.p99",
                                        "step_time.cost",
                                        "step_time.micro_steps",
                                        "step_time.eval",
                                        "step_time.phases.input",
                                        "step_time.phases.h2d",
                                        "step_time.phases.forward",
                                        "step_time.phases.backward",
                                        "step_time.phases.optimizer",
                                        "step_time.phases.sync",
                                        "step_time.phases.other",
                                        "input.per_sample",
                                        "input.per_batch",
                                        "input.hand_over",
                                        "memory.limit_bytes",
                                        "system.cpus",
                                        "system.cpu",
                                        "system.run_cpu",
                                        "system.iowait",
                                        "system.pressure.cpu",
                                        "system.memory_total_bytes",
                                        "system.memory_available_least_bytes",
                                        "system.swap_in_bytes",
                                        "system.swap_used_peak_bytes",
                                        "system.shm_total_bytes",
                                        "system.oom_kills"};
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        assert_null_at(s, nulls[i]);
    assert_int_equal(json_object_size(json_find(s, "step_time.ranks")), 0);
    assert_int_equal(json_array_size(json_find(s, "processes")), 0);
    assert_string_equal(json_find_text(s, "schema_version", ""), "1.0");
    assert_int_equal(json_find_number(s, "lost.records", -1), 0); /* counted: zero is a fact */
    json_decref(s);
    findings_done(&findings);
}

static void known_figures_are_written(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    json_t *s = build(&run.facts, &run.findings);
    assert_string_equal(json_find_text(s, "verdict.kind", ""), "INPUT_BOUND");
    assert_string_equal(json_find_text(s, "verdict.label", ""), "INPUT-BOUND");
    assert_string_equal(json_find_text(s, "verdict.severity", ""), "critical");
    assert_int_equal(json_find_number(s, "run.exit_status", -1), 0); /* measured zero stays zero */
    assert_int_equal(json_find_number(s, "step_time.steps", -1), HAND_STEPS + 3);
    assert_int_equal(json_find_number(s, "step_time.kept_steps", -1), HAND_STEPS);
    double total = json_find_number(s, "step_time.mean", NAN), sum = 0, shares = 0;
    assert_true(fabs(total - 303.7) < 1e-9);
    for (int p = 0; p < PHASES; p++) {
        char path[64];
        snprintf(path, sizeof path, "step_time.phases.%s.mean", leat_phase_names[p]);
        sum += json_find_number(s, path, 0);
        snprintf(path, sizeof path, "step_time.phases.%s.share", leat_phase_names[p]);
        shares += json_find_number(s, path, 0);
    }
    assert_true(fabs(sum - total) < total * 1e-3);
    assert_true(fabs(shares - 1) < 1e-3);
    assert_null_at(s, "step_time.phases.h2d");
    assert_true(fabs(json_find_number(s, "step_time.samples_per_s", 0) - 32 / 0.3037) < 1e-6);
    assert_true(fabs(json_find_number(s, "step_time.ranks.0.median", 0) - 303.7) < 1e-9);
    const json_t *finding = json_array_get(json_find(s, "findings"), 0);
    assert_string_equal(json_find_text(finding, "cause", ""), "NO_OVERLAP");
    assert_null_at(finding, "scope.rank");
    assert_null_at(finding, "scope.pid");
    const json_t *loader = json_array_get(json_find(s, "input.loaders"), 0);
    assert_int_equal(json_find_number(loader, "num_workers", -1), 0);
    assert_null_at(loader, "prefetch_factor");
    assert_true(json_is_false(json_find(loader, "pin_memory")));
    assert_string_equal(json_string_value(json_array_get(json_find(s, "run.command"), 1)),
                        "--epochs");
    json_decref(s);
    findings_done(&run.findings);
}

/* Throughput adds up over ranks; the other figures are the typical rank's. */
static void two_ranks(void **state)
{
    static const double fast[PHASES] = {1, NAN, 10, 10, 1, 3, 0},
                        slow[PHASES] = {9, NAN, 10, 10, 1, 0, 0};
    static struct hand_rank arrays[2];
    struct rank_facts ranks[2];
    struct findings findings = {0};
    struct facts facts = hand_nothing();
    hand_fill(&arrays[0], &ranks[0], 0, fast);
    hand_fill(&arrays[1], &ranks[1], 1, slow);
    facts.ranks = ranks;
    facts.rank_count = 2;
    facts.world_size = 2;
    facts.typical = 1;
    hand_finding(&findings, KIND_BALANCED, SECTION_STEP_TIME, SEVERITY_INFO, "ok", "ok");
    json_t *s = build(&facts, &findings);
    assert_int_equal(json_find_number(s, "step_time.rank", -1), 1);
    assert_true(fabs(json_find_number(s, "step_time.median", 0) - 30) < 1e-9);
    assert_true(fabs(json_find_number(s, "step_time.ranks.0.median", 0) - 25) < 1e-9);
    double expected = 32 / 0.025 + 32 / 0.030;
    assert_true(fabs(json_find_number(s, "step_time.samples_per_s", 0) - expected) < 1e-6);
    ranks[0].samples = -1; /* one unknown makes the sum unknown, not smaller */
    json_decref(s);
    s = build(&facts, &findings);
    assert_null_at(s, "step_time.samples_per_s");
    json_decref(s);
    findings_done(&findings);
}

static void bytes_that_are_not_utf8(void **state)
{
    struct facts facts = hand_nothing();
    struct findings findings = {0};
    struct proc_fact proc = {.pid = 7,
                             .role = ROLE_MAIN,
                             .exception = "ValueError: caf\xe9 (x.py:1)",
                             .ended_ms = NAN,
                             .worker_id = -1};
    facts.procs = &proc;
    facts.proc_count = 1;
    facts.command = "not json \xff";
    hand_finding(&findings, KIND_BALANCED, SECTION_STEP_TIME, SEVERITY_INFO, "ok", "ok");
    json_t *s = build(&facts, &findings);
    assert_string_equal(json_find_text(s, "run.exception", ""), "ValueError: caf? (x.py:1)");
    assert_string_equal(json_string_value(json_array_get(json_find(s, "run.command"), 0)),
                        "not json ?");
    json_decref(s);
    findings_done(&findings);
}

static void an_incomplete_diagnosis_gives_no_summary(void **state)
{
    struct facts facts = hand_nothing();
    struct findings none = {0}, failed = {.failed = 1};
    json_t *summary = NULL;
    struct leat_err err = {""};
    assert_true(summary_build(&facts, &none, &summary, &err) < 0);
    assert_true(*err.text);
    assert_true(summary_build(&facts, &failed, &summary, &err) < 0);
    assert_null(summary);
}

/* ---- running out of memory ---------------------------------------------------------------------
 */

static unsigned long made, fail_at; /* jansson's own allocations; 0: none fails */

static void *failing_malloc(size_t bytes)
{
    return ++made == fail_at ? NULL : malloc(bytes);
}

/* The n-th allocation fails, for every n: a sentence or a whole summary, never half of one. */
static void every_allocation_may_fail(void **state)
{
    struct hand_run run;
    struct leat_err err = {""};
    hand_slow_input(&run);
    run.facts.command = "train.py"; /* jansson does not tell "no memory" from "no JSON" */
    json_t *whole = build(&run.facts, &run.findings);
    json_set_alloc_funcs(failing_malloc, free);
    int failures = 0;
    for (unsigned long n = 1;; n++) {
        json_t *summary = NULL;
        made = 0;
        fail_at = n;
        int result = summary_build(&run.facts, &run.findings, &summary, &err);
        fail_at = 0;
        if (made < n) {
            json_decref(summary);
            break; /* nothing failed any more */
        }
        failures += result < 0;
        if (result < 0)
            assert_int_equal(result, -ENOMEM);
        else if (!json_equal(summary, whole))
            fail_msg("allocation %lu failed and the summary is not whole", n);
        json_decref(summary);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(failures > 100);
    json_decref(whole);
    findings_done(&run.findings);
}

/* ---- reading ------------------------------------------------------------------------------- */

static void refused(const char *text, int code)
{
    json_t *summary = NULL;
    struct leat_err err = {""};
    int result = summary_parse(text, strlen(text), &summary, &err);
    if (result != -code || !*err.text)
        fail_msg("%s: %d, %s", text, result, err.text);
    assert_null(summary);
}

static void what_is_no_summary_is_refused(void **state)
{
    refused("", LEAT_E_CORRUPT);
    refused("hello", LEAT_E_CORRUPT);
    refused("{\"schema_version\": \"1.0\", \"run\"", LEAT_E_CORRUPT);
    refused("[]", LEAT_E_FOREIGN);
    refused("{\"schema_version\": 1}", LEAT_E_FOREIGN);
    refused("{\"dependencies\": {}}", LEAT_E_FOREIGN);
    refused("{\"schema_version\": \"2.0\", \"verdict\": {}}", LEAT_E_VERSION);
    refused("{\"schema_version\": \"1.0\", \"verdict\": {}}", LEAT_E_CORRUPT);
}

static void in_folder(const char *folder, const char *file, const char *text)
{
    struct leat_err err = {""};
    char *path = path_join(folder, file, NULL);
    assert_int_equal(path_make_dirs(folder, &err), 0);
    assert_int_equal(path_write_file(path, text, strlen(text), &err), 0);
    mem_free(path);
}

static void a_run_is_found_by_file_folder_or_name(void **state)
{
    struct hand_run run;
    char place[] = "/tmp/leat-test-XXXXXX";
    struct leat_err err = {""};
    json_t *again = NULL;
    hand_slow_input(&run);
    json_t *s = build(&run.facts, &run.findings);
    assert_non_null(mkdtemp(place));
    assert_int_equal(chdir(place), 0);
    assert_int_equal(summary_read("demo", &again, &err), -ENOENT);
    char *text = json_dumps(s, 0);
    in_folder("logs/demo", "final_summary.json", text);
    in_folder("logs/unfinished", "run.db", "x");
    free(text);
    static const char *const ways[] = {"demo", "logs/demo", "logs/demo/",
                                       "logs/demo/final_summary.json"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(summary_read(ways[i], &again, &err), 0);
        assert_true(json_equal(again, s));
        json_decref(again);
    }
    assert_int_equal(summary_read("dem", &again, &err), -ENOENT);
    assert_non_null(strstr(err.text, "demo")); /* the sentence names the runs that exist */
    assert_int_equal(summary_read("unfinished", &again, &err), -LEAT_E_FOREIGN);
    assert_int_equal(summary_read("logs", &again, &err), -ENOENT);
    char *newest = NULL;
    assert_int_equal(summary_newest("logs", &newest, &err), 0);
    assert_string_equal(newest, "logs/demo/final_summary.json");
    mem_free(newest);
    json_decref(s);
    findings_done(&run.findings);
    unlink("logs/demo/final_summary.json");
    unlink("logs/unfinished/run.db");
    rmdir("logs/demo");
    rmdir("logs/unfinished");
    rmdir("logs");
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(place), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_known_is_null),
        cmocka_unit_test(known_figures_are_written),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(bytes_that_are_not_utf8),
        cmocka_unit_test(an_incomplete_diagnosis_gives_no_summary),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(what_is_no_summary_is_refused),
        cmocka_unit_test(a_run_is_found_by_file_folder_or_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
