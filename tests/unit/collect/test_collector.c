/* test_collector.c: real processes record into real memory, and the database must hold exactly
 * that. Counts are primes, so that no result is right by chance. */
#include "collector_world.h"

#include <pthread.h>
#include <dlfcn.h>

/* ---- what the processes do ------------------------------------------------------------------ */

static uint64_t clock_of_child;

static void one_step(uint32_t loader, uint32_t iteration)
{
    uint64_t t = clock_of_child ? clock_of_child : leat_now_ns() - NS_PER_S;
    leat_record(LEAT_REC_FETCH, 0, loader, LEAT_FETCH_ARG(iteration, 3), t, t + 100);
    leat_record(LEAT_REC_BACKWARD, 0, 0, 0, t + 300, t + 600);
    leat_record(LEAT_REC_OPTIMIZER, 0, 0, 0, t + 600, t + 1000);
    clock_of_child = t + 1000;
}

static void train(int steps)
{
    struct leat_loader_info info = {.dataset_length = 303,
                                    .batch_size = 3,
                                    .num_workers = 2,
                                    .prefetch_factor = -1,
                                    .pin_memory = 0,
                                    .persistent_workers = -1,
                                    .own = 1,
                                    .engine_readable = 1,
                                    .dataset = "Toy",
                                    .where = "train.py:7"};
    leat_recorder_signals(LEAT_SIGNAL_FETCH | LEAT_SIGNAL_BACKWARD | LEAT_SIGNAL_OPTIMIZER);
    leat_recorder_fact("torch", "2.13.0");
    leat_recorder_fact("missing", "compile");
    uint32_t loader = leat_recorder_loader(&info);
    for (int i = 0; i < steps; i++)
        one_step(loader, 1);
}

static void train_101(void)
{
    train(101);
    uint64_t t = clock_of_child;
    uint32_t name = leat_recorder_name("checkpoint");
    leat_record(LEAT_REC_NAMED, 0, name, 0, t + 10, t + 60);
    clock_of_child = t + 100;
    one_step(0, 1);
    leat_recorder_close();
}

static void test_steps(void **state)
{
    begin(getpid());
    pid_t pid = run(train_101);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps"), 102);
    assert_int_equal(ask("SELECT max(id) FROM steps"), 101);
    assert_int_equal(ask("SELECT sum(wall_ns) FROM steps"), 102 * 1000 + 100);
    assert_int_equal(ask("SELECT sum(input_ns) FROM steps"), 102 * 100);
    assert_int_equal(ask("SELECT sum(forward_ns) FROM steps"), 102 * 200);
    assert_int_equal(ask("SELECT sum(backward_ns) FROM steps"), 102 * 300);
    assert_int_equal(ask("SELECT sum(optimizer_ns) FROM steps"), 102 * 400);
    assert_int_equal(ask("SELECT sum(samples) FROM steps"), 102 * 3);
    assert_int_equal(ask("SELECT h2d_ns FROM steps WHERE id = 5"), -1);
    assert_int_equal(ask("SELECT max(end_ns) < 2000000000 FROM steps"), 1);
    assert_int_equal(ask("SELECT pid FROM processes WHERE role = 'main'"), pid);
    assert_int_equal(ask("SELECT rank FROM processes WHERE role = 'main'"), 0);
    assert_int_equal(ask("SELECT recorded FROM processes WHERE role = 'main'"), 1);
    assert_string_equal(ask_text("SELECT torch FROM processes WHERE role = 'main'"), "2.13.0");
    assert_string_equal(ask_text("SELECT signals FROM processes WHERE role = 'main'"),
                        "fetch,backward,optimizer");
    assert_int_equal(ask("SELECT ended_ns > 0 FROM processes WHERE role = 'main'"), 1);
    assert_string_equal(ask_text("SELECT use FROM loaders"), "train");
    assert_string_equal(ask_text("SELECT location FROM loaders"), "train.py:7");
    assert_int_equal(ask("SELECT batches FROM loaders"), 102);
    assert_int_equal(ask("SELECT prefetch_factor FROM loaders"), -1); /* NULL */
    assert_int_equal(ask("SELECT pin_memory FROM loaders"), 0);
    assert_int_equal(ask("SELECT own FROM loaders"), 1);
    assert_int_equal(ask("SELECT engine_readable FROM loaders"), 1);
    assert_string_equal(ask_text("SELECT typeof(dataset_length) FROM loaders"), "integer");
    assert_int_equal(ask("SELECT n FROM span_totals WHERE name = 'checkpoint'"), 1);
    assert_int_equal(ask("SELECT total_ns FROM span_totals WHERE name = 'checkpoint'"), 50);
    assert_int_equal(ask("SELECT other_ns FROM span_totals WHERE name = 'checkpoint'"), 50);
    assert_int_equal(ask("SELECT n FROM lost WHERE what = 'probes'"), 1);
    assert_int_equal(ask("SELECT count(*) FROM lost WHERE what <> 'probes'"), 0);
}

