/* test_session.c: the protocol with the user's process, as lines of JSON: the usual course, hangs,
 * kills, limits and invalid lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "tune/session.h"
#include "unit/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint64_t at(double s)
{
    return (uint64_t)((1 + s) * 1e9);
}

static void hear(struct session *s, double when_s, const char *line)
{
    session_take_line(s, line, strlen(line), at(when_s));
}

static void begin(struct session *s, int has_model)
{
    struct tune_limits limits = {.cpus = 2,
                                 .memory_bytes = 1 << 30,
                                 .shm_bytes = -1,
                                 .time_s = 60,
                                 .hang_s = 5,
                                 .most_workers = 8};
    session_init(s, &limits, has_model);
    hear(s, 0,
         "{\"event\":\"hello\",\"dataset\":\"Rows\",\"where\":\"t.py:3\",\"num_workers\":2,"
         "\"batch_size\":10,\"dataset_length\":1000,\"epoch_batches\":100,\"can_batch\":1,"
         "\"prefetch_factor\":2,\"call\":[[\"\",\"rows\"],[\"num_workers\",\"2\"]]}");
}

/* 1 when leat sent the order `what`, with `flag` true unless that is NULL. Empties the output. */
static int ordered(struct session *s, const char *what, const char *flag)
{
    int found = 0;
    for (const char *line = str_text(&s->output); *line;) {
        size_t length = strcspn(line, "\n");
        json_t *order = json_loadb(line, length, 0, NULL);
        found |= strcmp(json_find_text(order, "do", ""), what) == 0 &&
                 (!flag || json_is_true(json_object_get(order, flag)));
        json_decref(order);
        line += length + (line[length] == '\n');
    }
    str_done(&s->output);
    return found;
}

static void say_samples(struct session *s, double when_s)
{
    hear(s, when_s,
         "{\"event\":\"samples\",\"count\":100,\"mean_s\":0.001,\"p99_s\":0.002,"
         "\"calm_s\":0.001,\"cpu_s\":0.001,\"error\":\"\"}");
}

/* One row: rounds of one batch per worker. */
static void play_row(struct session *s, double when_s, double round_s)
{
    struct str line = {0};
    int w = s->config.workers ? s->config.workers : 1;
    str_add(&line, "{\"event\":\"batches\",\"times\":[0.1");
    int batches = 1;
    for (int r = 0; r * round_s < 1.0 || r < 5; r++)
        for (int i = r == 0; i < w; i++, batches++)
            str_addf(&line, ",%f", 0.1 + r * round_s);
    str_add(&line, "]}");
    hear(s, when_s, str_text(&line));
    str_done(&line);
    assert_true(ordered(s, "stop", NULL));
    str_addf(&line,
             "{\"event\":\"row\",\"batches\":%d,\"samples\":%d,\"batch_bytes\":400,"
             "\"restart_s\":0.01,\"error\":\"\"}",
             batches, batches * 10);
    hear(s, when_s + 0.1, str_text(&line));
    str_done(&line);
}

/* The text for people holds `part`, wherever it broke a line. */
static void assert_text_holds(const struct tune_result *result, const char *part)
{
    struct str text = {0}, flat = {0};
    tune_text(result, 0, &text);
    for (const char *p = str_text(&text); *p; p += strspn(p, " \n")) {
        size_t word = strcspn(p, " \n");
        str_add_bytes(&flat, p, word);
        str_add(&flat, " ");
        p += word;
    }
    if (!strstr(str_text(&flat), part))
        fail_msg("\"%s\" is not in:\n%s", part, str_text(&text));
    str_done(&text);
    str_done(&flat);
}

