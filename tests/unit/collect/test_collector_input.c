/* test_collector_input.c: the database must hold exactly the sums that workers and the training
 * process record: by loader, by worker, over all processes of that worker. Counts are primes, so
 * that no result is right by chance. */
#include "collector_world.h"

#include "record/ring_reader.h"

/* ---- what the processes do ------------------------------------------------------------------ */

static uint32_t make_loader(int workers)
{
    struct leat_loader_info info = {.batch_size = 3, .num_workers = workers, .dataset = "Toy"};
    return leat_recorder_loader(&info);
}

static void record_parts(uint32_t loader, enum leat_part part, int n, uint64_t ns, uint64_t bytes)
{
    for (int i = 0; i < n; i++)
        leat_part(loader, part, ns, bytes);
}

static int record_line(enum leat_part part, int below, const char *file, int number,
                       const char *function, uint64_t ns)
{
    struct leat_line line = {.part = part,
                             .below = below,
                             .line = number,
                             .file = file,
                             .function = function,
                             .library = strcmp(file, "lib.py") == 0,
                             .ns = ns,
                             .read_ns = ns / 2,
                             .decode_ns = ns / 5,
                             .blocked_ns = ns / 10};
    return leat_recorder_line(&line);
}

static int continue_pipe[2]; /* one byte lets the running worker continue */

/* Reads the current rows until the number is as expected: the worker may take a while. */
static void sample_until(const char *sql, int64_t expected)
{
    int64_t value = -1;
    for (int i = 0; i < 400 && value != expected; i++) {
        pause_ms(25);
        adopt_all();
        collector_drain(w.collector);
        collector_sample(w.collector);
        open_reader();
        value = ask(sql);
        close_reader();
    }
    assert_int_equal(value, expected);
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void make_19_samples(void)
{
    record_parts(0, LEAT_PART_SAMPLE, 17, 1000, 0);
    record_parts(0, LEAT_PART_SAMPLE, 2, 3000000, 0);
    record_parts(0, LEAT_PART_PICKLE, 7, 50, 11);
}

static void make_5_samples(void)
{
    record_parts(0, LEAT_PART_SAMPLE, 5, 700, 0);
}

static void two_workers(void)
{
    make_loader(0);
    uint32_t loader = make_loader(2);
    fork_worker(0, (int)loader, make_19_samples);
    fork_worker(1, (int)loader, make_5_samples);
    record_parts(loader, LEAT_PART_UNPICKLE, 13, 90, 23);
    for (int i = 0; i < 11; i++)
        leat_ready(loader, 3);
    leat_ready(loader, 0);
    leat_ready(loader, 0);
    leat_ready(loader, 700);
}

static void test_parts(void **state)
{
    begin(getpid());
    pid_t pid = run(two_workers);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM input_parts"), 4);
    assert_int_equal(ask("SELECT min(pid) FROM input_parts"), pid);
    assert_int_equal(ask("SELECT max(pid) FROM input_parts"), pid);
    assert_int_equal(ask("SELECT min(loader) + max(loader) FROM input_parts"), 2);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE part='sample' AND worker=0"), 19);
    assert_int_equal(ask("SELECT total_ns FROM input_parts WHERE part='sample' AND worker=0"),
                     17 * 1000 + 2 * 3000000);
    assert_int_equal(ask("SELECT max_ns FROM input_parts WHERE part='sample' AND worker=0"),
                     3000000);
    assert_int_equal(ask("SELECT bytes FROM input_parts WHERE part='pickle' AND worker=0"), 77);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE part='sample' AND worker=1"), 5);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE part='unpickle' AND worker=-1"), 13);
    assert_int_equal(ask("SELECT bytes FROM input_parts WHERE part='unpickle'"), 13 * 23);
    assert_int_equal(ask("SELECT loader FROM workers WHERE worker_id=1"), 1);
    assert_int_equal(ask("SELECT count(*) FROM workers WHERE loader=1"), 2);
    assert_int_equal(ask("SELECT parent_pid FROM workers WHERE worker_id=1"), pid);
    assert_int_equal(ask("SELECT count(*) FROM lost"), 0);
}

