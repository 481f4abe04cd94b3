/* test_report_text.c: which lines the text report has, their figures, their width, and that they
 * depend on the JSON alone. The wording is held by tests/cli. */
#include "report_testing.h"

#include "report/text_layout.h"
#include "report/text_parts.h"
#include "unit/figures.h"

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

/* The rest of the line that begins with `lead`, its continuation lines joined to it by one space;
 * "" when there is none. */
static const char *line_of(const char *text, const char *lead)
{
    static char line[8192];
    size_t length = strlen(lead), used = 0;
    line[0] = 0;
    while (*text && strncmp(text, lead, length) != 0)
        text += strcspn(text, "\n"), text += *text == '\n';
    if (!*text)
        return line;
    text += length;
    do {
        size_t part = strcspn(text, "\n");
        assert_true(used + part + 2 < sizeof line);
        used += (size_t)sprintf(line + used, "%s%.*s", used ? " " : "", (int)part, text);
        text += part + (text[part] == '\n');
        text += strspn(text, " ");
    } while (*text && text[-1] == ' ');
    return line;
}

/* The lines below a title; "" when the report has no such section. */
static const char *section_of(const char *text, const char *title)
{
    struct str heading = {0};
    str_addf(&heading, "\n%s\n", title);
    const char *found = strstr(text, str_text(&heading));
    size_t length = heading.length;
    str_done(&heading);
    return found ? found + length : "";
}

static void first_screen_has_verdict_and_sections(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    const struct finding *f = &run.findings.items[0];
    char *text = report_of(&run.facts, &run.findings);
    assert_true(widest(text) < 80);
    const char *command = "\n  leat compare demo demo-2\n";
    assert_string_equal(text + strlen(text) - strlen(command), command);
    cut_to_lines(text, 24);
    assert_int_equal(strncmp(text, "Verdict: ", 9), 0);
    assert_string_equal(line_of(text, "Verdict: "), "INPUT-BOUND (critical)");
    assert_string_equal(line_of(text, "Why:     "), f->summary);
    assert_int_equal(strncmp(line_of(text, "Next:    "), f->action, strlen(f->action)), 0);
    assert_figures(line_of(text, "Run:     "), "32.1s 103 100 3");
    const char *steps = section_of(text, "Step Time"), *input = section_of(text, "Input");
    assert_string_equal(line_of(steps, "- Diagnosis: "), "INPUT-BOUND (critical)");
    assert_figures(line_of(steps, "- Stats: "), "303.7ms 254.5ms 48.7ms 0.50ms");
    assert_string_equal(line_of(steps, "- Why: "), f->summary);
    assert_string_equal(line_of(input, "- Diagnosis: "), "NO_OVERLAP");
    mem_free(text);
    findings_done(&run.findings);
}

/* The predicted gain is that of the first action, so it stands before the alternative. */
static void alternative_comes_after_the_gain(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    struct finding *f = &run.findings.items[0];
    f->predicted_gain = 0.25;
    finding_offer(f, ACTION_USE_LEAT_LOADER, "Or %s.", "leat.DataLoader with the same arguments");
    char *text = report_of(&run.facts, &run.findings);
    cut_to_lines(text, 24);
    const char *next = line_of(text, "Next:    ");
    size_t action = strlen(f->action), offer = strlen(f->alternative), whole = strlen(next);
    assert_true(whole > action + offer);
    assert_int_equal(strncmp(next, f->action, action), 0);
    assert_string_equal(next + whole - offer, f->alternative);
    assert_figures(next + action, "+25%");
    assert_string_equal(line_of(section_of(text, "Input"), "- Diagnosis: "), "NO_OVERLAP");
    mem_free(text);
    findings_done(&run.findings);
}

/* What `leat run` printed is what `leat view` prints after reading the file. */
static void text_depends_on_the_json_alone(void **state)
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