static void from_hello_to_the_model(void **state)
{
    struct session s;
    begin(&s, 1);
    assert_int_equal(s.result.facts.now.workers, 2);
    assert_true(ordered(&s, "samples", NULL));
    say_samples(&s, 1);
    double now = 1;
    int rows = 0;
    while (s.stage == SESSION_ROW && rows < 20) {
        assert_true(ordered(&s, "measure", NULL));
        double round_s = s.config.workers > 2 ? 0.01 * s.config.workers / 2 : 0.01;
        play_row(&s, now += 1, round_s);
        rows++;
    }
    assert_true(rows >= 2 && rows < 12);
    assert_int_equal(s.stage, SESSION_CACHED);
    assert_true(ordered(&s, "measure", "cached"));
    play_row(&s, now += 1, 0.001);
    assert_int_equal(s.stage, SESSION_MODEL);
    assert_true(s.result.cached_rate > 0);
    assert_true(ordered(&s, "model", NULL));
    hear(&s, now + 1, "{\"event\":\"model\",\"steps\":50,\"step_s\":0.02,\"samples\":10}");
    assert_int_equal(s.stage, SESSION_END);
    assert_int_equal(s.action, SESSION_KILL);
    assert_float_equal(s.result.rows[s.result.best].rate, 2000, 20);
    assert_int_equal(s.result.rows[s.result.best].config.workers, 2);
    struct tune_verdict v;
    tune_judge(&s.result, &v);
    assert_int_equal(v.bottleneck, BOTTLENECK_MODEL);
    assert_float_equal(v.factor, 4, 0.8); /* 2000 at best, less the start of an epoch; 500 taken */
    json_t *json = tune_json(&s.result);
    assert_non_null(json);
    assert_string_equal(json_find_text(json, "verdict.bottleneck", ""), "model");
    assert_true(json_find_number(json, "choice.settings.num_workers", -1) == 2);
    static const char call[] = "DataLoader(rows, num_workers=2";
    assert_int_equal(strncmp(json_find_text(json, "choice.line", ""), call, strlen(call)), 0);
    json_decref(json);
    assert_text_holds(&s.result, v.sentence);
    session_done(&s);
}

static const char gpu_hello[] = "{\"event\":\"hello\",\"num_workers\":2,\"prefetch_factor\":2,"
                                "\"batch_size\":10,\"accelerator\":1,\"device\":\"\"}";

static void begin_on_gpu(struct session *s, int has_model)
{
    struct tune_limits limits = {.cpus = 2,
                                 .memory_bytes = -1,
                                 .shm_bytes = -1,
                                 .time_s = 60,
                                 .hang_s = 5,
                                 .most_workers = 8};
    session_init(s, &limits, has_model);
    hear(s, 0, gpu_hello);
}

/* With a GPU the script's own step comes first: how it copies decides how rows copy, and whether
 * leat.DataLoader is measured. */
static void a_gpu_session_begins_with_a_step(void **state)
{
    struct session s;
    begin_on_gpu(&s, 1);
    assert_int_equal(s.stage, SESSION_STEP);
    assert_true(ordered(&s, "step", NULL));
    hear(&s, 1, "{\"event\":\"batches\",\"times\":[0.5]}");
    hear(&s, 1, "{\"event\":\"first\",\"error\":\"\"}");
    session_tick(&s, at(60)); /* it may compile */
    assert_int_equal(s.action, SESSION_NO_ACTION);
    hear(&s, 90,
         "{\"event\":\"step\",\"device\":\"cuda\",\"non_blocking\":0,\"copy_bytes\":4000,"
         "\"can_leat\":1}");
    assert_int_equal(s.stage, SESSION_SAMPLES);
    assert_int_equal(s.result.facts.accelerator, 1);
    say_samples(&s, 91);
    double now = 91;
    int leat = 0, pinned = 0;
    for (int rows = 0; s.stage == SESSION_ROW && rows < 20; rows++) {
        leat += s.config.leat;
        pinned += s.config.pin;
        assert_int_equal(ordered(&s, "measure", "leat"), s.config.leat);
        play_row(&s, now += 1, s.config.leat ? 0.001 : 0.01);
    }
    assert_int_equal(leat, 1);
    assert_true(pinned);
    assert_int_equal(s.result.out_of_time, 0); /* the first step is not part of the search */
    /* leat.DataLoader has no worker processes, so there is no cached-batch stage. */
    assert_int_equal(s.stage, SESSION_MODEL);
    hear(&s, now + 1, "{\"event\":\"model\",\"steps\":50,\"step_s\":0.002,\"samples\":10}");
    json_t *json = tune_json(&s.result);
    assert_text_holds(&s.result, json_find_text(json, "choice.line", "?"));
    assert_int_equal(strncmp(json_find_text(json, "choice.line", ""), "leat.DataLoader(", 16), 0);
    assert_true(json_is_true(json_find(json, "choice.settings.leat")));
    assert_string_equal(json_find_text(json, "loader.device", ""), "cuda");
    json_decref(json);
    session_done(&s);
}

static void a_missing_first_step(void **state)
{
    struct session s;
    begin_on_gpu(&s, 0); /* no loop: no step */
    assert_int_equal(s.stage, SESSION_SAMPLES);
    session_done(&s);
    begin_on_gpu(&s, 1);
    session_tick(&s, at(6)); /* not even a batch */
    assert_int_equal(s.action, SESSION_INTERRUPT);
    hear(&s, 7, "{\"event\":\"step\",\"device\":\"\",\"can_leat\":0}");
    assert_int_equal(s.stage, SESSION_SAMPLES);
    assert_int_equal(s.result.facts.accelerator, 0);
    session_done(&s);
    begin_on_gpu(&s, 1);
    hear(&s, 1, "{\"event\":\"first\",\"error\":\"\"}");
    session_process_ended(&s, "the script ended with status 0", at(2));
    assert_int_equal(s.stage, SESSION_END);
    assert_true(s.result.model_error[0] && isnan(s.result.step_s));
    session_done(&s);
}