static void train_until_killed(void)
{
    train(23);
    raise(SIGKILL);
}

static void test_killed(void **state)
{
    begin(getpid());
    pid_t pid = child(train_until_killed);
    assert_true(WIFSIGNALED(wait_for(pid)));
    adopt_all();
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps"), 23);
}

/* The memory of a process that has ended is unmapped, and its rows are written, long before the
 * end. */
static void test_end_of_a_process_is_noticed(void **state)
{
    begin(getpid());
    run(train_until_killed);
    assert_true(collector_drain(w.collector) > 0);
    open_reader();
    assert_int_equal(ask("SELECT count(*) FROM steps"), 23);
    assert_int_equal(ask("SELECT count(*) FROM loaders"), 1);
    close_reader();
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps"), 23);
}

static void overflow(void)
{
    uint32_t name = leat_recorder_name("tick");
    uint64_t t = leat_now_ns() - NS_PER_S;
    for (uint64_t i = 0; i < REC_RING_RECORDS + 37; i++)
        leat_record(LEAT_REC_NAMED, 0, name, 0, t + i, t + i + 1);
}

static void test_overflow(void **state)
{
    begin(getpid());
    run(overflow);
    finish();
    assert_int_equal(ask("SELECT n FROM lost WHERE what = 'records'"), 37);
    assert_int_equal(ask("SELECT lost_records FROM processes WHERE recorded = 1"), 37);
    assert_int_equal(ask("SELECT n FROM span_totals WHERE name = 'tick'"), REC_RING_RECORDS);
}

static pthread_barrier_t all_have_recorded;

static void *record_and_wait(void *arg)
{
    uint64_t t = leat_now_ns();
    leat_record(LEAT_REC_NAMED, 0, 0, 0, t - 1, t);
    pthread_barrier_wait(&all_have_recorded);
    return arg;
}

static void too_many_threads(void)
{
    pthread_t threads[LEAT_REC_THREADS + 3];
    pthread_barrier_init(&all_have_recorded, NULL, LEAT_REC_THREADS + 3);
    leat_recorder_name("tick");
    for (int i = 0; i < LEAT_REC_THREADS + 3; i++)
        pthread_create(&threads[i], NULL, record_and_wait, NULL);
    for (int i = 0; i < LEAT_REC_THREADS + 3; i++)
        pthread_join(threads[i], NULL);
}

static void test_too_many_threads(void **state)
{
    begin(getpid());
    run(too_many_threads);
    finish();
    assert_int_equal(ask("SELECT n FROM lost WHERE what = 'records'"), 3);
    assert_non_null(strstr(ask_text("SELECT why FROM lost WHERE what = 'records'"),
                           "records of threads dropped because 16 others were recorded"));
    assert_int_equal(ask("SELECT lost_records FROM processes WHERE recorded = 1"), 3);
}

static void rank_0(void)
{
    leat_recorder_rank(0, 0, 3);
    train(13);
}

