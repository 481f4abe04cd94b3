/* test_record_input.c: parts and lines: what the recorder adds up, and what the reader accepts of
 * memory that may hold garbage. */
#include "record_world.h"

static struct ring_reader reader;

static void read_child(void (*work)(void))
{
    int status;
    pid_t pid = run_child(work);
    open_reader(&reader);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static uint64_t sum_of_bins(const struct ring_part *part)
{
    uint64_t n = 0;
    for (int bin = 0; bin < DURATION_BUCKETS; bin++)
        n += part->bins[bin];
    return n;
}

/* ---- bins ----------------------------------------------------------------------------------- */

/* Each bin begins where the one before ends, and is never wider than 1/32 of what it holds. */
static void bins_are_adjacent_and_narrow(void **state)
{
    for (uint32_t bin = 0; bin < DURATION_BUCKETS; bin++) {
        uint64_t low = duration_bucket_low_ns(bin);
        assert_int_equal(duration_bucket_of(low), bin);
        if (bin > 0)
            assert_int_equal(duration_bucket_of(low - 1), bin - 1);
        if (bin + 1 < DURATION_BUCKETS)
            assert_true(duration_bucket_low_ns(bin + 1) - low <= (low < 64 ? 1 : low / 32));
    }
    assert_int_equal(duration_bucket_of((1ull << 45) - 1), DURATION_BUCKETS - 1);
    assert_int_equal(duration_bucket_of(1ull << 45), DURATION_BUCKETS - 1);
    assert_int_equal(duration_bucket_of(UINT64_MAX), DURATION_BUCKETS - 1);
    assert_int_equal(duration_bucket_of(63), 63);
    assert_int_equal(duration_bucket_of(64), 64);
    assert_int_equal(duration_bucket_of(65), 64);
    assert_int_equal(duration_bucket_of(66), 65);
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void add_parts(void)
{
    leat_recorder_open();
    for (int i = 0; i < 7; i++)
        leat_part(2, LEAT_PART_PICKLE, 1000, 11);
    leat_part(2, LEAT_PART_PICKLE, 0, 0);
    leat_part(2, LEAT_PART_PICKLE, UINT64_MAX / 2, 1);
    leat_part(REC_PART_LOADERS + 5, LEAT_PART_IDLE, 3, 0);
    leat_ready(2, 0);
    leat_ready(2, 4);
    leat_ready(2, 4);
    leat_ready(REC_PART_LOADERS + 5, UINT64_MAX);
    leat_part(0, (enum leat_part)LEAT_PARTS_COUNT, 3, 0); /* no such part */
    leat_part(0, (enum leat_part) - 1, 3, 0);
}

static void parts_are_added_up(void **state)
{
    struct ring_part part;
    read_child(add_parts);
    assert_int_equal(ring_reader_part(&reader, 2, LEAT_PART_PICKLE, &part), 1);
    assert_int_equal(part.n, 9);
    assert_int_equal(part.total_ns, 7000 + UINT64_MAX / 2);
    assert_int_equal(part.max_ns, UINT64_MAX / 2);
    assert_int_equal(part.bytes, 78);
    assert_int_equal(part.bins[duration_bucket_of(1000)], 7);
    assert_int_equal(part.bins[0], 1);
    assert_int_equal(part.bins[DURATION_BUCKETS - 1], 1);
    assert_int_equal(sum_of_bins(&part), 9);
    /* Later loaders share the last slot. */
    assert_int_equal(ring_reader_part(&reader, REC_PART_LOADERS - 1, LEAT_PART_IDLE, &part), 1);
    assert_int_equal(part.bins[3], 1);
    uint64_t requests[REC_READY_COUNTS];
    assert_int_equal(ring_reader_ready(&reader, 2, requests), 1);
    assert_int_equal(requests[0], 1);
    assert_int_equal(requests[4], 2);
    assert_int_equal(ring_reader_ready(&reader, REC_PART_LOADERS - 1, requests), 1);
    assert_int_equal(requests[REC_READY_COUNTS - 1], 1);
    assert_int_equal(ring_reader_ready(&reader, 0, requests), 0);
    assert_int_equal(ring_reader_ready(&reader, REC_PART_LOADERS, requests), 0);
    /* A part that never happened, and parts and loaders that do not exist. */
    int there = 0;
    for (uint32_t loader = 0; loader < REC_PART_LOADERS + 2; loader++)
        for (uint32_t i = 0; i < LEAT_PARTS_COUNT + 2; i++)
            there += ring_reader_part(&reader, loader, i, &part);
    assert_int_equal(there, 2);
    ring_reader_close(&reader);
}

static void add_together(void)
{
    const uint64_t ns[] = {7, 3000, 7, 5};
    leat_recorder_open();
    leat_parts(0, LEAT_PART_SAMPLE, ns, 4);
    leat_parts(0, LEAT_PART_SAMPLE, ns, 1);
    leat_parts(0, LEAT_PART_COLLATE, ns, 0); /* a count of 0 adds nothing */
}

static void parts_are_added_together(void **state)
{
    struct ring_part part;
    read_child(add_together);
    assert_int_equal(ring_reader_part(&reader, 0, LEAT_PART_SAMPLE, &part), 1);
    assert_int_equal(part.n, 5);
    assert_int_equal(part.total_ns, 3026);
    assert_int_equal(part.max_ns, 3000);
    assert_int_equal(part.bins[7], 3);
    assert_int_equal(part.bins[5], 1);
    assert_int_equal(sum_of_bins(&part), 5);
    assert_int_equal(ring_reader_part(&reader, 0, LEAT_PART_COLLATE, &part), 0);
    ring_reader_close(&reader);
}

enum { THREADS = 8, TIMES = 20011 };

static void *add_many(void *arg)
{
    uint64_t ns = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < TIMES; i++)
        leat_part(0, LEAT_PART_SAMPLE, ns + (uint64_t)i % 3, 1);
    return NULL;
}

static void add_from_threads(void)
{
    leat_recorder_open();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, add_many, (void *)(10 * i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* More threads than there are rings would lose records; parts are shared and lose nothing. */
static void threads_lose_nothing(void **state)
{
    struct ring_part part;
    read_child(add_from_threads);
    assert_int_equal(ring_reader_part(&reader, 0, LEAT_PART_SAMPLE, &part), 1);
    assert_int_equal(part.n, THREADS * TIMES);
    assert_int_equal(part.bytes, THREADS * TIMES);
    assert_int_equal(part.max_ns, 10 * (THREADS - 1) + 2);
    assert_int_equal(sum_of_bins(&part), THREADS * TIMES);
    uint64_t each = 0; /* sum of i % 3 over one thread */
    for (int i = 0; i < TIMES; i++)
        each += (uint64_t)i % 3;
    assert_int_equal(part.total_ns, TIMES * 10 * (THREADS * (THREADS - 1) / 2) + THREADS * each);
    ring_reader_close(&reader);
}

static void fork_a_worker(void)
{
    leat_recorder_open();
    leat_part(0, LEAT_PART_SAMPLE, 1, 0);
    leat_recorder_line(&(struct leat_line){.file = "a.py", .line = 1, .below = -1});
    pid_t child = fork();
    if (child == 0) {
        leat_recorder_role(LEAT_ROLE_WORKER, 3);
        leat_recorder_worker_loader(5);
        for (int i = 0; i < 13; i++)
            leat_part(0, LEAT_PART_SAMPLE, 1, 0);
        /* `below` is a line of the parent: not valid after the fork. */
        leat_recorder_line(&(struct leat_line){.file = "b.py", .line = 2, .below = 0});
        _exit(0);
    }
    waitpid(child, NULL, 0);
    leat_part(0, LEAT_PART_SAMPLE, 1, 0);
}

static void a_fork_has_totals_of_its_own(void **state)
{
    struct ring_reader child;
    struct ring_part part;
    struct ring_line line;
    struct rec_header h;
    read_child(fork_a_worker);
    open_reader(&child);
    assert_int_equal(ring_reader_part(&reader, 0, LEAT_PART_SAMPLE, &part), 1);
    assert_int_equal(part.n, 2);
    assert_int_equal(ring_reader_part(&child, 0, LEAT_PART_SAMPLE, &part), 1);
    assert_int_equal(part.n, 13);
    assert_int_equal(ring_reader_line(&child, 0, &line), 1);
    assert_string_equal(line.file, "b.py");
    assert_int_equal(line.below, -1);
    ring_reader_header(&reader, &h);
    assert_int_equal(h.worker_loader, -1);
    ring_reader_header(&child, &h);
    assert_int_equal(h.worker_loader, 5);
    ring_reader_close(&reader);
    ring_reader_close(&child);
}

static void add_until_stopped(void)
{
    leat_recorder_open();
    while (leat_recording())
        leat_part(0, LEAT_PART_SAMPLE, 1, 0);
    uint64_t before = 0;
    for (int i = 0; i < 5; i++) {
        leat_part(1, LEAT_PART_SAMPLE, 1, 0);
        before += leat_recorder_line(&(struct leat_line){.file = "a.py", .below = -1}) >= 0;
    }
    _exit(before ? 1 : 0);
}

static void stop_ends_parts_and_lines(void **state)
{
    struct ring_part part;
    struct ring_line line;
    pid_t pid = run_child(add_until_stopped);
    open_reader(&reader);
    while (!ring_reader_part(&reader, 0, LEAT_PART_SAMPLE, &part))
        sched_yield();
    ring_reader_stop(&reader);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(ring_reader_part(&reader, 1, LEAT_PART_SAMPLE, &part), 0);
    assert_int_equal(ring_reader_line(&reader, 0, &line), 0);
    ring_reader_close(&reader);
}

static void without_leat(void)
{
    unsetenv("LEAT_SOCKET");
    leat_recorder_open();
    leat_part(0, LEAT_PART_SAMPLE, 1, 0);
    leat_recorder_worker_loader(1);
    if (leat_recorder_line(&(struct leat_line){.file = "a.py", .below = -1}) != -1)
        _exit(1);
}

static void recording_without_leat_is_harmless(void **state)
{
    int status;
    waitpid(run_child(without_leat), &status, 0);
    assert_int_equal(status, 0);
}

/* Bins are added before `n`: a reader at any moment finds no occurrence without its bin. */
static void a_reader_never_sees_less_than_n(void **state)
{
    struct ring_part part;
    pid_t pid = run_child(add_from_threads);
    open_reader(&reader);
    uint64_t last = 0;
    while (last < THREADS * TIMES) {
        if (!ring_reader_part(&reader, 0, LEAT_PART_SAMPLE, &part))
            continue;
        assert_true(part.n >= last);
        assert_true(sum_of_bins(&part) >= part.n);
        last = part.n;
    }
    waitpid(pid, NULL, 0);
    ring_reader_close(&reader);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static char long_path[400], long_name[100];

static void make_long_texts(void)
{
    memset(long_path, 'd', sizeof long_path - 1);
    memcpy(long_path + sizeof long_path - 9, "/data.py", 9);
    for (size_t i = 0; i + 2 < sizeof long_name; i += 2)
        memcpy(long_name + i, "\xc3\xa9", 2); /* e with an accent */
}

static void add_lines(void)
{
    leat_recorder_open();
    struct leat_line user = {.loader = 1,
                             .part = LEAT_PART_COLLATE,
                             .below = -1,
                             .line = 41,
                             .file = "data.py",
                             .function = "collate",
                             .ns = 100,
                             .read_ns = 10,
                             .decode_ns = 20,
                             .blocked_ns = 30};
    int a = leat_recorder_line(&user);
    struct leat_line library = user;
    library.below = a;
    library.library = 1;
    library.file = "lib.py";
    int b = leat_recorder_line(&library);
    user.ns = 23;
    if (a != 0 || b != 1 || leat_recorder_line(&user) != a || leat_recorder_line(&library) != b)
        _exit(1);
    user.line++; /* each of these is another line */
    int c = leat_recorder_line(&user);
    user.part = LEAT_PART_SAMPLE;
    int d = leat_recorder_line(&user);
    user.loader = 2;
    int e = leat_recorder_line(&user);
    user.function = NULL;
    int f = leat_recorder_line(&user);
    user.file = NULL;
    int g = leat_recorder_line(&user);
    if (c != 2 || d != 3 || e != 4 || f != 5 || g != 6 || leat_recorder_line(&user) != g)
        _exit(2);
    user.file = long_path;
    user.function = long_name;
    int h = leat_recorder_line(&user);
    if (h != 7 || leat_recorder_line(&user) != h)
        _exit(3);
    user.part = LEAT_PARTS_COUNT;
    if (leat_recorder_line(&user) != -1)
        _exit(4);
}

static void lines_are_added_up(void **state)
{
    struct ring_line line;
    make_long_texts();
    read_child(add_lines);
    assert_int_equal(ring_reader_line(&reader, 0, &line), 1);
    assert_int_equal(line.ns, 123);
    assert_int_equal(line.read_ns, 20);
    assert_int_equal(line.decode_ns, 40);
    assert_int_equal(line.blocked_ns, 60);
    assert_int_equal(line.samples, 2);
    assert_int_equal(line.line, 41);
    assert_int_equal(line.below, -1);
    assert_int_equal(line.loader, 1);
    assert_int_equal(line.part, LEAT_PART_COLLATE);
    assert_string_equal(line.file, "data.py");
    assert_string_equal(line.function, "collate");
    assert_int_equal(line.library, 0);
    assert_int_equal(ring_reader_line(&reader, 1, &line), 1);
    assert_int_equal(line.library, 1);
    assert_int_equal(line.below, 0);
    assert_int_equal(line.ns, 200);
    assert_int_equal(ring_reader_line(&reader, 8, &line), 0);
    ring_reader_close(&reader);
}

/* The end of a long path is kept, and the start of a long name; no character is split. */
static void long_texts_keep_the_useful_end(void **state)
{
    struct ring_line line;
    make_long_texts();
    read_child(add_lines);
    assert_int_equal(ring_reader_line(&reader, 7, &line), 1);
    assert_int_equal(strlen(line.file), REC_FILE_BYTES - 1);
    assert_int_equal(strncmp(line.file, "...d", 4), 0);
    assert_string_equal(line.file + strlen(line.file) - 8, "/data.py");
    assert_int_equal(strlen(line.function), (REC_FUNCTION_BYTES - 1) / 2 * 2);
    assert_int_equal(line.samples, 2);
    ring_reader_close(&reader);
}

static void fill_lines(void)
{
    leat_recorder_open();
    struct leat_line line = {.below = -1, .file = "a.py", .function = "f", .ns = 1};
    for (line.line = 0; line.line < REC_LINES; line.line++)
        if (leat_recorder_line(&line) != line.line)
            _exit(1);
    for (int i = 0; i < 31; i++)
        if (leat_recorder_line(&line) != -1)
            _exit(2);
    line.line = REC_LINES - 1;
    if (leat_recorder_line(&line) != REC_LINES - 1) /* a line that has a slot still counts */
        _exit(3);
}

static void a_full_table_counts_what_it_loses(void **state)
{
    struct ring_line line;
    struct rec_header h;
    read_child(fill_lines);
    ring_reader_header(&reader, &h);
    assert_int_equal(h.lines_used, REC_LINES);
    assert_int_equal(h.lines_lost, 31);
    assert_int_equal(ring_reader_line(&reader, REC_LINES - 1, &line), 1);
    assert_int_equal(line.samples, 2);
    assert_int_equal(ring_reader_line(&reader, REC_LINES, &line), 0);
    ring_reader_close(&reader);
}

static void invalid_lines_are_refused(void **state)
{
    struct ring_line line;
    struct ring_part part;
    struct rec_header h;
    read_child(fill_lines);
    struct rec_area *area = reader.area;
    area->header.lines_used = 0xffffffffu;
    ring_reader_header(&reader, &h);
    assert_int_equal(h.lines_used, REC_LINES);
    assert_int_equal(ring_reader_line(&reader, REC_LINES, &line), 0);
    const int32_t wild[] = {5, 6, 7, REC_LINES, INT32_MAX, INT32_MIN, -2};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        area->lines[6].below = wild[i];
        assert_int_equal(ring_reader_line(&reader, 6, &line), 1);
        assert_int_equal(line.below, wild[i] == 5 ? 5 : -1);
    }
    memset(area->lines[6].file, 'x', REC_FILE_BYTES);
    memset(area->lines[6].function, 'y', REC_FUNCTION_BYTES);
    assert_int_equal(ring_reader_line(&reader, 6, &line), 1);
    assert_int_equal(strlen(line.file), REC_FILE_BYTES - 1);
    assert_int_equal(strlen(line.function), REC_FUNCTION_BYTES - 1);
    area->lines[6].part = LEAT_PARTS_COUNT;
    assert_int_equal(ring_reader_line(&reader, 6, &line), 0);
    area->header.parts_used[0] = 0xff; /* a bit without an occurrence is ignored */
    assert_int_equal(ring_reader_part(&reader, 0, LEAT_PART_SAMPLE, &part), 0);
    ring_reader_close(&reader);
}

/* ---- engines -------------------------------------------------------------------------------- */

static void record_engines(void)
{
    char long_text[300];
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    leat_recorder_open();
    struct leat_engine_info info = {.threads = 3, .cores = 4, .ahead = 7, .memory_bytes = 1 << 20};
    info.source = "npy x.npy: 10 samples";
    info.order = "full";
    leat_recorder_engine(2, &info);
    struct leat_stages stages = {.batches = 1, .read_ns = 11, .layout_ns = 5, .idle_ns = 2};
    for (int i = 0; i < 101; i++)
        leat_recorder_stages(2, &stages);
    info = (struct leat_engine_info){.threads = 1, .source = long_text, .order = long_text};
    leat_recorder_engine(2, &info); /* the threads change, the texts do not */
    leat_recorder_engine(REC_LOADERS + 9, &info);
}

static void engines_are_recorded_and_added_up(void **state)
{
    struct ring_engine e;
    read_child(record_engines);
    assert_false(ring_reader_engine(&reader, 0, &e)); /* a loader without one */
    assert_true(ring_reader_engine(&reader, 2, &e));
    assert_int_equal(e.stages.batches, 101);
    assert_int_equal(e.stages.read_ns, 1111);
    assert_int_equal(e.stages.layout_ns, 505);
    assert_int_equal(e.stages.idle_ns, 202);
    assert_int_equal(e.stages.order_ns, 0);
    assert_int_equal(e.threads, 1);
    assert_string_equal(e.source, "npy x.npy: 10 samples");
    assert_string_equal(e.order, "full");
    assert_true(ring_reader_engine(&reader, REC_LOADERS - 1, &e)); /* shared by all later ones */
    assert_int_equal(strlen(e.source), REC_SOURCE_BYTES - 1);
    assert_false(ring_reader_engine(&reader, REC_LOADERS, &e));
    ring_reader_close(&reader);
}

/* ---- calls of CUDA -------------------------------------------------------------------------- */

/* Stands for the probe: the recorder finds it by its name, as it finds the one that was preloaded.
 */
static uint64_t probe_calls;
static int probe_reads;
static void (*probe_callback)(void);
void leat_probe_on_first_call(void (*callback)(void)) __attribute__((visibility("default")));
void leat_probe_on_first_call(void (*callback)(void))
{
    probe_callback = callback;
}

int leat_probe_read(uint32_t classes, struct leat_cuda_total *ret_totals)
    __attribute__((visibility("default")));
int leat_probe_read(uint32_t classes, struct leat_cuda_total *ret_totals)
{
    probe_reads++;
    assert_int_equal(classes, LEAT_CUDA_CLASSES_COUNT);
    memset(ret_totals, 0, classes * sizeof *ret_totals);
    ret_totals[LEAT_CUDA_LAUNCH] =
        (struct leat_cuda_total){probe_calls, 10 * probe_calls, 100 * probe_calls};
    return probe_calls > 0;
}

int leat_probe_clock(uint32_t phases, struct leat_clock_total *ret_totals)
    __attribute__((visibility("default")));
int leat_probe_clock(uint32_t phases, struct leat_clock_total *ret_totals)
{
    assert_int_equal(phases, LEAT_CLOCK_PHASES_COUNT);
    memset(ret_totals, 0, phases * sizeof *ret_totals);
    ret_totals[LEAT_CLOCK_INPUT] = (struct leat_clock_total){probe_calls, 1000 * probe_calls,
                                                             100 * probe_calls, 10 * probe_calls};
    ret_totals[LEAT_CLOCK_OTHER].n = 1;
    return 1;
}

static int phase_calls[LEAT_CLOCK_RESUMED + 1];
void leat_probe_phase(enum leat_clock_phase phase) __attribute__((visibility("default")));
void leat_probe_phase(enum leat_clock_phase phase)
{
    phase_calls[phase]++;
}

static void call_cuda(uint64_t more, enum leat_record_kind then)
{
    probe_calls += more;
    if (more)
        probe_callback();
    if (then != LEAT_REC_NONE)
        leat_record(then, 0, 0, 0, 1, 2);
}

static void train_with_cuda(void)
{
    leat_recorder_open();
    call_cuda(7, LEAT_REC_FETCH); /* calls that make the model: not part of a step */
    for (int i = 0; i < 23; i++) {
        call_cuda(2, LEAT_REC_BACKWARD);
        call_cuda(3, LEAT_REC_OPTIMIZER);
        call_cuda(1, LEAT_REC_FETCH); /* part of the next step, even when no step follows */
    }
    call_cuda(30, LEAT_REC_FETCH); /* an evaluation */
    call_cuda(11, LEAT_REC_NONE);
    leat_gpu_phase(LEAT_CLOCK_BACKWARD);
    assert_int_equal(phase_calls[LEAT_CLOCK_BACKWARD], 1);
    leat_recorder_close();
    leat_gpu_phase(LEAT_CLOCK_BACKWARD); /* closed: no effect */
    assert_int_equal(phase_calls[LEAT_CLOCK_BACKWARD], 1);
}

static void record_cuda_lines(void)
{
    leat_recorder_open();
    uint64_t steps = leat_recorder_steps();
    call_cuda(1, LEAT_REC_FETCH);
    for (int i = 0; i < 3; i++)
        call_cuda(1, LEAT_REC_OPTIMIZER);
    steps = leat_recorder_steps() - steps; /* the first batch is a step as long as none trains */
    struct leat_cuda_line line = {LEAT_CUDA_SYNC, 41, "train.py", "main", 2, 30, 400, steps};
    leat_recorder_cuda_line(&line);
    line.steps = 1; /* another stack at the same line, with fewer steps */
    leat_recorder_cuda_line(&line);
    line.what = LEAT_CUDA_H2D_PAGEABLE;
    for (line.line = 0; leat_recorder_cuda_line(&line) == 0; line.line++)
        ;
    line.what = LEAT_CUDA_CLASSES_COUNT;
    leat_recorder_cuda_line(&line);
    leat_recorder_close();
}

static void cuda_lines_are_added_up(void **state)
{
    struct ring_cuda_line line;
    read_child(record_cuda_lines);
    assert_true(ring_reader_cuda_line(&reader, 0, &line));
    assert_int_equal(line.class, LEAT_CUDA_SYNC);
    assert_int_equal(line.line, 41);
    assert_string_equal(line.file, "train.py");
    assert_string_equal(line.function, "main");
    assert_int_equal(line.n, 4);
    assert_int_equal(line.ns, 60);
    assert_int_equal(line.bytes, 800);
    assert_int_equal(line.steps, 4);
    assert_true(ring_reader_cuda_line(&reader, REC_CUDA_LINES - 1, &line));
    assert_int_equal(line.line, REC_CUDA_LINES - 2); /* the table is full */
    reader.area->header.cuda_lines_used = UINT32_MAX;
    assert_false(ring_reader_cuda_line(&reader, REC_CUDA_LINES, &line));
    reader.area->cuda_lines[0].class = LEAT_CUDA_CLASSES_COUNT;
    assert_false(ring_reader_cuda_line(&reader, 0, &line));
    memset(reader.area->cuda_lines[1].file, 'x', REC_FILE_BYTES);
    assert_true(ring_reader_cuda_line(&reader, 1, &line));
    assert_int_equal(strlen(line.file), REC_FILE_BYTES - 1);
    ring_reader_close(&reader);
}

static void infer_with_cuda(void)
{
    leat_recorder_open();
    call_cuda(0, LEAT_REC_FETCH); /* before anything of CUDA is used */
    leat_gpu_phase(LEAT_CLOCK_INPUT);
    assert_int_equal(probe_reads + phase_calls[LEAT_CLOCK_INPUT],
                     0); /* so the probe is not called */
    for (int i = 0; i < 5; i++)
        call_cuda(4, LEAT_REC_FETCH);
    call_cuda(2, LEAT_REC_NONE);
    leat_recorder_close();
}

static void cuda_calls_are_counted_by_span(void **state)
{
    struct ring_cuda calls;
    struct rec_header h;
    read_child(train_with_cuda);
    assert_true(ring_reader_cuda(&reader, &calls));
    ring_reader_header(&reader, &h);
    assert_true(h.signals & LEAT_SIGNAL_CUDA);
    assert_int_equal(calls.of[RING_CUDA_BEFORE][LEAT_CUDA_LAUNCH].n, 7);
    assert_int_equal(calls.of[RING_CUDA_STEPS][LEAT_CUDA_LAUNCH].n, 23 * 5 + 22);
    assert_int_equal(calls.of[RING_CUDA_STEPS][LEAT_CUDA_LAUNCH].ns, 1370);
    assert_int_equal(calls.of[RING_CUDA_STEPS][LEAT_CUDA_LAUNCH].bytes, 13700);
    assert_int_equal(calls.of[RING_CUDA_AFTER][LEAT_CUDA_LAUNCH].n, 42);
    assert_int_equal(calls.of[RING_CUDA_STEPS][LEAT_CUDA_SYNC].n, 0);
    const struct leat_clock_total *input = &calls.clock[LEAT_CLOCK_INPUT];
    assert_int_equal(input->n, 7 + 23 * 6 + 30 + 11);
    assert_int_equal(input->device_ns, 1000 * input->n);
    assert_int_equal(input->idle_ns, 100 * input->n);
    assert_int_equal(input->hidden_ns, 10 * input->n);
    assert_int_equal(calls.clock[LEAT_CLOCK_OTHER].n, 1);
    reader.area->cuda.of[REC_CUDA_STEPPED][LEAT_CUDA_LAUNCH].n = 3; /* garbage: less than before */
    assert_true(ring_reader_cuda(&reader, &calls));
    assert_int_equal(calls.of[RING_CUDA_STEPS][LEAT_CUDA_LAUNCH].n, 0);
    reader.area->header.cuda_used = 77; /* it was killed while it wrote */
    assert_true(ring_reader_cuda(&reader, &calls));
    ring_reader_close(&reader);
}

static void steps_of_an_inference_end_with_the_next_batch(void **state)
{
    struct ring_cuda calls;
    read_child(infer_with_cuda);
    assert_true(ring_reader_cuda(&reader, &calls));
    assert_int_equal(calls.of[RING_CUDA_BEFORE][LEAT_CUDA_LAUNCH].n, 0);
    assert_int_equal(calls.of[RING_CUDA_STEPS][LEAT_CUDA_LAUNCH].n, 20);
    assert_int_equal(calls.of[RING_CUDA_AFTER][LEAT_CUDA_LAUNCH].n, 2);
    ring_reader_close(&reader);
    read_child(record_engines); /* a process that uses no CUDA */
    assert_false(ring_reader_cuda(&reader, &calls));
    ring_reader_close(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_are_adjacent_and_narrow),
        cmocka_unit_test(parts_are_added_up),
        cmocka_unit_test(parts_are_added_together),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(a_fork_has_totals_of_its_own),
        cmocka_unit_test(stop_ends_parts_and_lines),
        cmocka_unit_test(recording_without_leat_is_harmless),
        cmocka_unit_test(a_reader_never_sees_less_than_n),
        cmocka_unit_test(lines_are_added_up),
        cmocka_unit_test(long_texts_keep_the_useful_end),
        cmocka_unit_test(a_full_table_counts_what_it_loses),
        cmocka_unit_test(invalid_lines_are_refused),
        cmocka_unit_test(engines_are_recorded_and_added_up),
        cmocka_unit_test(cuda_calls_are_counted_by_span),
        cmocka_unit_test(cuda_lines_are_added_up),
        cmocka_unit_test(steps_of_an_inference_end_with_the_next_batch),
    };
    return cmocka_run_group_tests(tests, open_socket, close_socket);
}
