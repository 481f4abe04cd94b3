/* test_report_text.c: the text report: what the first screen holds, how wide it is, how a run's end
 * is told, and that it depends on the JSON alone. */
#include "report_testing.h"

#include "report/text_layout.h"

static char *text_of(const json_t *summary)
{
    struct str out = {0};
    report_text(summary, 0, &out);
    assert_false(out.failed);
    return out.text;
}

static char *report_of(const struct facts *facts, const struct findings *findings)
{
    json_t *summary = NULL;
    struct leat_err err = {""};
    assert_int_equal(summary_build(facts, findings, &summary, &err), 0);
    char *text = text_of(summary);
    json_decref(summary);
    return text;
}

/* Columns of the widest line. */
static int widest(const char *text)
{
    int most = 0;
    while (*text) {
        size_t length = strcspn(text, "\n");
        char line[4096];
        assert_true(length < sizeof line);
        memcpy(line, text, length);
        line[length] = 0;
        if (layout_width(line) > most)
            most = layout_width(line);
        text += length + (text[length] == '\n');
    }
    return most;
}

static void cut_to_lines(char *text, int lines)
{
    for (; *text; text++)
        if (*text == '\n' && --lines == 0) {
            text[1] = 0;
            return;
        }
}

/* Runs of blanks and line ends become one blank: for what may be wrapped anywhere. */
static void assert_says(const char *text, const char *sentence)
{
    struct str flat = {0};
    for (; *text; text++)
        if (*text != ' ' && *text != '\n')
            str_add_bytes(&flat, text, 1);
        else if (flat.length && flat.text[flat.length - 1] != ' ')
            str_add(&flat, " ");
    if (!strstr(str_text(&flat), sentence))
        fail_msg("\"%s\" is not in:\n%s", sentence, str_text(&flat));
    str_done(&flat);
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void first_screen_holds_what_matters(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    char *text = report_of(&run.facts, &run.findings);
    assert_true(widest(text) < 80);
    assert_has(text, "\n  leat compare demo demo-2\n");
    assert_int_equal(strncmp(text, "Verdict: INPUT-BOUND (critical)\n", 32), 0);
    cut_to_lines(text, 24);
    assert_has(text, "Why:     Waiting for batches takes 84 %");
    assert_has(text, "Next:    Give the loader workers");
    assert_says(text, "103 steps, 100 kept, 3 warm-up left out");
    assert_has(text, "\nStep Time\n- Diagnosis: INPUT-BOUND (critical)\n");
    assert_has(text, "- Stats: total 303.7ms | input 254.5ms | compute 48.7ms | wait 0.50ms\n");
    assert_has(text, "- Why: Waiting for batches");
    assert_has(text, "\nInput\n- Diagnosis: NO_OVERLAP\n");
    mem_free(text);
    findings_done(&run.findings);
}

/* The gain is the first way's: it stands between the two. Both fit the first screen. */
static void another_way_comes_after_the_gain(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    run.findings.items[0].predicted_gain = 0.25;
    finding_offer(&run.findings.items[0], "Or %s.", "leat.DataLoader with the same arguments");
    char *text = report_of(&run.facts, &run.findings);
    cut_to_lines(text, 24);
    assert_says(text, "Predicted: +25 % throughput. Or leat.DataLoader with the same arguments.");
    assert_has(text, "\nInput\n- Diagnosis: NO_OVERLAP\n");
    mem_free(text);
    findings_done(&run.findings);
}

/* What `leat run` printed is what `leat view` prints: also after a way through the file. */
static void the_file_says_the_same(void **state)
{
    struct hand_run run;
    json_t *summary = NULL, *again = NULL;
    struct leat_err err = {""};
    hand_slow_input(&run);
    run.rank.kept_ms *= 1.0000001; /* a figure that needs many digits */
    assert_int_equal(summary_build(&run.facts, &run.findings, &summary, &err), 0);
    char *file = json_dumps(summary, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    assert_int_equal(summary_parse(file, strlen(file), &again, &err), 0);
    char *now = text_of(summary), *later = text_of(again);
    assert_string_equal(now, later);
    free(file);
    mem_free(now);
    mem_free(later);
    json_decref(summary);
    json_decref(again);
    findings_done(&run.findings);
}

static void how_it_ended(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    run.proc = (struct proc_fact){.pid = 1000,
                                  .role = "main",
                                  .exception = "ValueError: shapes differ (train.py:88)",
                                  .worker_id = -1,
                                  .ended_ms = NAN};
    run.facts.procs = &run.proc;
    run.facts.proc_count = 1;
    run.facts.ended = "failed";
    run.facts.exit_status = 1;
    char *text = report_of(&run.facts, &run.findings);
    assert_says(text, "demo failed after 32.1s with exit status 1: ValueError: shapes differ "
                      "(train.py:88).");
    mem_free(text);
    run.proc.exception[0] = 0;
    run.facts.ended = "killed";
    run.facts.exit_status = -1;
    run.facts.signal = 9;
    run.facts.oom_kills = 1;
    text = report_of(&run.facts, &run.findings);
    assert_says(text, "demo was killed by SIGKILL after 32.1s.");
    assert_says(text, "out-of-memory killer");
    mem_free(text);
    run.facts.ended = "interrupted";
    run.facts.signal = 2;
    run.facts.oom_kills = 0;
    text = report_of(&run.facts, &run.findings);
    assert_says(text, "demo was interrupted after 32.1s.");
    assert_null(strstr(text, "out-of-memory"));
    mem_free(text);
    findings_done(&run.findings);
}

static void what_was_left_out_or_lost_is_said(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    run.rank.compile_steps = 2;
    run.rank.compile_ms = 8123;
    run.rank.eval_ms = 3852;
    run.lost = (struct lost_fact){.what = "probes", .why = "NVML was not found.", .n = 1};
    run.facts.lost = &run.lost;
    run.facts.lost_count = 1;
    char *text = report_of(&run.facts, &run.findings);
    assert_says(text, "2 compile (8.12s) left out");
    assert_says(text, "Evaluation took 12 % of the run");
    assert_has(text, "\nNot seen\n- probes (1): NVML was not found.\n");
    mem_free(text);
    findings_done(&run.findings);
}

static struct cuda_call call_of(int64_t pid, const char *class, double n, double ms, double bytes)
{
    struct cuda_call c = {.pid = pid, .n = n, .ms = ms, .bytes = bytes};
    snprintf(c.class, sizeof c.class, "%s", class);
    return c;
}

static struct gpu_phase phase_of(int64_t pid, const char *phase, double device, double idle,
                                 double hidden)
{
    struct gpu_phase p = {.pid = pid, .device_ms = device, .idle_ms = idle, .hidden_ms = hidden};
    snprintf(p.phase, sizeof p.phase, "%s", phase);
    return p;
}

static struct cuda_line line_of(int64_t pid, int line, const char *kind, double n, double ms,
                                double steps)
{
    struct cuda_line l = {.pid = pid, .line = line, .n = n, .ms = ms, .steps = steps};
    snprintf(l.file, sizeof l.file, "train.py");
    snprintf(l.kind, sizeof l.kind, "%s", kind);
    return l;
}

static void what_a_step_asks_of_cuda_is_one_line(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    int64_t pid = run.rank.pid;
    double steps = (double)run.rank.steps;
    struct cuda_call calls[] = {
        call_of(pid, "sync", 3 * steps, 1.5 * steps, 0),
        call_of(pid, "event_sync", steps, 0.5 * steps, 0),
        call_of(pid, "launch", 101 * steps, 0.5 * steps, 0),
        call_of(pid, "h2d_pinned", 2 * steps, 0, 2048 * steps),
        call_of(pid, "d2h_pageable", 0.25 * steps, 0, 1024 * steps),
        call_of(pid, "event", 7 * steps, 0, 0),
        call_of(pid + 1, "launch", 1e6, 0, 0), /* of a worker: not the training's */
    };
    run.facts.cuda_calls = calls;
    run.facts.cuda_call_count = sizeof calls / sizeof *calls;
    char *text = report_of(&run.facts, &run.findings);
    assert_says(text, "- CUDA, a step: 101 launches, 0.50ms | 2 copies of pinned memory, 2 KiB | "
                      "0.25 copies of pageable memory, 1 KiB | 4 waits, 2.00ms");
    assert_null(strstr(text, "allocations"));
    assert_true(widest(text) < 80);
    mem_free(text);
    run.facts.cuda_call_count = 0;
    text = report_of(&run.facts, &run.findings);
    assert_null(strstr(text, "CUDA"));
    mem_free(text);
    findings_done(&run.findings);
}

static void the_clock_of_the_device_is_one_line(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    int64_t pid = run.rank.pid;
    struct gpu_phase phases[] = {
        phase_of(pid, "input", 240, 240, 50),    phase_of(pid, "forward", 400, 31, 0),
        phase_of(pid, "backward", 260, 1, 0),    phase_of(pid, "launch", 100, 100, 0),
        phase_of(pid + 1, "input", 9e9, 9e9, 0), /* not the training's */
    };
    run.facts.gpu_phases = phases;
    run.facts.gpu_phase_count = sizeof phases / sizeof *phases;
    char *text = report_of(&run.facts, &run.findings);
    assert_says(text,
                "- GPU clock: idle 37 % of the time (input 24 %, Python in forward 3.1 %, between "
                "launches 10 %); waits for batches hidden behind its work: 5.0 %");
    assert_true(widest(text) < 80);
    mem_free(text);
    run.facts.gpu_phase_count = 0;
    text = report_of(&run.facts, &run.findings);
    assert_null(strstr(text, "GPU clock"));
    mem_free(text);
    findings_done(&run.findings);
}

static void lines_that_copy_or_wait_are_named(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    int64_t pid = run.rank.pid;
    double steps = (double)run.rank.steps;
    struct cuda_call calls[] = {call_of(pid, "sync", 4 * steps, steps, 0)};
    struct cuda_line lines[] = {
        line_of(pid, 41, "pageable_copy", 2 * steps, 0.8 * steps, steps),
        line_of(pid, 57, "wait", steps, 0.4 * steps, steps),
        line_of(pid, 58, "wait", steps, 0, steps),
        line_of(pid, 59, "wait", steps, 0, steps),
        line_of(pid, 60, "wait", steps, 0, steps),
        line_of(pid, 61, "", steps, 0, steps),
        line_of(pid, 62, "blocking_copy", 900, 9000, 1), /* the model on its way to the device */
        line_of(pid + 1, 63, "blocking_copy", steps, 1, steps), /* not the training's */
    };
    run.facts.cuda_calls = calls;
    run.facts.cuda_call_count = 1;
    run.facts.cuda_lines = lines;
    run.facts.cuda_line_count = sizeof lines / sizeof *lines;
    char *text = report_of(&run.facts, &run.findings);
    assert_says(text,
                "- Copies of pageable memory: train.py:41 (2 a step, 0.80ms): pin_memory=True");
    assert_says(text,
                "- Waits for the GPU: train.py:57 (1 a step, 0.40ms), train.py:58 (1 a step,");
    assert_says(text, " and 1 more: .item(), ");
    assert_null(strstr(text, "waited for"));
    assert_null(strstr(text, "train.py:61"));
    assert_true(widest(text) < 80);
    mem_free(text);
    findings_done(&run.findings);
}

static void an_allocator_in_trouble_is_told(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    struct memory_sample samples[] = {
        {.allocated = 1e9, .reserved = 10.0 * (1 << 30), .split = 2.5 * (1 << 30), .retries = 7 },
        {.allocated = 1e9, .reserved = 10.0 * (1 << 30), .split = 0,               .retries = 12},
    };
    run.facts.memory_samples = samples;
    run.facts.memory_sample_count = sizeof samples / sizeof *samples;
    char *text = report_of(&run.facts, &run.findings);
    assert_says(text, "2.5 GiB of it free in pieces | 12 allocations had to empty the cache");
    mem_free(text);
    samples[0].split = 0.5 * (1 << 30);
    samples[0].retries = samples[1].retries = 0;
    text = report_of(&run.facts, &run.findings);
    assert_null(strstr(text, "in pieces"));
    assert_null(strstr(text, "empty the cache"));
    mem_free(text);
    findings_done(&run.findings);
}

static void a_gpu_has_a_line_of_its_own(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    struct gpu_sample samples[] = {
        {.gpu = "GPU-1",
         .power_w = 300,
         .power_limit_w = 700,
         .sm_clock_mhz = 1400,
         .pcie_tx_bytes_s = 1 << 20,
         .pcie_rx_bytes_s = 1 << 30,
         .throttle = "power_cap"},
        {.gpu = "GPU-1",
         .power_w = 400,
         .power_limit_w = 700,
         .sm_clock_mhz = 1600,
         .pcie_tx_bytes_s = 3 << 20,
         .pcie_rx_bytes_s = 3.0 * (1 << 30)},
        {.gpu = "GPU-2",
         .power_w = NAN,
         .power_limit_w = NAN,
         .sm_clock_mhz = NAN,
         .pcie_tx_bytes_s = NAN,
         .pcie_rx_bytes_s = NAN    }, /* one that tells nothing */
    };
    run.facts.gpu_samples = samples;
    run.facts.gpu_sample_count = sizeof samples / sizeof *samples;
    char *text = report_of(&run.facts, &run.findings);
    assert_says(text,
                "- GPU 0: 1500 MHz | 350 of 700 W | PCIe in 2.0 GiB/s, at most 3.0 GiB/s | out "
                "2 MiB/s, at most 3 MiB/s | held down by power_cap");
    assert_null(strstr(text, "- GPU 1:"));
    assert_true(widest(text) < 80);
    mem_free(text);
    findings_done(&run.findings);
}

static void a_healthy_run_and_an_empty_one(void **state)
{
    struct facts facts = hand_nothing();
    struct findings findings = {0};
    hand_finding(&findings, "INSUFFICIENT DATA", SECTION_STEP_TIME, SEVERITY_INFO,
                 "No step was seen.", "Run a training with torch.");
    char *text = report_of(&facts, &findings);
    assert_has(text, "Verdict: INSUFFICIENT DATA (info)\n");
    assert_says(text, "No step was seen.");
    assert_has(text, "- Stats: not measured");
    assert_has(text, "  leat check\n");
    assert_null(strstr(text, " 0ms")); /* unknown is not zero */
    assert_true(widest(text) < 80);
    mem_free(text);
    findings_done(&findings);
}

static void long_and_hostile_text_stays_in_its_lines(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    char summary[3000];
    memset(summary, 'x', sizeof summary);
    summary[sizeof summary - 1] = 0;
    finding_say(&run.findings.items[0], "%s", summary);
    finding_advise(&run.findings.items[0], "\033[31mred\007 \342\200\256reversed \346\274\242");
    run.facts.run_name = "a name with blanks that is rather long for a run, but allowed";
    char *text = report_of(&run.facts, &run.findings);
    assert_true(widest(text) < 80);
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\007'));
    assert_null(strstr(text, "\342\200\256"));
    assert_has(text, "\346\274\242");
    mem_free(text);
    findings_done(&run.findings);
}

static void numbers_for_people(void **state)
{
    char cell[LAYOUT_CELL];
    assert_string_equal(layout_duration(0.0123, cell), "12.3us");
    assert_string_equal(layout_duration(0.5, cell), "0.50ms");
    assert_string_equal(layout_duration(254.5, cell), "254.5ms");
    assert_string_equal(layout_duration(999.96, cell), "1.00s");
    assert_string_equal(layout_duration(125000, cell), "2m05s");
    assert_string_equal(layout_duration(9e6, cell), "2h30m");
    assert_string_equal(layout_duration(NAN, cell), "-");
    assert_string_equal(layout_duration(-3, cell), "-3.00ms");
    assert_string_equal(layout_percent(0.838, cell), "84 %");
    assert_string_equal(layout_percent(0.0342, cell), "3.4 %");
    assert_string_equal(layout_percent(0.0001, cell), "< 0.1 %");
    assert_string_equal(layout_percent(0, cell), "0 %");
    assert_string_equal(layout_change(0.052, cell), "+5.2 %");
    assert_string_equal(layout_change(-0.31, cell), "-31 %");
    assert_string_equal(layout_change(3.12, cell), "4.1x");
    assert_string_equal(layout_bytes(512.0 * 1024 * 1024, cell), "512 MiB");
    assert_string_equal(layout_bytes(1.5 * 1024 * 1024 * 1024, cell), "1.5 GiB");
    layout_duration(1e300, cell);
    layout_percent(-1e300, cell);
    layout_bytes(1e300, cell);
    layout_count(1e300, cell);
    layout_change(1e300, cell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_screen_holds_what_matters),
        cmocka_unit_test(another_way_comes_after_the_gain),
        cmocka_unit_test(the_file_says_the_same),
        cmocka_unit_test(how_it_ended),
        cmocka_unit_test(what_was_left_out_or_lost_is_said),
        cmocka_unit_test(what_a_step_asks_of_cuda_is_one_line),
        cmocka_unit_test(the_clock_of_the_device_is_one_line),
        cmocka_unit_test(lines_that_copy_or_wait_are_named),
        cmocka_unit_test(an_allocator_in_trouble_is_told),
        cmocka_unit_test(a_gpu_has_a_line_of_its_own),
        cmocka_unit_test(a_healthy_run_and_an_empty_one),
        cmocka_unit_test(long_and_hostile_text_stays_in_its_lines),
        cmocka_unit_test(numbers_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