static void rank_1(void)
{
    leat_recorder_rank(1, 1, 3);
    train(17);
}

static void test_ranks(void **state)
{
    begin(getpid());
    run(rank_1);
    run(rank_0);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps WHERE id >> 40 = 0"), 13);
    assert_int_equal(ask("SELECT count(*) FROM steps WHERE id >> 40 = 1"), 17);
    assert_int_equal(ask("SELECT n FROM lost WHERE what = 'ranks'"), 1);
    assert_string_equal(ask_text("SELECT why FROM lost WHERE what = 'ranks'"),
                        "no data from rank 2 of 3");
    assert_int_equal(ask("SELECT count(*) FROM processes WHERE role = 'main'"), 2);
    assert_int_equal(ask("SELECT count(*) FROM loaders WHERE rank = 1"), 1);
}

static void train_5(void)
{
    train(5);
}

static void test_same_rank_twice(void **state)
{
    begin(getpid());
    run(train_5);
    run(rank_0);
    run(train_5);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps WHERE id >> 40 = 0"), 5);
    assert_int_equal(ask("SELECT count(*) FROM steps WHERE id >> 40 = 3"), 13);
    assert_int_equal(ask("SELECT count(*) FROM steps WHERE id >> 40 = 4"), 5);
    assert_int_equal(ask("SELECT count(*) FROM lost WHERE what = 'notes'"), 2);
}

static void train_until_stopped(void)
{
    train(1);
    for (int i = 0; i < 600000 && leat_recording(); i++) {
        one_step(0, 1);
        usleep(100);
    }
    _exit(leat_recording() ? 1 : 0);
}

static void test_max_steps(void **state)
{
    w.max_steps = 7;
    begin(getpid());
    pid_t pid = child(train_until_stopped);
    adopt_one();
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        collector_drain(w.collector);
        usleep(1000);
    }
    assert_int_equal(status, 0);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps"), 7);
    assert_int_equal(ask("SELECT max(id) FROM steps"), 6);
}

static void accumulate(void)
{
    uint64_t t = leat_now_ns() - NS_PER_S;
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 11; i++, t += 100) {
            leat_record(LEAT_REC_FETCH, 0, 0, LEAT_FETCH_ARG(1, 3), t, t + 10);
            leat_record(LEAT_REC_BACKWARD, 0, 0, 0, t + 30, t + 60);
        }
        leat_record(LEAT_REC_OPTIMIZER, 0, 0, 0, t, t + 50);
        t += 50;
    }
}

/* Ten provisional steps come before the first optimizer step: they must be removed, and not count
 * for the limit. */
static void test_provisional_steps_are_removed(void **state)
{
    w.max_steps = 2;
    begin(getpid());
    run(accumulate);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps"), 2);
    assert_int_equal(ask("SELECT sum(micro_steps) FROM steps"), 22);
    assert_int_equal(ask("SELECT max(flags) FROM steps"), 0);
}

static void infer(void)
{
    uint64_t t = leat_now_ns() - NS_PER_S;
    struct leat_loader_info info = {.dataset_length = -1, .batch_size = 3};
    uint32_t loader = leat_recorder_loader(&info);
    for (int i = 0; i < 19; i++, t += 100)
        leat_record(LEAT_REC_FETCH, 0, loader, LEAT_FETCH_ARG(1, 3), t, t + 10);
    leat_record(LEAT_REC_FETCH, LEAT_REC_END, loader, LEAT_FETCH_ARG(1, 0), t, t + 10);
}

static void test_inference(void **state)
{
    begin(getpid());
    run(infer);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps"), 19);
    assert_int_equal(ask("SELECT min(flags) FROM steps"), STEP_INFERENCE);
    assert_string_equal(ask_text("SELECT use FROM loaders"), "infer");
}

