/* test_loader.c: a loader in use: epochs, threads, kept batches, budgets, ways to end. */
#include "samples.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>

static void an_epoch_is_the_data(void **state)
{
    enum { N = 4099 };
    struct leat_source *source = numbered(N);
    for (int order = LEAT_ORDER_SEQUENTIAL; order <= LEAT_ORDER_WINDOW; order++)
        for (int drop_last = 0; drop_last < 2; drop_last++) {
            struct leat_loader *l =
                load(source, (struct leat_loader_options){.batch_size = 64,
                                                          .order = (enum leat_order)order,
                                                          .drop_last = drop_last,
                                                          .threads = 3});
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                static int seen[N];
                int64_t batches = 0, samples = 0;
                struct leat_batch *batch;
                memset(seen, 0, sizeof seen);
                must(leat_loader_start(l, epoch, &err));
                while ((batch = next(l))) {
                    assert_int_equal(batch->number, batches++);
                    assert_int_equal(batch->epoch, epoch);
                    samples += batch->samples;
                    check_rows(batch, seen);
                    leat_batch_unref(batch);
                }
                assert_null(next(l)); /* and stays over */
                assert_int_equal(batches, leat_loader_batches(l));
                assert_int_equal(samples, drop_last ? N / 64 * 64 : N);
                for (int i = 0; i < N; i++)
                    assert_in_range(seen[i], drop_last ? 0 : 1, 1);
            }
            leat_loader_close(l);
        }
    leat_source_unref(source);
}

/* A hash of all batches of an epoch, in their order. */
static uint64_t fingerprint(struct leat_loader *l, uint64_t epoch)
{
    uint64_t print = 0;
    struct leat_batch *batch;
    must(leat_loader_start(l, epoch, &err));
    while ((batch = next(l))) {
        for (int64_t i = 0; i < batch->samples; i++)
            print = print * UINT64_C(6364136223846793005) + (uint64_t)batch->indices[i] + 1;
        leat_batch_unref(batch);
    }
    return print;
}

static void threads_do_not_change_the_order(void **state)
{
    static const int threads[] = {LEAT_THREADS_NONE, 1, 2, 4, 13};
    struct leat_source *source = numbered(5000);
    uint64_t expected[2] = {0, 0};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
        for (int ahead = 0; ahead < 4; ahead += 3) {
            struct leat_loader *l =
                load(source, (struct leat_loader_options){.batch_size = 300,
                                                          .order = LEAT_ORDER_FULL,
                                                          .seed = 9,
                                                          .threads = threads[t],
                                                          .ahead = ahead});
            for (uint64_t epoch = 0; epoch < 2; epoch++) {
                uint64_t print = fingerprint(l, epoch);
                if (!expected[epoch])
                    expected[epoch] = print;
                assert_int_equal(print, expected[epoch]);
            }
            leat_loader_close(l);
        }
    assert_true(expected[0] != expected[1]);
    leat_source_unref(source);
}

