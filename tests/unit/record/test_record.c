/* test_record.c: the rings, with real memfds, a real socket, real forks and killed processes. */
#include "record_world.h"

static void record_many(int n)
{
    for (int i = 0; i < n; i++)
        leat_record(LEAT_REC_FETCH, 0, 3, LEAT_FETCH_ARG(1, i), (uint64_t)i, (uint64_t)i + 1);
}

static void write_101(void)
{
    leat_recorder_open();
    leat_recorder_role(LEAT_ROLE_MAIN, -1);
    leat_recorder_rank(3, 1, 8);
    leat_recorder_signals(LEAT_SIGNAL_FETCH);
    leat_recorder_signals(LEAT_SIGNAL_BACKWARD);
    leat_recorder_fact("torch", "2.13.0");
    leat_recorder_fact("nonsense", "ignored");
    char long_text[600];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    leat_recorder_fact("exception", long_text);
    if (leat_recorder_name("a") != 0 || leat_recorder_name("b") != 1 || leat_recorder_name("a"))
        _exit(1);
    struct leat_loader_info info = {.batch_size = 32, .dataset = "Toy"};
    leat_recorder_loader(&info);
    record_many(101);
    leat_recorder_close();
    record_many(5); /* after the goodbye: dropped */
}

static void everything_arrives(void **state)
{
    pid_t pid = run_child(write_101);
    struct ring_reader reader;
    open_reader(&reader);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    struct ring_record last;
    assert_int_equal(take_all(&reader, &last), 101);
    assert_int_equal(last.rec.arg, LEAT_FETCH_ARG(1, 100));
    assert_int_equal(last.tid, pid);
    struct rec_header h;
    ring_reader_header(&reader, &h);
    assert_int_equal(h.pid, pid);
    assert_int_equal(h.rank, 3);
    assert_int_equal(h.world_size, 8);
    assert_int_equal(h.signals, LEAT_SIGNAL_FETCH | LEAT_SIGNAL_BACKWARD);
    assert_int_equal(h.closed, 1);
    assert_string_equal(h.torch, "2.13.0");
    assert_int_equal(strlen(h.exception), sizeof h.exception - 1);
    char name[REC_NAME_BYTES];
    assert_int_equal(ring_reader_name(&reader, 1, name), 1);
    assert_string_equal(name, "b");
    assert_int_equal(ring_reader_name(&reader, 2, name), 0);
    struct leat_loader_info info;
    assert_int_equal(ring_reader_loader(&reader, 0, &info), 1);
    assert_int_equal(info.batch_size, 32);
    assert_int_equal(ring_reader_lost(&reader), 0);
    ring_reader_close(&reader);
}

static void overflow(void)
{
    leat_recorder_open();
    record_many(REC_RING_RECORDS + 23);
}

static void overflow_is_counted(void **state)
{
    pid_t pid = run_child(overflow);
    struct ring_reader reader;
    open_reader(&reader);
    waitpid(pid, NULL, 0);
    struct ring_record last;
    assert_int_equal(take_all(&reader, &last), REC_RING_RECORDS);
    assert_int_equal(ring_reader_lost(&reader), 23);
    ring_reader_close(&reader);
}

static void die_midway(void)
{
    leat_recorder_open();
    record_many(1009);
    kill(getpid(), SIGKILL);
}

static void memory_of_a_killed_process_is_read(void **state)
{
    pid_t pid = run_child(die_midway);
    struct ring_reader reader;
    open_reader(&reader);
    waitpid(pid, NULL, 0);
    struct ring_record last;
    assert_int_equal(take_all(&reader, &last), 1009);
    ring_reader_close(&reader);
}

static void fork_children(void)
{
    leat_recorder_open();
    record_many(7);
    pid_t child = fork();
    if (child == 0) {
        record_many(11); /* opens a memory of its own */
        _exit(0);
    }
    waitpid(child, NULL, 0);
    record_many(2);
}

static void a_forked_child_has_its_own_memory(void **state)
{
    pid_t pid = run_child(fork_children);
    struct ring_reader parent, child;
    open_reader(&parent);
    open_reader(&child);
    waitpid(pid, NULL, 0);
    struct ring_record last;
    assert_int_equal(take_all(&parent, &last), 9);
    assert_int_equal(take_all(&child, &last), 11);
    struct rec_header h;
    ring_reader_header(&child, &h);
    assert_int_equal(h.ppid, pid);
    ring_reader_close(&parent);
    ring_reader_close(&child);
}