static void make_13_batches(void)
{
    uint64_t t = leat_now_ns() - NS_PER_S;
    for (uint64_t i = 0; i < 13; i++)
        leat_record(LEAT_REC_WORKER_FETCH, 0, 4, LEAT_FETCH_ARG(0, 2), t + 100 * i,
                    t + 100 * i + (i == 7 ? 90 : 50));
}

/* A training that forks a worker, which records for itself. */
static void train_with_worker(void)
{
    train(3);
    fork_worker(4, -1, make_13_batches);
}

static void test_worker(void **state)
{
    begin(getpid());
    pid_t pid = run(train_with_worker);
    finish();
    assert_int_equal(ask("SELECT batches FROM workers"), 13);
    assert_int_equal(ask("SELECT samples FROM workers"), 26);
    assert_int_equal(ask("SELECT busy_ns FROM workers"), 12 * 50 + 90);
    assert_int_equal(ask("SELECT max_ns FROM workers"), 90);
    assert_int_equal(ask("SELECT last_ns - first_ns FROM workers"), 1250);
    assert_int_equal(ask("SELECT parent_pid FROM workers"), pid);
    assert_int_equal(ask("SELECT worker_id FROM workers"), 4);
    assert_int_equal(ask("SELECT rank FROM workers"), 0);
    assert_int_equal(ask("SELECT rank FROM processes WHERE role = 'worker'"), 0);
    assert_int_equal(ask("SELECT count(*) FROM steps"), 3);
}

/* 2503 workers, each of which makes a single batch. */
static void short_worker(void)
{
    leat_recorder_role(LEAT_ROLE_WORKER, 0);
    uint64_t t = leat_now_ns();
    leat_record(LEAT_REC_WORKER_FETCH, 0, 0, LEAT_FETCH_ARG(0, 1), t - 7, t);
}

static void test_many_short_workers(void **state)
{
    begin(getpid());
    run(train_5);
    for (int i = 0; i < 2503; i++) {
        run(short_worker);
        if (i % 64 == 0) {
            pause_ms(20); /* ended processes are searched twice per second */
            collector_drain(w.collector);
        }
    }
    finish();
    /* The kernel may have reused a pid: only the sums are compared. */
    assert_true(ask("SELECT count(*) FROM workers") > 2400);
    assert_int_equal(ask("SELECT sum(batches) FROM workers"), ask("SELECT count(*) FROM workers"));
    assert_int_equal(ask("SELECT count(*) FROM processes WHERE role = 'main' AND rank = 0"), 1);
    assert_int_equal(ask("SELECT count(*) FROM processes WHERE role = 'worker' AND recorded = 1"),
                     ask("SELECT count(*) FROM workers"));
    assert_int_equal(ask("SELECT count(*) FROM steps"), 5);
}

static void use_memory(void)
{
    for (int i = 0; i < 5; i++) {
        one_step(0, 1);
        uint64_t t = clock_of_child - 500;
        leat_record(LEAT_REC_MEMORY, 0, 1, 1000 + (uint64_t)i, t, t);
        leat_record(LEAT_REC_MEMORY, LEAT_REC_RESERVED, 1, 2000 + (uint64_t)i, t, t);
        leat_record(LEAT_REC_MEMORY, LEAT_REC_SPLIT, 1, 300 + (uint64_t)i, t, t);
        leat_record(LEAT_REC_MEMORY, LEAT_REC_RETRIES, 1, (uint64_t)i, t, t);
    }
    leat_record(LEAT_REC_MEMORY, 0, 2, 77, clock_of_child, clock_of_child);
}

static void test_memory(void **state)
{
    begin(getpid());
    run(use_memory);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM memory_samples"), 6);
    assert_int_equal(ask("SELECT count(*) FROM memory_samples WHERE device = 1 AND "
                         "allocated = 1000 + step AND reserved = 2000 + step AND "
                         "split = 300 + step AND retries = step"),
                     5);
    assert_int_equal(ask("SELECT allocated FROM memory_samples WHERE device = 2"), 77);
    assert_int_equal(ask("SELECT reserved FROM memory_samples WHERE device = 2"), -1);
}