static void the_end_of_the_run(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    run.proc = (struct proc_fact){.pid = 1000,
                                  .role = ROLE_MAIN,
                                  .exception = "ValueError: shapes differ (train.py:88)",
                                  .worker_id = -1,
                                  .ended_ms = NAN};
    run.facts.procs = &run.proc;
    run.facts.proc_count = 1;
    run.facts.ended = "failed";
    run.facts.exit_status = 1;
    char *text = report_of(&run.facts, &run.findings);
    assert_non_null(strstr(line_of(text, "Run:     "), run.proc.exception));
    assert_figures(line_of(text, "Run:     "), "32.1s 1 train.py:88 103 100 3");
    mem_free(text);
    run.proc.exception[0] = 0;
    run.facts.ended = "killed";
    run.facts.exit_status = -1;
    run.facts.signal = 9;
    run.facts.oom_kills = 4;
    text = report_of(&run.facts, &run.findings);
    assert_non_null(strstr(line_of(text, "Run:     "), "SIGKILL"));
    assert_figures(line_of(text, "Run:     "), "32.1s 4 103 100 3");
    mem_free(text);
    run.facts.ended = "interrupted";
    run.facts.signal = 2;
    run.facts.oom_kills = 0;
    text = report_of(&run.facts, &run.findings);
    assert_non_null(strstr(line_of(text, "Run:     "), run.facts.ended));
    assert_figures(line_of(text, "Run:     "), "32.1s 103 100 3");
    mem_free(text);
    findings_done(&run.findings);
}

static void excluded_steps_and_losses_are_shown(void **state)
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
    assert_figures(line_of(text, "Run:     "), "32.1s 103 100 3 2 8.12s 12%");
    assert_string_equal(line_of(section_of(text, "Not seen"), "- probes (1): "), run.lost.why);
    mem_free(text);
    findings_done(&run.findings);
}

static struct cuda_call call_of(int64_t pid, const char *class, double n, double ms, double bytes)
{
    struct cuda_call c = {.pid = pid, .n = n, .ms = ms, .bytes = bytes};
    c.class = (enum leat_cuda_class)name_index(cuda_class_names, class);
    return c;
}

static struct gpu_phase phase_of(int64_t pid, const char *phase, double device, double idle,
                                 double hidden)
{
    struct gpu_phase p = {.pid = pid, .device_ms = device, .idle_ms = idle, .hidden_ms = hidden};
    p.phase = (enum leat_clock_phase)name_index(clock_phase_names, phase);
    return p;
}

static struct cuda_line line_with(int64_t pid, int line, const char *kind, double n, double ms,
                                  double steps)
{
    struct cuda_line l = {.pid = pid, .line = line, .n = n, .ms = ms, .steps = steps};
    snprintf(l.file, sizeof l.file, "train.py");
    l.kind = (enum cuda_line_kind)name_index(cuda_line_kind_names, kind);
    return l;
}

static void counts_and_flags_have_no_unit(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    finding_prove(&run.findings.items[0], EVIDENCE_COPIES, 3, "cuda_lines");
    finding_prove(&run.findings.items[0], EVIDENCE_PIN_MEMORY, 0, "loaders");
    char *text = report_of(&run.facts, &run.findings);
    const char *evidence = line_of(text, "- Evidence: ");
    assert_figures(evidence, "84% 3 0");
    assert_null(strstr(evidence, "3 count"));
    assert_null(strstr(evidence, "0 flag"));
    mem_free(text);
    findings_done(&run.findings);
}

/* A TOO_FEW_WORKERS finding as diagnose makes it: eight values, the seventh of which the action
 * uses. */
static void the_actions_number_stays_in_long_evidence(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    struct finding *f = &run.findings.items[0]; /* has the input share, 84 % */
    finding_advise(f, ACTION_SET_LOADER, "Use DataLoader(..., num_workers=5).");
    finding_prove(f, EVIDENCE_INPUT_TIME, 254.5, "steps");
    finding_prove(f, EVIDENCE_STEP_TIME, 303.7, "steps");
    finding_prove(f, EVIDENCE_WAIT_PER_BATCH, 1, "batches");
    finding_prove(f, EVIDENCE_WORKERS_BUSY, 0.97, "workers");
    finding_prove(f, EVIDENCE_MAKE_TIME, 58, "workers");
    finding_prove(f, EVIDENCE_WORKERS_NEEDED, 5, "workers");
    finding_prove(f, EVIDENCE_IDLE_CORES, 2.8, "sys_samples");
    char *text = report_of(&run.facts, &run.findings);
    /* The two that repeat the Stats line are left out. */
    assert_figures(line_of(text, "- Evidence: "), "84% 1.00ms 97% 58.0ms 5 2.80");
    mem_free(text);
    finding_prove(f, EVIDENCE_FOREIGN_CORES, 0.25, "sys_samples");
    finding_prove(f, EVIDENCE_MACHINE_CPU, 0.5, "sys_samples");
    finding_prove(f, EVIDENCE_RUN_CPU, 0.4, "sys_samples");
    finding_prove(f, EVIDENCE_READY_THREADS, 1.5, "proc_samples");
    text = report_of(&run.facts, &run.findings);
    assert_figures(line_of(text, "- Evidence: "), "84% 5 0.25 50% 40% 1.50");
    mem_free(text);
    findings_done(&run.findings);
}