static void a_hang_is_interrupted_then_killed(void **state)
{
    struct session s;
    begin(&s, 0);
    say_samples(&s, 0);
    session_tick(&s, at(4));
    assert_int_equal(s.action, SESSION_NO_ACTION);
    session_tick(&s, at(6));
    assert_int_equal(s.action, SESSION_INTERRUPT);
    s.action = SESSION_NO_ACTION;
    hear(&s, 7, "{\"event\":\"row\",\"batches\":0,\"samples\":0,\"error\":\"abandoned\"}");
    assert_int_equal(s.result.row_count, 1);
    assert_int_equal(s.result.rows[0].status, TUNE_FAILED);
    assert_figures(s.result.rows[0].error, "5"); /* hang_s, not the "abandoned" of the process */
    assert_int_equal(s.stage, SESSION_ROW);      /* other settings may work */
    session_tick(&s, at(13));
    assert_int_equal(s.action, SESSION_INTERRUPT);
    s.action = SESSION_NO_ACTION;
    session_tick(&s, at(40)); /* not even an answer */
    assert_int_equal(s.action, SESSION_KILL);
    assert_int_equal(s.result.row_count, 2);
    session_done(&s);
}

static void ctrl_c_keeps_the_rows_so_far(void **state)
{
    struct session s;
    begin(&s, 1);
    say_samples(&s, 0);
    str_done(&s.output);
    play_row(&s, 1, 0.01);
    hear(&s, 2, "{\"event\":\"batches\",\"times\":[0.1,0.2,0.3]}");
    session_stop(&s, at(3));
    assert_int_equal(s.action, SESSION_KILL);
    assert_true(s.result.interrupted);
    assert_true(s.result.row_count >= 1);
    json_t *json = tune_json(&s.result);
    assert_true(json_is_true(json_find(json, "interrupted")));
    json_decref(json);
    session_done(&s);
}

static void a_killed_process_is_a_failed_row(void **state)
{
    struct session s;
    begin(&s, 1);
    say_samples(&s, 0);
    static const char how[] = "the process was killed by signal 9";
    session_process_ended(&s, how, at(1));
    assert_int_equal(s.result.row_count, 1);
    assert_string_equal(s.result.rows[0].error, how);
    assert_int_equal(s.stage, SESSION_END);
    session_done(&s);
}

static void too_much_memory_ends_the_row(void **state)
{
    struct session s;
    begin(&s, 0);
    say_samples(&s, 0);
    str_done(&s.output);
    session_memory(&s, 1ll << 31);
    assert_true(ordered(&s, "stop", NULL));
    hear(&s, 1, "{\"event\":\"row\",\"batches\":5,\"samples\":50,\"error\":\"\"}");
    assert_int_equal(s.result.rows[0].status, TUNE_FAILED);
    assert_figures(s.result.rows[0].error, "2048 1024");
    session_done(&s);
}

/* Memory is read once more when a row has been measured, while its workers still exist. */
static void too_much_memory_at_its_end_fails_the_row(void **state)
{
    struct session s;
    begin(&s, 0);
    say_samples(&s, 0);
    str_done(&s.output);
    struct str line = {0};
    str_add(&line, "{\"event\":\"batches\",\"times\":[0.1");
    for (int i = 1; i < 400; i++)
        str_addf(&line, ",%f", 0.1 + 0.01 * i);
    str_add(&line, "]}");
    hear(&s, 4.5, str_text(&line));
    str_done(&line);
    assert_true(s.stopping);
    session_memory(&s, 1ll << 31);
    hear(&s, 5, "{\"event\":\"row\",\"batches\":400,\"samples\":4000,\"error\":\"\"}");
    assert_int_equal(s.result.rows[0].status, TUNE_FAILED);
    assert_figures(s.result.rows[0].error, "2048 1024");
    session_done(&s);
}

static void the_time_limit_ends_the_rows(void **state)
{
    struct session s;
    begin(&s, 1);
    say_samples(&s, 0);
    str_done(&s.output);
    play_row(&s, 61, 0.01);
    assert_int_equal(s.stage, SESSION_MODEL);
    assert_true(s.result.out_of_time);
    session_done(&s);
}