static void kept_batches_never_change(void **state)
{
    enum { N = 3000, BATCH = 50 };
    static int seen[N];
    struct leat_source *source = numbered(N);
    struct leat_batch *kept[N / BATCH];
    struct leat_loader *l =
        load(source, (struct leat_loader_options){.batch_size = BATCH, .order = LEAT_ORDER_FULL});
    must(leat_loader_start(l, 0, &err));
    for (int i = 0; i < N / BATCH; i++)
        assert_non_null(kept[i] = next(l));
    assert_null(next(l));
    fingerprint(l, 1); /* another epoch runs through other slots */
    struct leat_loader_stats stats;
    leat_loader_stats(l, &stats);
    assert_int_equal(stats.slots_held, N / BATCH);
    leat_loader_close(l);
    leat_source_unref(source);
    /* They outlive the loader and the source. */
    for (int i = 0; i < N / BATCH; i++) {
        assert_int_equal(kept[i]->number, i);
        check_rows(kept[i], seen);
        leat_batch_unref(leat_batch_ref(kept[i]));
        leat_batch_unref(kept[i]);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
}

static uint64_t slot_bytes_of(struct leat_source *source, int64_t batch)
{
    struct leat_loader_stats stats;
    struct leat_loader *l = load(source, (struct leat_loader_options){.batch_size = batch});
    leat_loader_stats(l, &stats);
    leat_loader_close(l);
    return stats.slot_bytes;
}

static void the_budget_holds(void **state)
{
    struct leat_source *source = numbered(1000);
    struct leat_loader_options options = {.batch_size = 10};
    struct leat_batch *kept[5], *batch;
    struct leat_loader_stats stats;
    options.memory_bytes = 5 * slot_bytes_of(source, 10) + 100;
    struct leat_loader *l = load(source, options);
    must(leat_loader_start(l, 0, &err));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(leat_loader_nearly_full(l), i >= 4); /* a quarter of 5 is kept back: 1 */
        assert_non_null(kept[i] = next(l));
    }
    assert_int_equal(leat_loader_next(l, -1, &batch, &err), -LEAT_E_FULL);
    assert_non_null(strstr(err.text, "budget"));
    leat_loader_stats(l, &stats);
    assert_int_equal(stats.slots, 5);
    assert_int_equal(stats.full, 1);
    assert_true(stats.memory_bytes <= options.memory_bytes);
    int64_t first = kept[3]->indices[0];
    leat_batch_unref(kept[0]); /* one slot: the next batch comes, in order, none lost */
    assert_non_null(kept[0] = next(l));
    assert_int_equal(kept[0]->number, 5);
    assert_int_equal(kept[3]->indices[0], first);
    for (int i = 0; i < 5; i++)
        leat_batch_unref(kept[i]);
    leat_loader_close(l);

    options.memory_bytes = 100;
    assert_int_equal(leat_loader_new(source, &options, &l, &err), -LEAT_E_FULL);
    leat_source_unref(source);
}

/* Slots made for a consumer that keeps batches are freed when they are released. */
static void surplus_slots_are_freed(void **state)
{
    struct leat_source *source = numbered(1000);
    struct leat_batch *kept[50];
    struct leat_loader_stats stats;
    struct leat_loader *l =
        load(source, (struct leat_loader_options){.batch_size = 10, .ahead = 3});
    must(leat_loader_start(l, 0, &err));
    for (int i = 0; i < 50; i++)
        assert_non_null(kept[i] = next(l));
    leat_loader_stats(l, &stats);
    assert_true(stats.slots >= 50);
    for (int i = 0; i < 50; i++)
        leat_batch_unref(kept[i]);
    leat_loader_stats(l, &stats);
    assert_int_equal(stats.slots, 3 + 2);
    assert_int_equal(stats.slots_held, 0);
    leat_loader_close(l);
    leat_source_unref(source);
}

static void *release_later(void *batch)
{
    usleep(30000);
    leat_batch_unref(batch);
    return NULL;
}

static void a_full_loader_may_wait(void **state)
{
    struct leat_source *source = numbered(100);
    struct leat_loader_options options = {.batch_size = 10, .when_full = LEAT_FULL_WAIT};
    options.memory_bytes = 2 * slot_bytes_of(source, 10) + 100;
    struct leat_loader *l = load(source, options);
    must(leat_loader_start(l, 0, &err));
    struct leat_batch *a = next(l), *b = next(l), *c;
    assert_int_equal(leat_loader_next(l, 20, &c, &err), -ETIMEDOUT);
    pthread_t thread;
    pthread_create(&thread, NULL, release_later, a);
    c = next(l);
    assert_int_equal(c->number, 2);
    pthread_join(thread, NULL);
    leat_batch_unref(b);
    leat_batch_unref(c);
    leat_loader_close(l);
    leat_source_unref(source);
}

/* Many threads hold and release what one consumer gives them. */
struct mailbox {
    pthread_mutex_t lock;
    struct leat_batch *batches[8];
    int done, dropped;
};

static void *drop_batches(void *argument)
{
    struct mailbox *m = argument;
    for (;;) {
        struct leat_batch *batch = NULL;
        pthread_mutex_lock(&m->lock);
        int done = m->done;
        for (int i = 0; i < 8 && !batch; i++) {
            batch = m->batches[i];
            m->batches[i] = NULL;
        }
        m->dropped += batch != NULL;
        pthread_mutex_unlock(&m->lock);
        if (!batch && done)
            return NULL;
        leat_batch_unref(batch);
    }
}