/* Two training loaders: the section is about the one that the training waits for. */
static void input_is_of_the_loader_waited_for(void **state)
{
    struct hand_run run;
    struct loader_fact loaders[2];
    hand_two_loaders(&run, loaders);
    struct worker_fact workers[] = {
        {.pid = 1, .parent_pid = 1000, .loader = 0, .worker_id = 0, .busy_ms = 10, .alive_ms = 100},
        {.pid = 2, .parent_pid = 1000, .loader = 1, .worker_id = 0, .busy_ms = 90, .alive_ms = 100},
    };
    run.facts.workers = workers;
    run.facts.worker_count = 2;
    char *text = report_of(&run.facts, &run.findings);
    const char *input = section_of(text, "Input");
    assert_figures(line_of(input, "- Stats: "), "84% 32 2 90%");
    assert_figures(line_of(input, "- Loader: "), "train.py:31");
    mem_free(text);
    findings_done(&run.findings);
}

static void cuda_calls_of_a_step_are_one_line(void **state)
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
        call_of(pid + 1, "launch", 1e6, 0, 0), /* of a worker, not of the training process */
    };
    run.facts.cuda_calls = calls;
    run.facts.cuda_call_count = sizeof calls / sizeof *calls;
    char *text = report_of(&run.facts, &run.findings);
    /* Launches, copies of pinned memory, of pageable memory, waits; no allocations. */
    assert_figures(line_of(text, "- CUDA, a step: "), "101 0.50ms 2 2 0.25 1 4 2.00ms");
    assert_true(widest(text) < 80);
    mem_free(text);
    run.facts.cuda_call_count = 0;
    text = report_of(&run.facts, &run.findings);
    assert_string_equal(line_of(text, "- CUDA"), "");
    mem_free(text);
    findings_done(&run.findings);
}

static void gpu_idle_time_is_one_line(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    int64_t pid = run.rank.pid;
    struct gpu_phase phases[] = {
        phase_of(pid, "input", 240, 240, 50),    phase_of(pid, "forward", 400, 31, 0),
        phase_of(pid, "backward", 260, 1, 0),    phase_of(pid, "launch", 100, 100, 0),
        phase_of(pid + 1, "input", 9e9, 9e9, 0), /* of another process */
    };
    run.facts.gpu_phases = phases;
    run.facts.gpu_phase_count = sizeof phases / sizeof *phases;
    char *text = report_of(&run.facts, &run.findings);
    /* Idle in all, in input, forward and launch (0.1 % in backward is left out), and hidden. */
    assert_figures(line_of(text, "- GPU clock: "), "37% 24% 3.1% 10% 5.0%");
    assert_true(widest(text) < 80);
    mem_free(text);
    run.facts.gpu_phase_count = 0;
    text = report_of(&run.facts, &run.findings);
    assert_string_equal(line_of(text, "- GPU clock"), "");
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
        line_with(pid, 41, "pageable_copy", 2 * steps, 0.8 * steps, steps),
        line_with(pid, 57, "wait", steps, 0.4 * steps, steps),
        line_with(pid, 58, "wait", steps, 0, steps),
        line_with(pid, 59, "wait", steps, 0, steps),
        line_with(pid, 60, "wait", steps, 0, steps),
        line_with(pid, 61, "", steps, 0, steps),
        line_with(pid, 62, "blocking_copy", 900, 9000, 1), /* the model is moved to the device */
        line_with(pid + 1, 63, "blocking_copy", steps, 1, steps), /* of another process */
    };
    run.facts.cuda_calls = calls;
    run.facts.cuda_call_count = 1;
    run.facts.cuda_lines = lines;
    run.facts.cuda_line_count = sizeof lines / sizeof *lines;
    char *text = report_of(&run.facts, &run.findings);
    assert_figures(line_of(text, "- Copies of pageable memory: "), "train.py:41 2 0.80ms");
    assert_figures(line_of(text, "- Waits for the GPU: "),
                   "train.py:57 1 0.40ms train.py:58 1 0ms train.py:59 1 0ms 1");
    assert_null(strstr(text, "train.py:61"));
    assert_null(strstr(text, "train.py:62"));
    assert_null(strstr(text, "train.py:63"));
    assert_true(widest(text) < 80);
    mem_free(text);
    findings_done(&run.findings);
}