/* ---- failures ----------------------------------------------------------------------------- */

static void test_foreign_memory(void **state)
{
    begin(getpid());
    struct rec_area *area;
    struct leat_err err = {""};
    int fd = make_area(4096, &area);
    assert_true(collector_adopt(w.collector, fd, getpid(), &err) < 0);
    assert_true(strlen(err.text) > 10);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* it was closed all the same */
    munmap(area, 4096);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM processes WHERE recorded = 1"), 0);
}

/* The process overwrites all of its memory, repeatedly, while it is read. */
static void test_garbage_in_memory(void **state)
{
    begin(getpid());
    struct rec_area *area = adopt_area();
    uint64_t seed = 7;
    for (int round = 0; round < 30; round++) {
        uint64_t *words = (uint64_t *)&area->header.role;
        for (size_t i = 0; i < 2000; i++)
            words[i] = scramble(&seed) << (round % 32);
        for (int r = 0; r < REC_RINGS; r++) {
            struct rec_ring *ring = &area->rings[r];
            ring->tid = (int32_t)scramble(&seed) % 3;
            for (int i = 0; i < 200; i++) {
                struct rec *rec = &ring->records[i];
                rec->t0_ns = clock_now_ns() - scramble(&seed) % NS_PER_S;
                rec->t1_ns = rec->t0_ns + scramble(&seed) % 1000;
                rec->arg = scramble(&seed);
                rec->id = (uint32_t)scramble(&seed) % 300;
                rec->kind = (uint16_t)(scramble(&seed) % (LEAT_REC_KINDS + 1));
                rec->flags = (uint16_t)scramble(&seed);
            }
            ring->head = ring->tail + (round % 3 ? 200 : scramble(&seed));
        }
        area->header.rings_used = round % 2 ? REC_RINGS : 0xffffffffu;
        assert_true(collector_drain(w.collector) >= 0);
    }
    munmap(area, sizeof *area);
    finish();
    assert_int_equal(ask("SELECT count(*) FROM steps WHERE wall_ns <> input_ns + "
                         "coalesce(h2d_ns, 0) + forward_ns + backward_ns + optimizer_ns + "
                         "coalesce(sync_ns, 0) + other_ns"),
                     0);
    assert_true(ask("SELECT n FROM lost WHERE what = 'records'") > 0);
}

static void wait_for_exec(pid_t pid, const char *name)
{
    char path[64], comm[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    while (strncmp(comm, name, strlen(name)) != 0) {
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        assert_non_null(fgets(comm, sizeof comm, f));
        fclose(f);
        usleep(1000);
    }
}

/* Samples a program named python3 for a while that does not record: a shell that waits, whatever
 * its arguments are. `path`: an entry of its environment, or NULL. */
static void watch_isolated(const char *argument, const char *path)
{
    char program[96], command[256];
    snprintf(program, sizeof program, "%s/python3", w.dir);
    snprintf(command, sizeof command, "cp /bin/sh %s", program);
    assert_int_equal(system(command), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {program, "-c", "read never", (char *)argument, NULL},
             *environment[] = {"LEAT_SOCKET=x", (char *)path, NULL};
        int ends[2];
        if (pipe(ends) == 0 && dup2(ends[0], 0) == 0)
            execve(program, arguments, environment);
        _exit(1);
    }
    wait_for_exec(pid, "python3");
    begin(pid);
    for (int i = 0; i < 50; i++) { /* the first sample sees it; others follow */
        collector_sample(w.collector);
        pause_ms(20);
    }
    kill(pid, SIGKILL);
    wait_for(pid);
    finish();
}

static void test_other_sitecustomize(void **state)
{
    char path[256], command[256];
    snprintf(command, sizeof command, "mkdir %s/own && touch %s/own/sitecustomize.py", w.dir,
             w.dir);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "PYTHONPATH=%s:%s/own:/leat/_inject", w.dir, w.dir);
    watch_isolated("train.py", path);
    const char *why = ask_text("SELECT why FROM lost WHERE what = 'ranks'");
    assert_non_null(strstr(why, "has a sitecustomize ahead of leat's on PYTHONPATH, in "));
    assert_non_null(strstr(why, "/own: not recorded"));
}