static void batches_are_dropped_by_any_thread(void **state)
{
    enum { N = 20000 };
    static int seen[N];
    struct mailbox m = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[2];
    struct leat_source *source = numbered(N);
    struct leat_loader *l =
        load(source, (struct leat_loader_options){
                         .batch_size = 20, .order = LEAT_ORDER_FULL, .threads = 2, .ahead = 4});
    struct leat_batch *batch;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, drop_batches, &m);
    must(leat_loader_start(l, 0, &err));
    while ((batch = next(l))) {
        check_rows(batch, seen);
        while (batch) {
            pthread_mutex_lock(&m.lock);
            for (int i = 0; i < 8 && batch; i++)
                if (!m.batches[i]) {
                    m.batches[i] = batch;
                    batch = NULL;
                }
            pthread_mutex_unlock(&m.lock);
        }
    }
    pthread_mutex_lock(&m.lock);
    m.done = 1;
    pthread_mutex_unlock(&m.lock);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(m.dropped, N / 20);
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    leat_loader_close(l);
    leat_source_unref(source);
}

static void *stop_later(void *loader)
{
    usleep(20000);
    leat_loader_stop(loader);
    return NULL;
}

static void a_waiting_consumer_is_stopped(void **state)
{
    struct faulty_source *slow = faulty(100, NULL);
    slow->slow_us = 100000;
    struct leat_loader *l =
        load(&slow->base, (struct leat_loader_options){.batch_size = 50, .no_help = 1});
    struct leat_batch *batch;
    pthread_t thread;
    must(leat_loader_start(l, 0, &err));
    pthread_create(&thread, NULL, stop_later, l);
    assert_int_equal(leat_loader_next(l, -1, &batch, &err), -ECANCELED);
    assert_int_equal(leat_loader_next(l, -1, &batch, &err), -ECANCELED);
    pthread_join(thread, NULL);
    slow->slow_us = 0;
    must(leat_loader_start(l, 0, &err)); /* and goes on after a new start */
    assert_non_null(batch = next(l));
    leat_batch_unref(batch);
    leat_loader_close(l);
    leat_source_unref(&slow->base);
}

static void a_time_limit_is_kept(void **state)
{
    struct faulty_source *slow = faulty(100, NULL);
    slow->slow_us = 50000;
    struct leat_loader *l =
        load(&slow->base, (struct leat_loader_options){.batch_size = 4, .no_help = 1});
    struct leat_batch *batch;
    must(leat_loader_start(l, 0, &err));
    assert_int_equal(leat_loader_next(l, 0, &batch, &err), -ETIMEDOUT);
    assert_int_equal(leat_loader_next(l, 5, &batch, &err), -ETIMEDOUT);
    assert_non_null(batch = next(l)); /* nothing was lost by it */
    assert_int_equal(batch->number, 0);
    leat_batch_unref(batch);
    leat_loader_close(l);
    leat_source_unref(&slow->base);
}

/* ---- one slow sample --------------------------------------------------------------------------
 *
 * Sample i is the number i. One of them is not read before the gate opens.
 */
enum { GATED = 12, SHUT_OUT = 1 };

struct gated_source {
    struct leat_source base;
    atomic_int open;
    atomic_int read[GATED];
};

static int gated_read(struct leat_source *source, const struct source_request *request,
                      struct source_report *report, struct leat_err *why)
{
    struct gated_source *g = (struct gated_source *)source;
    for (size_t i = 0; i < request->count; i++) {
        int64_t index = request->indices[i];
        while (index == SHUT_OUT && !atomic_load(&g->open))
            usleep(1000);
        memcpy(request->places[0] + i * sizeof index, &index, sizeof index);
        atomic_fetch_add(&g->read[index], 1);
    }
    return 0;
}

static int gated_count(struct gated_source *g)
{
    int count = 0;
    for (int i = 0; i < GATED; i++)
        count += atomic_load(&g->read[i]);
    return count;
}

/* Threads take samples, not batches: the other thread reads the rest of the slow sample's batch and
 * the batches after it. */