static void memory_fragments_and_retries_are_shown(void **state)
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
    assert_figures(line_of(section_of(text, "Memory"), "- Stats: "), "10.0 2.5 12");
    mem_free(text);
    samples[0].split = 0.5 * (1 << 30); /* a twentieth: usual */
    samples[0].retries = samples[1].retries = 0;
    text = report_of(&run.facts, &run.findings);
    assert_figures(line_of(section_of(text, "Memory"), "- Stats: "), "10.0");
    mem_free(text);
    findings_done(&run.findings);
}

static void each_gpu_has_a_line(void **state)
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
         .pcie_rx_bytes_s = NAN    }, /* nothing was measured */
    };
    run.facts.gpu_samples = samples;
    run.facts.gpu_sample_count = sizeof samples / sizeof *samples;
    char *text = report_of(&run.facts, &run.findings);
    assert_figures(line_of(text, "- GPU 0: "), "1500 350 700 2.0 3.0 2 3");
    assert_non_null(strstr(line_of(text, "- GPU 0: "), samples[0].throttle));
    assert_string_equal(line_of(text, "- GPU 1: "), "");
    assert_true(widest(text) < 80);
    mem_free(text);
    findings_done(&run.findings);
}

static void an_empty_run_has_no_zeros(void **state)
{
    struct facts facts = hand_nothing();
    struct findings findings = {0};
    hand_finding(&findings, KIND_INSUFFICIENT_DATA, SECTION_STEP_TIME, SEVERITY_INFO,
                 "No step was seen.", "Run a training with torch.");
    char *text = report_of(&facts, &findings);
    assert_string_equal(line_of(text, "Verdict: "), "INSUFFICIENT DATA (info)");
    assert_string_equal(line_of(text, "Why:     "), findings.items[0].summary);
    assert_string_equal(line_of(section_of(text, "Step Time"), "- Stats: "), "not measured");
    assert_non_null(strstr(text, "\n  leat check\n"));
    assert_null(strstr(text, " 0ms"));
    assert_true(widest(text) < 80);
    mem_free(text);
    findings_done(&findings);
}

static void long_or_hostile_text_is_cut_and_cleaned(void **state)
{
    struct hand_run run;
    hand_slow_input(&run);
    char summary[3000];
    memset(summary, 'x', sizeof summary);
    summary[sizeof summary - 1] = 0;
    finding_say(&run.findings.items[0], "%s", summary);
    finding_advise(&run.findings.items[0], ACTION_SET_LOADER,
                   "\033[31mred\007 \342\200\256reversed \346\274\242");
    run.facts.run_name = "a name with blanks that is rather long for a run, but allowed";
    char *text = report_of(&run.facts, &run.findings);
    assert_true(widest(text) < 80);
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\007'));
    assert_null(strstr(text, "\342\200\256"));
    assert_non_null(strstr(text, "\346\274\242"));
    mem_free(text);
    findings_done(&run.findings);
}

static void every_cause_has_a_meaning(void **state)
{
#define X(name) assert_non_null(text_cause_meaning(#name));
    CAUSES(X)
#undef X
    assert_null(text_cause_meaning("NO_SUCH_CAUSE"));
}

static void numbers_have_units(void **state)
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
        cmocka_unit_test(first_screen_has_verdict_and_sections),
        cmocka_unit_test(alternative_comes_after_the_gain),
        cmocka_unit_test(text_depends_on_the_json_alone),
        cmocka_unit_test(the_end_of_the_run),
        cmocka_unit_test(excluded_steps_and_losses_are_shown),
        cmocka_unit_test(counts_and_flags_have_no_unit),
        cmocka_unit_test(the_actions_number_stays_in_long_evidence),
        cmocka_unit_test(input_is_of_the_loader_waited_for),
        cmocka_unit_test(cuda_calls_of_a_step_are_one_line),
        cmocka_unit_test(gpu_idle_time_is_one_line),
        cmocka_unit_test(lines_that_copy_or_wait_are_named),
        cmocka_unit_test(memory_fragments_and_retries_are_shown),
        cmocka_unit_test(each_gpu_has_a_line),
        cmocka_unit_test(an_empty_run_has_no_zeros),
        cmocka_unit_test(long_or_hostile_text_is_cut_and_cleaned),
        cmocka_unit_test(every_cause_has_a_meaning),
        cmocka_unit_test(numbers_have_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