static void test_hist(void **state)
{
    char sql[256];
    begin(getpid());
    run(two_workers);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM input_parts AS p WHERE n <> (SELECT sum(h.n) FROM "
                         "input_hist AS h WHERE h.pid=p.pid AND h.loader=p.loader AND "
                         "h.worker=p.worker AND h.part=p.part)"),
                     0);
    const char *one = "SELECT n FROM input_hist WHERE part='sample' AND worker=0 AND bin=%d";
    snprintf(sql, sizeof sql, one, (int)duration_bucket_of(3000000));
    assert_int_equal(ask(sql), 2);
    snprintf(sql, sizeof sql, one, (int)duration_bucket_of(1000));
    assert_int_equal(ask(sql), 17);
    assert_int_equal(ask("SELECT count(*) FROM input_ready WHERE worker=-1 AND loader=1"), 3);
    assert_int_equal(ask("SELECT n FROM input_ready WHERE batches=3"), 11);
    assert_int_equal(ask("SELECT n FROM input_ready WHERE batches=0"), 2);
    assert_int_equal(ask("SELECT n FROM input_ready WHERE batches=255"), 1);
}

/* Without workers the process makes all batches itself, for several loaders. */
static void no_workers(void)
{
    uint32_t a = make_loader(0), b = make_loader(0);
    record_parts(a, LEAT_PART_SAMPLE, 23, 100, 0);
    record_parts(b, LEAT_PART_SAMPLE, 29, 100, 0);
    record_parts(b, LEAT_PART_COLLATE, 3, 100, 0);
    struct leat_line line = {.loader = b, .file = "b.py", .line = 4, .below = -1, .ns = 41};
    leat_recorder_line(&line);
    line = (struct leat_line){.loader = a, .file = "a.py", .line = 5, .below = -1, .ns = 43};
    leat_recorder_line(&line);
}

static void test_no_workers(void **state)
{
    begin(getpid());
    run(no_workers);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM input_parts WHERE worker=-1"), 3);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE loader=0"), 23);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE loader=1 AND part='sample'"), 29);
    assert_int_equal(ask("SELECT count(*) FROM input_lines"), 2);
    assert_int_equal(ask("SELECT ns FROM input_lines WHERE loader=0 AND worker=-1 AND id=0"), 43);
    assert_int_equal(ask("SELECT ns FROM input_lines WHERE loader=1 AND worker=-1 AND id=0"), 41);
}

/* The recorder has a histogram for 15 loaders; later ones share one without a loader number. */
static void twenty_loaders(void)
{
    for (int i = 0; i < 20; i++)
        record_parts(make_loader(0), LEAT_PART_SAMPLE, i + 1, 100, 0);
}

static void test_many_loaders(void **state)
{
    begin(getpid());
    run(twenty_loaders);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM input_parts"), 16);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE loader=14"), 15);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE loader=-1"), 16 + 17 + 18 + 19 + 20);
    assert_int_equal(ask("SELECT n FROM lost WHERE what='notes' AND why LIKE 'input_parts:%'"), 5);
}

/* ---- workers and their loaders -------------------------------------------------------------- */

static void undeclared_loader_one_choice(void)
{
    make_loader(0);
    make_loader(0);
    make_loader(3);
    fork_worker(2, -1, make_5_samples);
}

static void undeclared_loader_two_choices(void)
{
    make_loader(3);
    make_loader(1);
    fork_worker(2, -1, make_5_samples);
}

static void invalid_loader(void)
{
    make_loader(0);
    make_loader(3);
    fork_worker(2, 100000, make_5_samples);
}

static void test_undeclared_loader(void **state)
{
    begin(getpid());
    pid_t one = run(undeclared_loader_one_choice), two = run(undeclared_loader_two_choices),
          invalid = run(invalid_loader);
    char sql[128];
    finish();
    const struct {
        pid_t pid;
        int loader;
    } expected[] = {
        {one,     2 },
        {two,     -1},
        {invalid, 1 }
    };
    for (int i = 0; i < 3; i++) {
        snprintf(sql, sizeof sql, "SELECT 100 + loader FROM input_parts WHERE pid=%d AND worker=2",
                 (int)expected[i].pid);
        assert_int_equal(ask(sql), 100 + expected[i].loader);
        snprintf(sql, sizeof sql, "SELECT loader FROM workers WHERE parent_pid=%d",
                 (int)expected[i].pid);
        assert_int_equal(ask(sql), expected[i].loader); /* -1: NULL */
    }
}

/* A worker with an unknown number does not count as worker 0. */
static void workers_without_a_number(void)
{
    uint32_t loader = make_loader(2);
    fork_worker(0, (int)loader, make_19_samples);
    fork_worker(-1, (int)loader, make_5_samples);
    fork_worker(-1, (int)loader, make_5_samples);
}