static void *thread_records(void *arg)
{
    record_many(13);
    return arg;
}

static void many_threads(void)
{
    leat_recorder_open();
    pthread_t threads[LEAT_REC_THREADS + 3];
    for (int i = 0; i < LEAT_REC_THREADS + 3; i++)
        pthread_create(&threads[i], NULL, thread_records, NULL);
    for (int i = 0; i < LEAT_REC_THREADS + 3; i++)
        pthread_join(threads[i], NULL);
}

static void threads_beyond_the_rings_are_counted(void **state)
{
    pid_t pid = run_child(many_threads);
    struct ring_reader reader;
    open_reader(&reader);
    waitpid(pid, NULL, 0);
    struct ring_record last;
    assert_int_equal(take_all(&reader, &last), LEAT_REC_THREADS * 13);
    assert_int_equal(ring_reader_lost(&reader), 3 * 13);
    ring_reader_close(&reader);
}

static void run_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, thread_records, NULL);
    pthread_join(thread, NULL);
}

/* Records and reads: threads one after the other, with a drain after each. */
static void threads_in_turn(void)
{
    struct ring_reader reader;
    struct ring_record last, records[2 * 13];
    leat_recorder_open();
    open_reader(&reader);
    for (int i = 0; i < 3 * LEAT_REC_THREADS; i++) {
        run_thread();
        if (take_all(&reader, &last) != 13)
            _exit(1);
    }
    if (reader.area->header.rings_used != 1)
        _exit(2);
    /* Two threads before a drain: a ring that was not read is not used again. */
    run_thread();
    run_thread();
    if (ring_reader_take(&reader, records, 26) != 26 || records[0].tid == records[25].tid)
        _exit(3);
    many_threads();
    if (take_all(&reader, &last) != LEAT_REC_THREADS * 13 || ring_reader_lost(&reader) != 3 * 13)
        _exit(4);
    record_many(1);
    if (take_all(&reader, &last) != 1 || ring_reader_lost(&reader) != 3 * 13)
        _exit(5);
}

static void rings_of_ended_threads_are_used_again(void **state)
{
    int status;
    waitpid(run_child(threads_in_turn), &status, 0);
    assert_int_equal(status, 0);
}

/* A thread that found no ring records as soon as one is free. */
static void wait_for_ring(void)
{
    struct ring_reader reader;
    struct ring_record last;
    leat_recorder_open();
    open_reader(&reader);
    many_threads();
    record_many(1);
    if (take_all(&reader, &last) != LEAT_REC_THREADS * 13 || ring_reader_lost(&reader) != 40)
        _exit(1);
    record_many(1);
    if (take_all(&reader, &last) != 1 || last.tid != getpid())
        _exit(2);
}

static void a_thread_without_a_ring_gets_a_free_one(void **state)
{
    int status;
    waitpid(run_child(wait_for_ring), &status, 0);
    assert_int_equal(status, 0);
}

static void close_and_open(void)
{
    struct ring_reader first, second;
    struct ring_record last;
    leat_recorder_open();
    open_reader(&first);
    run_thread();
    leat_recorder_close();
    leat_recorder_open();
    open_reader(&second);
    record_many(1);
    run_thread();
    if (take_all(&first, &last) != 13 || take_all(&second, &last) != 14)
        _exit(1);
    if (second.area->header.rings_used != 2)
        _exit(2);
}

static void rings_do_not_outlive_their_memory(void **state)
{
    int status;
    waitpid(run_child(close_and_open), &status, 0);
    assert_int_equal(status, 0);
}

static void record_until_stopped(void)
{
    leat_recorder_open();
    while (leat_recording())
        record_many(1);
}

static void recording_stops_on_request(void **state)
{
    pid_t pid = run_child(record_until_stopped);
    struct ring_reader reader;
    open_reader(&reader);
    ring_reader_stop(&reader);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ring_reader_close(&reader);
}

static void nest(void)
{
    leat_recorder_open();
    leat_recorder_nest(1);
    leat_record(LEAT_REC_OPTIMIZER, 0, 0, 0, 1, 2);
    leat_recorder_nest(-1);
    leat_record(LEAT_REC_OPTIMIZER, 0, 0, 0, 3, 4);
}