/* A sitecustomize behind leat's is run by leat's. */
static void test_sitecustomize_behind(void **state)
{
    char path[256], command[256];
    snprintf(command, sizeof command, "mkdir %s/own && touch %s/own/sitecustomize.py", w.dir,
             w.dir);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "PYTHONPATH=/leat/_inject:%s/own", w.dir);
    watch_isolated("train.py", path);
    assert_int_equal(ask("SELECT count(*) FROM lost WHERE what = 'ranks'"), 0);
}

static void test_isolated_python(void **state)
{
    watch_isolated("train.py", NULL);
    assert_int_equal(ask("SELECT n FROM lost WHERE what = 'ranks'"), 1);
    const char *why = ask_text("SELECT why FROM lost WHERE what = 'ranks'");
    assert_non_null(strstr(why, "was started with another PYTHONPATH: not recorded"));
    assert_non_null(strstr(why, "python3 -c read never train.py"));
    assert_string_equal(ask_text("SELECT comm FROM processes WHERE recorded = 0"), "python3");
    assert_true(ask("SELECT count(*) FROM proc_samples") >= 1);
    assert_true(ask("SELECT ended_ns FROM processes") > 0);
    assert_string_equal(ask_text("SELECT role FROM processes"), "other");
}

static void test_compile_worker(void **state)
{
    watch_isolated("/lib/torch/_inductor/compile_worker/__main__.py", NULL);
    assert_int_equal(ask("SELECT count(*) FROM processes WHERE comm = 'python3'"), 1);
    assert_int_equal(ask("SELECT count(*) FROM lost WHERE what = 'ranks'"), 0);
}

static void test_samples(void **state)
{
    begin(getpid());
    collector_sample(w.collector);
    pause_ms(250);
    collector_sample(w.collector);
    finish();
    assert_true(ask("SELECT count(*) FROM sys_samples") >= 1);
    assert_int_equal(ask("SELECT count(*) FROM sys_samples WHERE cpu_ratio < 0 OR cpu_ratio > 1 OR "
                         "run_cpu_ratio > 1"),
                     0);
    assert_true(ask("SELECT max(rss_bytes) FROM proc_samples") > 0);
    assert_string_equal(ask_text("SELECT typeof(rss_bytes) FROM proc_samples"), "integer");
    assert_true(ask("SELECT value FROM meta WHERE key = 'cpus'") >= 0);
    assert_int_equal(ask("SELECT value FROM meta WHERE key = 'oom_kills'") <= 0, 1);
    assert_int_equal(ask("SELECT count(*) FROM steps"), 0);
}

/* Charged to the budget for sampling, the 100 ms would stop sampling for 25 s. */
static void test_opening_nvml_does_not_delay_samples(void **state)
{
    const char *build = getenv("LEAT_BUILD");
    char path[512];
    snprintf(path, sizeof path, "%s/tests/unit/observe/fake_nvml.so", build ? build : ".");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* found by nvml_open() from now on */
    assert_non_null(library);
    setenv("FAKE_NVML", "slow", 1);
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("FAKE_NVML_PID", pid, 1);
    begin(getpid());
    for (int i = 0; i < 20; i++) {
        collector_sample(w.collector);
        pause_ms(150);
    }
    open_reader();
    assert_true(ask("SELECT count(DISTINCT t_ns) FROM gpu_samples") >= 2);
    close_reader();
    unsetenv("FAKE_NVML");
    unsetenv("FAKE_NVML_PID");
    dlclose(library);
}

static void pause_forever(void)
{
    for (;;)
        pause();
}

/* It is not in the tree, so a search does not find it. The pause between samples depends on their
 * cost, which is higher under a sanitizer. */