static void test_workers_without_a_number(void **state)
{
    begin(getpid());
    run(workers_without_a_number);
    finish();
    assert_int_equal(ask("SELECT n FROM input_parts WHERE part='sample' AND worker=0"), 19);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE part='sample' AND worker=-2"), 5 + 5);
    assert_int_equal(ask("SELECT count(*) FROM input_parts WHERE worker=-1"), 0);
    assert_int_equal(ask("SELECT count(*) FROM workers WHERE worker_id IS NULL"), 2);
}

/* A worker may declare its loader late: its group is decided when it has recorded a part.
 */
static void declare_late(void)
{
    char byte;
    close(continue_pipe[1]);
    make_loader(1);
    make_loader(1);
    pid_t pid = fork();
    if (pid == 0) {
        leat_recorder_role(LEAT_ROLE_WORKER, 2);
        if (read(continue_pipe[0], &byte, 1) != 1)
            _exit(1);
        leat_recorder_worker_loader(1);
        make_5_samples();
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    _exit(WEXITSTATUS(status));
}

static void test_loader_declared_late(void **state)
{
    assert_int_equal(pipe(continue_pipe), 0);
    begin(getpid());
    pid_t pid = child(declare_late);
    sample_until("SELECT count(*) FROM workers", 1);
    assert_int_equal(write(continue_pipe[1], "a", 1), 1);
    assert_int_equal(wait_for(pid), 0);
    finish();
    assert_int_equal(ask("SELECT loader FROM workers"), 1);
    assert_int_equal(ask("SELECT loader FROM input_parts"), 1);
    close(continue_pipe[0]);
    close(continue_pipe[1]);
}

/* Under a fork server the parent has no loader: the only process with a loader is the trainer. */
static void serve_forks(void)
{
    leat_recorder_signals(LEAT_SIGNAL_WORKER);
    fork_worker(1, -1, make_5_samples);
}

static void has_a_loader(void)
{
    make_loader(2);
}

static void test_fork_server(void **state)
{
    begin(getpid());
    run(serve_forks);
    pid_t trainer = run(has_a_loader);
    collector_sample(w.collector);
    finish();
    assert_int_equal(ask("SELECT pid FROM input_parts WHERE worker=1"), trainer);
    assert_int_equal(ask("SELECT parent_pid FROM workers"), trainer);
}

/* ---- epochs --------------------------------------------------------------------------------- */

static void make_an_epoch(void)
{
    record_parts(0, LEAT_PART_SAMPLE, 7, 1000, 0);
    int user = record_line(LEAT_PART_SAMPLE, -1, "data.py", 12, "__getitem__", 100);
    record_line(LEAT_PART_SAMPLE, user, "lib.py", 3, "read", 60);
}

/* The same lines in another order, and one of its own. */
static void make_another_epoch(void)
{
    record_parts(0, LEAT_PART_SAMPLE, 11, 1000, 0);
    record_line(LEAT_PART_COLLATE, -1, "data.py", 12, "__getitem__", 1);
    int other = record_line(LEAT_PART_SAMPLE, -1, "data.py", 13, "__getitem__", 10);
    record_line(LEAT_PART_SAMPLE, other, "lib.py", 3, "read", 5);
    int user = record_line(LEAT_PART_SAMPLE, -1, "data.py", 12, "__getitem__", 200);
    record_line(LEAT_PART_SAMPLE, user, "lib.py", 3, "read", 90);
}

static void thirteen_epochs(void)
{
    int loader = (int)make_loader(1);
    for (int i = 0; i < 13; i++)
        fork_worker(0, loader, i % 2 ? make_another_epoch : make_an_epoch);
}

static void test_epochs(void **state)
{
    begin(getpid());
    run(thirteen_epochs);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM workers"), 13);
    assert_int_equal(ask("SELECT count(*) FROM input_parts"), 1);
    assert_int_equal(ask("SELECT n FROM input_parts"), 7 * 7 + 6 * 11);
    assert_int_equal(ask("SELECT sum(n) FROM input_hist"), 7 * 7 + 6 * 11);
    assert_int_equal(ask("SELECT count(*) FROM input_lines"), 5);
    assert_int_equal(ask("SELECT count(DISTINCT id) FROM input_lines"), 5);
    assert_int_equal(ask("SELECT max(id) FROM input_lines"), 4);
    assert_int_equal(ask("SELECT ns FROM input_lines WHERE line=12 AND part='sample'"),
                     7 * 100 + 6 * 200);
    assert_int_equal(ask("SELECT samples FROM input_lines WHERE line=12 AND part='sample'"), 13);
    assert_int_equal(ask("SELECT read_ns FROM input_lines WHERE line=12 AND part='sample'"),
                     7 * 50 + 6 * 100);
    assert_int_equal(ask("SELECT decode_ns FROM input_lines WHERE line=12 AND part='sample'"),
                     7 * 20 + 6 * 40);
    assert_int_equal(ask("SELECT blocked_ns FROM input_lines WHERE line=12 AND part='sample'"),
                     7 * 10 + 6 * 20);
    assert_int_equal(ask("SELECT count(*) FROM input_lines WHERE library!=(file='lib.py')"), 0);
    assert_int_equal(ask("SELECT l.ns FROM input_lines AS l JOIN input_lines AS u ON u.id=l.below "
                         "WHERE l.file='lib.py' AND u.line=12"),
                     7 * 60 + 6 * 90);
    assert_int_equal(ask("SELECT count(*) FROM input_lines WHERE library!=(file='lib.py')"), 0);
    assert_int_equal(ask("SELECT l.ns FROM input_lines AS l JOIN input_lines AS u ON u.id=l.below "
                         "WHERE l.file='lib.py' AND u.line=13"),
                     6 * 5);
    assert_int_equal(ask("SELECT count(*) FROM input_lines WHERE below IS NULL"), 3);
    assert_int_equal(ask("SELECT ns FROM input_lines WHERE part='collate'"), 6);
}

/* ---- while workers run ---------------------------------------------------------------------- */

static void keep_running(void)
{
    char byte;
    close(continue_pipe[1]); /* so that the worker does not wait after a failed test */
    make_loader(1);
    fork_worker(0, 0, make_an_epoch);
    pid_t pid = fork();
    if (pid == 0) {
        leat_recorder_role(LEAT_ROLE_WORKER, 0);
        leat_recorder_worker_loader(0);
        make_another_epoch();
        if (read(continue_pipe[0], &byte, 1) != 1)
            _exit(1);
        record_parts(0, LEAT_PART_SAMPLE, 31, 1000, 0);
        if (read(continue_pipe[0], &byte, 1) != 1)
            _exit(1);
        record_parts(0, LEAT_PART_SAMPLE, 2, 1000, 0); /* too few for new bins before the end */
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    _exit(WEXITSTATUS(status));
}

/* Ended and running workers are summed during the run; at the end each counts once. */
static void test_running_workers(void **state)
{
    assert_int_equal(pipe(continue_pipe), 0);
    begin(getpid());
    pid_t pid = child(keep_running);
    sample_until("SELECT n FROM input_parts", 7 + 11);
    assert_int_equal(write(continue_pipe[1], "a", 1), 1);
    sample_until("SELECT n FROM input_parts", 7 + 11 + 31);
    sample_until("SELECT sum(n) FROM input_hist", 7 + 11 + 31);
    sample_until("SELECT count(*) FROM input_lines", 5);
    assert_int_equal(write(continue_pipe[1], "b", 1), 1);
    assert_int_equal(wait_for(pid), 0);
    finish();
    assert_int_equal(ask("SELECT n FROM input_parts"), 7 + 11 + 31 + 2);
    assert_int_equal(ask("SELECT sum(n) FROM input_hist"), 7 + 11 + 31 + 2);
    assert_int_equal(ask("SELECT sum(samples) FROM input_lines"), 2 + 5);
    close(continue_pipe[0]);
    close(continue_pipe[1]);
}

/* ---- limits and failures -------------------------------------------------------------------- */

enum { WORKERS = 1031 };

static void one_of_each(void)
{
    record_parts(0, LEAT_PART_SAMPLE, 1, 1000, 0); /* buckets 190 and 188 */
    record_parts(0, LEAT_PART_SAMPLE, 1, 960, 0);
    for (int i = 0; i < 67; i++)
        record_line(LEAT_PART_SAMPLE, -1, "data.py", i + 1, "f", 1);
}

static int next_worker;

static void one_of_many(void)
{
    leat_recorder_role(LEAT_ROLE_WORKER, next_worker);
    leat_recorder_worker_loader(0);
    one_of_each();
}

static void test_many_workers(void **state)
{
    begin(getpid());
    run(has_a_loader);
    for (next_worker = 0; next_worker < WORKERS; next_worker++)
        run(one_of_many);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM input_parts"), 1024);
    assert_int_equal(ask("SELECT sum(n) FROM input_hist"), 2048);
    /* The first 64 have all buckets; of the others 4 or 12 are one. */
    assert_int_equal(ask("SELECT count(*) FROM input_hist WHERE bin IN (188, 190) AND n = 1"),
                     2 * 64);
    assert_int_equal(ask("SELECT count(*) FROM input_hist WHERE bin = 190 AND n = 2"), 192);
    assert_int_equal(ask("SELECT count(*) FROM input_hist WHERE bin = 186 AND n = 2"), 768);
    assert_int_equal(ask("SELECT n FROM lost WHERE why LIKE 'more than % workers%'"),
                     WORKERS - 1024);
    assert_int_equal(ask("SELECT max(n) FROM (SELECT count(*) AS n FROM input_lines GROUP BY "
                         "worker)"),
                     67);
    assert_int_equal(ask("SELECT min(n) FROM (SELECT count(*) AS n FROM input_lines GROUP BY "
                         "worker)"),
                     24);
    assert_int_equal(ask("SELECT n FROM lost WHERE why LIKE 'input_lines:%'"),
                     (1024 - 64) * (67 - 24));
}

/* The process overwrites parts and lines with garbage: the values are wrong, but rows are written.
 */
static void test_garbage_in_memory(void **state)
{
    begin(getpid());
    struct rec_area *area = adopt_area();
    uint64_t seed = 11;
    for (int round = 0; round < 12; round++) {
        area->header.role = round % 3;
        area->header.ppid = round % 2 ? getpid() : (int32_t)scramble(&seed);
        area->header.loaders_used = (uint32_t)scramble(&seed);
        area->header.worker_loader = (int32_t)scramble(&seed);
        area->header.worker_id = (int32_t)scramble(&seed);
        area->header.lines_used = round % 2 ? 300 : (uint32_t)scramble(&seed);
        area->header.lines_lost = UINT64_MAX;
        uint64_t *parts = (uint64_t *)area->parts, *lines = (uint64_t *)area->lines;
        for (size_t i = 0; i < sizeof area->parts / 8; i += 1 + scramble(&seed) % 7)
            parts[i] = scramble(&seed) << (round % 17);
        for (size_t i = 0; i < sizeof area->lines / 8; i++)
            lines[i] = scramble(&seed) << (round % 17);
        for (int i = 0; i < REC_LINES; i++) {
            area->lines[i].part = (uint32_t)scramble(&seed) % 9;
            area->lines[i].below = (int32_t)scramble(&seed) % (2 * REC_LINES);
        }
        for (int i = 0; i < REC_PART_LOADERS; i++)
            area->header.parts_used[i] = (uint8_t)scramble(&seed);
        assert_true(collector_drain(w.collector) >= 0);
        pause_ms(round < 3 ? 1001 : 0); /* rows are due once per second */
        collector_sample(w.collector);
    }
    munmap(area, sizeof *area);
    finish();
    assert_true(ask("SELECT count(*) FROM input_parts") > 0);
    assert_int_equal(ask("SELECT count(*) FROM input_parts WHERE n <= 0"), 0);
    assert_int_equal(ask("SELECT count(*) FROM input_lines AS l WHERE below IS NOT NULL AND NOT "
                         "EXISTS (SELECT 1 FROM input_lines AS u WHERE u.pid=l.pid AND "
                         "u.loader=l.loader AND u.worker=l.worker AND u.id=l.below)"),
                     0);
}

/* The n-th allocation fails, for every n: losses are counted, nothing crashes. */
static void test_no_memory(void **state)
{
    begin(getpid());
    run(two_workers);
    assert_true(collector_drain(w.collector) >= 0);
    run(thirteen_epochs);
    for (unsigned long n = 1; n < 40; n++) {
        mem_fail_at(n);
        collector_sample(w.collector);
        if (n % 2)
            collector_drain(w.collector);
    }
    mem_fail_at(0);
    finish();
    assert_true(ask("SELECT count(*) FROM input_parts") <= 6);
    assert_int_equal(ask("SELECT n FROM input_parts WHERE part='unpickle'"), 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_parts),
        TEST(test_hist),
        TEST(test_no_workers),
        TEST(test_many_loaders),
        TEST(test_undeclared_loader),
        TEST(test_workers_without_a_number),
        TEST(test_loader_declared_late),
        TEST(test_fork_server),
        TEST(test_epochs),
        TEST(test_running_workers),
        TEST(test_many_workers),
        TEST(test_garbage_in_memory),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