static void a_step_inside_a_backward_is_flagged(void **state)
{
    pid_t pid = run_child(nest);
    struct ring_reader reader;
    open_reader(&reader);
    waitpid(pid, NULL, 0);
    struct ring_record r[2];
    assert_int_equal(ring_reader_take(&reader, r, 2), 2);
    assert_int_equal(r[0].rec.flags, LEAT_REC_NESTED);
    assert_int_equal(r[1].rec.flags, 0);
    ring_reader_close(&reader);
}

static void without_leat(void)
{
    unsetenv("LEAT_SOCKET");
    if (leat_recorder_open() != -ENOENT || leat_recording())
        _exit(1);
    record_many(10);
    setenv("LEAT_SOCKET", "/nowhere/at/all", 1);
    if (leat_recorder_open() >= 0 || leat_recording())
        _exit(2);
    record_many(10);
}

static void recording_without_leat_is_harmless(void **state)
{
    int status;
    waitpid(run_child(without_leat), &status, 0);
    assert_int_equal(status, 0);
}

static void bad_memory_is_refused(void **state)
{
    struct ring_reader reader;
    struct leat_err err = {""};
    int fd = memfd_create("small", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(ring_reader_open(&reader, fd, &err), -LEAT_E_FOREIGN); /* it could shrink */
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    assert_int_equal(ring_reader_open(&reader, fd, &err), -LEAT_E_CORRUPT);
    assert_non_null(strstr(err.text, "4096"));
    assert_int_equal(ftruncate(fd, sizeof(struct rec_area)), 0);
    assert_int_equal(ring_reader_open(&reader, fd, &err), -LEAT_E_FOREIGN);
    uint64_t magic = REC_MAGIC;
    assert_int_equal(pwrite(fd, &magic, sizeof magic, 0), sizeof magic);
    assert_int_equal(ring_reader_open(&reader, fd, &err), -LEAT_E_VERSION);
    close(fd);
}

/* Producer and reader race over one ring many times its length: under TSan this is the proof of the
 * memory order. */
static void *race_reader(void *arg)
{
    struct ring_reader *reader = arg;
    struct ring_record records[512];
    uint64_t next = 0;
    while (next < 200000) {
        int n = ring_reader_take(reader, records, 512);
        for (int i = 0; i < n; i++)
            if (records[i].rec.t0_ns != next++)
                return (void *)1;
        if (n == 0 && ring_reader_lost(reader))
            return (void *)2;
    }
    return NULL;
}

static void no_record_is_torn(void **state)
{
    setenv("LEAT_SOCKET", socket_path, 1);
    assert_int_equal(leat_recorder_open(), 0);
    struct ring_reader reader;
    open_reader(&reader);
    pthread_t thread;
    pthread_create(&thread, NULL, race_reader, &reader);
    struct rec_ring *ring = &reader.area->rings[0];
    for (uint64_t i = 0; i < 200000; i++) {
        while (atomic_load(&ring->head) - atomic_load(&ring->tail) >= REC_RING_RECORDS)
            sched_yield();
        leat_record(LEAT_REC_FETCH, 0, 0, i, i, i);
    }
    void *result;
    pthread_join(thread, &result);
    assert_null(result);
    ring_reader_close(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_arrives),
        cmocka_unit_test(overflow_is_counted),
        cmocka_unit_test(memory_of_a_killed_process_is_read),
        cmocka_unit_test(a_forked_child_has_its_own_memory),
        cmocka_unit_test(threads_beyond_the_rings_are_counted),
        cmocka_unit_test(rings_of_ended_threads_are_used_again),
        cmocka_unit_test(a_thread_without_a_ring_gets_a_free_one),
        cmocka_unit_test(rings_do_not_outlive_their_memory),
        cmocka_unit_test(recording_stops_on_request),
        cmocka_unit_test(a_step_inside_a_backward_is_flagged),
        cmocka_unit_test(recording_without_leat_is_harmless),
        cmocka_unit_test(bad_memory_is_refused),
        cmocka_unit_test(no_record_is_torn),
    };
    return cmocka_run_group_tests(tests, open_socket, close_socket);
}