static void test_hello_is_sampled_without_a_search(void **state)
{
    pid_t root = fork();
    if (root == 0)
        pause_forever();
    begin(root);
    collector_sample(w.collector);
    pid_t pid = child(pause_forever);
    adopt_one();
    for (int i = 0; i < 8; i++) {
        pause_ms(250);
        collector_sample(w.collector);
    }
    kill(pid, SIGKILL);
    wait_for(pid);
    kill(root, SIGKILL);
    wait_for(root);
    finish();
    assert_int_equal(ask("SELECT count(DISTINCT pid) FROM proc_samples"), 2);
}

static void write_text(const char *name, const char *content)
{
    char path[256];
    snprintf(path, sizeof path, "%s/proc/%s", w.dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(content, file);
    fclose(file);
}

static void make_process(const char *pid, const char *stat)
{
    char path[256];
    snprintf(path, sizeof path, "%s/proc/%s", w.dir, pid);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/stat", pid);
    write_text(path, stat);
}

/* In a test root a child appears; `loadavg` gives the kernel's last pid. Returns the number of
 * samples of the child. */
static int64_t samples_of_child(const char *loadavg)
{
    char path[256];
    snprintf(path, sizeof path, "%s/proc", w.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    w.proc_root = w.dir;
    make_process("70", "70 (python3) S 1 70 70 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0");
    write_text("loadavg", "0.00 0.00 0.00 1/2 70\n");
    begin(70);
    collector_sample(w.collector);
    make_process("71", "71 (ffmpeg) S 70 71 71 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0");
    write_text("loadavg", loadavg);
    pause_ms(1050); /* the tree is searched at most once per second */
    collector_sample(w.collector);
    finish();
    assert_true(ask("SELECT count(*) FROM proc_samples WHERE pid = 70") >= 2);
    return ask("SELECT count(*) FROM proc_samples WHERE pid = 71");
}

static void test_a_child_is_found(void **state)
{
    assert_true(samples_of_child("0.00 0.00 0.00 1/2 71\n") >= 1);
}

static void test_a_child_is_found_without_a_last_pid(void **state)
{
    assert_true(samples_of_child("0.00 0.00 0.00 0/0 0\n") >= 1);
}

static void test_no_search_without_a_new_process(void **state)
{
    assert_int_equal(samples_of_child("0.00 0.00 0.00 1/2 70\n"), 0);
}

/* The n-th allocation fails, for every n: an error or a loss, never a crash or a leak. */
static void test_no_memory(void **state)
{
    begin(getpid());
    pid_t pid = child(train_101);
    wait_for(pid);
    adopt_all();
    for (unsigned long n = 1; n < 60; n++) {
        mem_fail_at(n);
        collector_drain(w.collector);
        collector_sample(w.collector);
    }
    mem_fail_at(0);
    finish();
    assert_true(ask("SELECT count(*) FROM steps") <= 102);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_steps),
        TEST(test_killed),
        TEST(test_end_of_a_process_is_noticed),
        TEST(test_overflow),
        TEST(test_too_many_threads),
        TEST(test_ranks),
        TEST(test_same_rank_twice),
        TEST(test_max_steps),
        TEST(test_provisional_steps_are_removed),
        TEST(test_inference),
        TEST(test_worker),
        TEST(test_memory),
        TEST(test_foreign_memory),
        TEST(test_garbage_in_memory),
        TEST(test_isolated_python),
        TEST(test_other_sitecustomize),
        TEST(test_sitecustomize_behind),
        TEST(test_compile_worker),
        TEST(test_samples),
        TEST(test_opening_nvml_does_not_delay_samples),
        TEST(test_hello_is_sampled_without_a_search),
        TEST(test_a_child_is_found),
        TEST(test_a_child_is_found_without_a_last_pid),
        TEST(test_no_search_without_a_new_process),
        TEST(test_no_memory),
        TEST(test_many_short_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