static const char *progress(const struct session *s, double when_s)
{
    static char shown[128];
    struct str text = {0};
    session_progress(s, at(when_s), &text);
    snprintf(shown, sizeof shown, "%s", str_text(&text));
    str_done(&text);
    return shown;
}

/* The estimate assumes about eight rows of 0.6 s, later of the mean of the rows so far; 0.4 s for
 * the cached batch and 3 s for the model. */
static void progress_has_the_time_left(void **state)
{
    struct session s;
    struct tune_limits limits = {.time_s = 60, .hang_s = 5, .most_workers = 8};
    session_init(&s, &limits, 1);
    assert_figures(progress(&s, 0), ""); /* nothing is known yet */
    session_done(&s);
    begin(&s, 1);
    assert_figures(progress(&s, 0), "8s");
    say_samples(&s, 1);
    str_done(&s.output);
    assert_figures(progress(&s, 1), "num_workers=2 prefetch_factor=2 8s");
    hear(&s, 2, "{\"event\":\"batches\",\"times\":[0.1,0.1,0.11,0.11,0.12,0.12]}");
    assert_figures(progress(&s, 2), "num_workers=2 prefetch_factor=2 2000 8s");
    play_row(&s, 3.9, 0.01);
    assert_int_equal(s.result.row_count, 1);
    /* 7 rows of 4 s, 0.4 and 3. */
    assert_figures(strchr(progress(&s, 4), ';'), "31s");
    /* --time limits the rows, not the model. */
    assert_figures(strchr(progress(&s, 58), ';'), "5s");
    session_done(&s);
}

static void progress_of_the_last_stages(void **state)
{
    struct session s;
    begin(&s, 1);
    say_samples(&s, 1);
    str_done(&s.output);
    double now = 1;
    for (int rows = 0; s.stage == SESSION_ROW && rows < 20; rows++)
        play_row(&s, now += 1, s.config.workers > 2 ? 0.01 * s.config.workers / 2 : 0.01);
    assert_int_equal(s.stage, SESSION_CACHED);
    assert_true(strlen(progress(&s, now)) > 0);
    str_done(&s.output);
    play_row(&s, now += 1, 0.001);
    assert_int_equal(s.stage, SESSION_MODEL);
    assert_figures(progress(&s, now), ""); /* its time is not known */
    hear(&s, now + 1, "{\"event\":\"model\",\"steps\":50,\"step_s\":0.02,\"samples\":10}");
    assert_string_equal(progress(&s, now + 1), "");
    session_done(&s);
}

static void invalid_lines_are_ignored(void **state)
{
    static const char *const lines[] = {
        "",
        "{",
        "[]",
        "7",
        "{\"event\":7}",
        "{\"event\":\"row\"}",
        "{\"event\":\"model\"}",
        "{\"event\":\"hello\",\"num_workers\":-1,\"batch_size\":1e300,\"call\":7}",
        "{\"event\":\"hello\"}",
        "{\"event\":\"samples\",\"mean_s\":\"x\"}",
        "{\"event\":\"batches\",\"times\":[\"a\",null,-1,5,4]}",
        "{\"event\":\"batches\",\"times\":7}",
        "{\"event\":\"row\",\"batches\":-5,\"samples\":1e18,\"error\":7}"};
    struct tune_limits limits = {.cpus = 1,
                                 .memory_bytes = -1,
                                 .shm_bytes = -1,
                                 .time_s = 60,
                                 .hang_s = 5,
                                 .most_workers = 4};
    struct session s;
    session_init(&s, &limits, 1);
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            hear(&s, round, lines[i]);
    struct str text = {0};
    tune_text(&s.result, 0, &text);
    json_t *json = tune_json(&s.result);
    assert_non_null(json);
    json_decref(json);
    str_done(&text);
    session_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_hello_to_the_model),
        cmocka_unit_test(a_gpu_session_begins_with_a_step),
        cmocka_unit_test(a_missing_first_step),
        cmocka_unit_test(a_hang_is_interrupted_then_killed),
        cmocka_unit_test(ctrl_c_keeps_the_rows_so_far),
        cmocka_unit_test(a_killed_process_is_a_failed_row),
        cmocka_unit_test(too_much_memory_ends_the_row),
        cmocka_unit_test(too_much_memory_at_its_end_fails_the_row),
        cmocka_unit_test(the_time_limit_ends_the_rows),
        cmocka_unit_test(progress_has_the_time_left),
        cmocka_unit_test(progress_of_the_last_stages),
        cmocka_unit_test(invalid_lines_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