static void a_slow_sample_does_not_delay_others(void **state)
{
    static const struct source_ops ops = {.read = gated_read, .done = faulty_done};
    struct gated_source *g = (struct gated_source *)source_new(sizeof *g, &ops);
    struct leat_batch *batch;
    int64_t shape[] = {GATED};
    must(source_add_field(&g->base, "number", LEAT_INT64, 8, 1, shape, NULL, &err));
    g->base.sample_ns = 1e6; /* pieces of one */
    struct leat_loader *l =
        load(&g->base, (struct leat_loader_options){
                           .batch_size = GATED / 3, .threads = 2, .ahead = 3, .no_help = 1});
    must(leat_loader_start(l, 0, &err));
    assert_int_equal(leat_loader_next(l, 0, &batch, &err), -ETIMEDOUT);
    for (int i = 0; i < 60000 && gated_count(g) < GATED - 1; i++)
        usleep(1000);
    for (int i = 0; i < GATED; i++)
        assert_int_equal(atomic_load(&g->read[i]), i != SHUT_OUT);
    assert_int_equal(leat_loader_next(l, 0, &batch, &err), -ETIMEDOUT); /* in order all the same */
    atomic_store(&g->open, 1);
    for (int64_t number = 0; number < 3; number++) {
        assert_non_null(batch = next(l));
        assert_int_equal(batch->number, number);
        for (int64_t i = 0; i < batch->samples; i++)
            assert_int_equal(((int64_t *)batch->data[0])[i], number * (GATED / 3) + i);
        leat_batch_unref(batch);
    }
    assert_null(next(l));
    leat_loader_close(l);
    leat_source_unref(&g->base);
}

/* A slow consumer that still holds the batch before gets the same memory again and again. */
static void a_slow_consumer_costs_no_memory(void **state)
{
    enum { AHEAD = 3, BATCHES = 200 };
    struct leat_source *source = numbered(BATCHES * 10);
    struct leat_loader *l =
        load(source, (struct leat_loader_options){
                         .batch_size = 10, .order = LEAT_ORDER_FULL, .threads = 2, .ahead = AHEAD});
    struct leat_batch *held = NULL, *batch;
    uint64_t memory_bytes = 0;
    int batches = 0;
    must(leat_loader_start(l, 0, &err));
    for (; (batch = next(l)); batches++) {
        struct leat_loader_stats s;
        leat_batch_unref(held);
        held = batch;
        usleep(500); /* the threads have finished all batches ahead */
        leat_loader_stats(l, &s);
        assert_in_range(s.slots, 1, AHEAD + 2);
        assert_int_equal(s.slots_held, 1);
        if (batches == 2 * AHEAD)
            memory_bytes = s.memory_bytes;
        if (batches > 2 * AHEAD)
            assert_int_equal(s.memory_bytes, memory_bytes);
        assert_true(s.memory_bytes <= (AHEAD + 2) * s.slot_bytes);
    }
    assert_int_equal(batches, BATCHES);
    leat_batch_unref(held);
    leat_loader_close(l);
    leat_source_unref(source);
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void a_thousand_loaders_leak_nothing(void **state)
{
    int fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    struct leat_source *source = numbered(500);
    for (int i = 0; i < 1000; i++) {
        struct leat_loader *l =
            load(source, (struct leat_loader_options){
                             .batch_size = 7, .order = LEAT_ORDER_FULL, .threads = 1 + i % 3});
        if (i % 5) /* some are closed without a start, others with batches made and in progress */
            must(leat_loader_start(l, (uint64_t)i, &err));
        for (int k = 0; k < i % 4 && i % 5; k++)
            leat_batch_unref(next(l));
        leat_loader_close(l);
    }
    leat_source_unref(source);
    assert_int_equal(count_entries("/proc/self/fd"), fds);
    assert_int_equal(count_entries("/proc/self/task"), threads);
}

static void start_discards_earlier_batches(void **state)
{
    struct leat_source *source = numbered(1000);
    struct leat_loader *l = load(
        source,
        (struct leat_loader_options){.batch_size = 10, .order = LEAT_ORDER_FULL, .threads = 2});
    uint64_t expected = fingerprint(l, 0);
    for (int i = 0; i < 50; i++) {
        must(leat_loader_start(l, (uint64_t)i, &err));
        for (int k = 0; k < i % 7; k++)
            leat_batch_unref(next(l));
    }
    assert_int_equal(fingerprint(l, 0), expected);
    leat_loader_close(l);
    leat_source_unref(source);
}

/* What a child may do: continue, drop the loader, or nothing. Its exit status shows whether it was
 * right. */
static int child_goes_on(struct leat_loader *l, struct leat_batch *held, int first)
{
    struct leat_batch *batch;
    int numbers = first, got;
    while ((got = leat_loader_next(l, 10000, &batch, &err)) > 0) {
        if (batch->number != numbers++)
            return 2;
        for (int64_t i = 0; i < batch->samples; i++)
            if (((int64_t *)batch->data[1])[i] != batch->indices[i])
                return 3;
        leat_batch_unref(batch);
    }
    if (got < 0 || numbers != 100 || ((int64_t *)held->data[1])[0] != held->indices[0])
        return 4;
    leat_batch_unref(held);
    leat_loader_close(l);
    return 0;
}

static int child_drops(struct leat_loader *l, struct leat_batch *held, int first)
{
    leat_batch_unref(held);
    leat_loader_close(l);
    return 0;
}

static int child_leaves(struct leat_loader *l, struct leat_batch *held, int first)
{
    return 0;
}

static void children_continue_or_exit(void **state)
{
    static int (*const children[])(struct leat_loader *, struct leat_batch *,
                                   int) = {child_goes_on, child_drops, child_leaves};
    skip_with_sanitizers();
    struct leat_source *source = numbered(10000);
    for (int round = 0; round < 30; round++) {
        struct leat_loader *l = load(
            source, (struct leat_loader_options){
                        .batch_size = 100, .order = LEAT_ORDER_FULL, .threads = 2, .ahead = 5});
        static int seen[10000];
        memset(seen, 0, sizeof seen);
        must(leat_loader_start(l, 0, &err));
        struct leat_batch *held = NULL, *batch;
        int first = round % 10 + 1;
        for (int i = 0; i < first; i++) {
            leat_batch_unref(held);
            held = next(l);
            check_rows(held, seen);
        }
        pid_t pid = fork(); /* the threads are at work */
        if (pid == 0)
            _exit(children[round % 3](l, held, first));
        int status;
        leat_batch_unref(held);
        while ((batch = next(l))) {
            check_rows(batch, seen);
            leat_batch_unref(batch);
        }
        for (int i = 0; i < 10000; i++)
            assert_int_equal(seen[i], 1);
        leat_loader_close(l);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    leat_source_unref(source);
}

static void batches_by_given_indices(void **state)
{
    enum { N = 1000 };
    static int seen[N];
    struct leat_source *source = numbered(N);
    struct leat_loader *l =
        load(source, (struct leat_loader_options){
                         .batch_size = 10, .order = LEAT_ORDER_GIVEN, .threads = 2, .ahead = 4});
    struct leat_batch *batch;
    struct leat_loader_state where;
    assert_null(next(l)); /* nothing was submitted */
    int submitted = 0, delivered = 0;
    while (delivered < 200) {
        int64_t indices[10];
        int count = submitted % 2 ? 7 : 3;
        for (int i = 0; i < count; i++)
            indices[i] = (submitted * 5 + i * (i % 2 ? 1 : 2) + (submitted % 2 ? 1 : 0)) % N;
        int taken = submitted < 200 ? leat_loader_submit(l, indices, count, &err) : 0;
        if (taken) {
            assert_int_equal(taken, 1);
            submitted++;
            continue;
        }
        assert_non_null(batch = next(l));
        assert_int_equal(batch->number, delivered);
        assert_int_equal(batch->samples, delivered % 2 ? 7 : 3);
        assert_int_equal(batch->indices[0], (delivered * 5 + (delivered % 2 ? 1 : 0)) % N);
        check_rows(batch, seen);
        leat_batch_unref(batch);
        delivered++;
    }
    int64_t outside[] = {0, N}, below[] = {-1};
    assert_int_equal(leat_loader_submit(l, outside, 2, &err), -ERANGE);
    assert_int_equal(leat_loader_submit(l, below, 1, &err), -ERANGE);
    assert_int_equal(leat_loader_submit(l, outside, 11, &err), -LEAT_E_USAGE);
    assert_int_equal(leat_loader_state(l, &where, &err), -LEAT_E_USAGE);
    assert_null(next(l));
    leat_loader_close(l);
    leat_source_unref(source);
}

static void the_thread_count_can_change(void **state)
{
    struct leat_source *source = numbered(20000);
    struct leat_loader *l = load(
        source,
        (struct leat_loader_options){.batch_size = 10, .order = LEAT_ORDER_FULL, .threads = 1});
    uint64_t expected = fingerprint(l, 0), print = 0;
    struct leat_batch *batch;
    must(leat_loader_start(l, 0, &err));
    while ((batch = next(l))) {
        for (int64_t i = 0; i < batch->samples; i++)
            print = print * UINT64_C(6364136223846793005) + (uint64_t)batch->indices[i] + 1;
        if (batch->number % 50 == 0)
            must(leat_loader_set_threads(l, 1 + (int)(batch->number / 50) % 5, &err));
        leat_batch_unref(batch);
    }
    assert_int_equal(print, expected);
    assert_int_equal(leat_loader_set_threads(l, 0, &err), -LEAT_E_USAGE);
    leat_loader_close(l);
    leat_source_unref(source);
}

static void an_empty_source_is_over_at_once(void **state)
{
    struct leat_source *source = numbered(0);
    for (int order = 0; order < LEAT_ORDER_GIVEN; order++) {
        struct leat_loader *l = load(
            source, (struct leat_loader_options){.batch_size = 4, .order = (enum leat_order)order});
        must(leat_loader_start(l, 0, &err));
        assert_null(next(l));
        assert_int_equal(leat_loader_batches(l), 0);
        leat_loader_close(l);
    }
    leat_source_unref(source);
}

static void wrong_options_are_refused(void **state)
{
    static const struct leat_loader_options wrong[] = {
        {.batch_size = 0 },
        {.batch_size = -5},
        {.batch_size = 1,  .threads = -2},
        {.batch_size = 1,                .threads = 1000},
        {.batch_size = 1,.threads = LEAT_THREADS_NONE, .no_help = 1},
        {.batch_size = 1,  .ahead = -1},
        {.batch_size = 1,    .rank = 2, .world_size = 2},
        {.batch_size = 1,  .rank = -1},
        {.batch_size = 1,                .order = (enum leat_order)17},
        {.batch_size = 1,    .window = -4},
        {.batch_size = 1,                .mix = 100000},
        {.batch_size = 1,     .on_error = (enum leat_on_error)3},
        {.batch_size = INT64_MAX },
    };
    struct leat_source *source = numbered(10);
    struct leat_loader *l = NULL;
    struct leat_batch *batch;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_true(leat_loader_new(source, &wrong[i], &l, &err) < 0);
        assert_true(strlen(err.text) > 10 && err.text[strlen(err.text) - 1] == '.');
    }
    l = load(source, (struct leat_loader_options){.batch_size = 1});
    assert_int_equal(leat_loader_next(l, -1, &batch, &err), -LEAT_E_USAGE); /* not started */
    leat_loader_close(l);
    leat_loader_close(NULL);
    leat_batch_unref(NULL);
    leat_source_unref(source);
}

static void the_statistics_add_up(void **state)
{
    struct leat_source *source = numbered(1000);
    struct leat_loader *l =
        load(source, (struct leat_loader_options){.batch_size = 30, .threads = 2, .ahead = 3});
    fingerprint(l, 0);
    struct leat_loader_stats s;
    leat_loader_stats(l, &s);
    assert_int_equal(s.batches, 34);
    assert_int_equal(s.samples, 1000);
    assert_int_equal(s.bytes, 1000 * (5 * 4 + 8));
    assert_int_equal(s.threads, 2);
    assert_int_equal(s.ahead, 3);
    assert_true(s.wait_ns <= s.elapsed_ns && s.help_ns <= s.wait_ns);
    assert_true(s.order_ns + s.read_ns > 0 && s.waits <= s.batches + 1);
    assert_true(s.ready_sum <= 3 * s.batches);
    assert_string_equal(leat_source_text(source),
                        "memory: 1000 samples of wide float32[5], number int64");
    assert_string_equal(leat_source_decode(source), "none");
    leat_loader_close(l);
    leat_source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_the_data),
        cmocka_unit_test(threads_do_not_change_the_order),
        cmocka_unit_test(kept_batches_never_change),
        cmocka_unit_test(the_budget_holds),
        cmocka_unit_test(surplus_slots_are_freed),
        cmocka_unit_test(a_full_loader_may_wait),
        cmocka_unit_test(batches_are_dropped_by_any_thread),
        cmocka_unit_test(a_waiting_consumer_is_stopped),
        cmocka_unit_test(a_time_limit_is_kept),
        cmocka_unit_test(a_slow_sample_does_not_delay_others),
        cmocka_unit_test(a_slow_consumer_costs_no_memory),
        cmocka_unit_test(a_thousand_loaders_leak_nothing),
        cmocka_unit_test(start_discards_earlier_batches),
        cmocka_unit_test(children_continue_or_exit),
        cmocka_unit_test(batches_by_given_indices),
        cmocka_unit_test(the_thread_count_can_change),
        cmocka_unit_test(an_empty_source_is_over_at_once),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(the_statistics_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
