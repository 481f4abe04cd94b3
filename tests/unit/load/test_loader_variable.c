/* test_loader_variable.c: samples of different length, from the arena they are read into to what
 * the batch shows of them.
 *
 * Sample i has three fields: "number" (fixed), "pairs" with (i * 7) % 13 rows of int32[2], and
 * "text" with the decimal digits of i, i % 5 times. Each batch can so be checked by itself. */
#include "samples.h"

#include "base/mem.h"
#include "load/batch_layout.h"
#include "load/engine.h"

#include <pthread.h>
#include <sys/wait.h>

enum { N = 1009, BATCH = 32 };

struct worded_source {
    struct leat_source base;
    int (*bad)(int64_t index);
    int64_t huge, huge_too; /* the text of these samples is as long as huge_bytes */
    uint64_t huge_bytes;
    atomic_int refused;          /* alloc() failed */
    struct leat_batch *released; /* released when it fails for the second time */
};

static int64_t pairs_of(int64_t index)
{
    return index * 7 % 13;
}

static int32_t pair_at(int64_t index, int64_t row, int column)
{
    return (int32_t)(index * 1000 + row * 2 + column);
}

static int64_t text_of(int64_t index, char *ret_text)
{
    char digits[24];
    *ret_text = 0;
    snprintf(digits, sizeof digits, "%lld", (long long)index);
    for (int64_t i = 0; i < index % 5; i++)
        strcat(ret_text, digits);
    return (int64_t)strlen(ret_text);
}

/* 0, or -ENOMEM. */
static int set_sample(struct worded_source *w, const struct source_request *request, size_t i)
{
    int64_t index = request->indices[i];
    struct leat_span *pairs = &((struct leat_span *)(void *)request->places[1])[i];
    struct leat_span *text = &((struct leat_span *)(void *)request->places[2])[i];
    int32_t *rows = request->alloc(request, (uint64_t)pairs_of(index) * 2 * sizeof *rows);
    char digits[128];
    uint64_t bytes = (uint64_t)text_of(index, digits);
    int huge = index == w->huge || index == w->huge_too;
    if (huge)
        bytes = w->huge_bytes;
    char *arena = request->alloc(request, bytes);
    if (!rows || !arena) {
        if (atomic_fetch_add(&w->refused, 1) == 1)
            leat_batch_unref(w->released);
        return -ENOMEM;
    }
    assert_int_equal((uintptr_t)rows % 64 + (uintptr_t)arena % 64, 0);
    ((int64_t *)(void *)request->places[0])[i] = index;
    for (int64_t k = 0; k < pairs_of(index) * 2; k++)
        rows[k] = pair_at(index, k / 2, (int)(k % 2));
    *pairs = (struct leat_span){rows, pairs_of(index)};
    if (huge)
        memset(arena, 'h', bytes);
    else
        memcpy(arena, digits, bytes);
    *text = (struct leat_span){arena, (int64_t)bytes};
    return 0;
}

static int worded_read(struct leat_source *source, const struct source_request *request,
                       struct source_report *report, struct leat_err *why)
{
    struct worded_source *w = (struct worded_source *)source;
    for (size_t i = 0; i < request->count; i++) {
        char text[64];
        snprintf(text, sizeof text, "file %lld is torn", (long long)request->indices[i]);
        if (w->bad && w->bad(request->indices[i]))
            report->bad(report, i, -LEAT_E_CORRUPT, text);
        else if (set_sample(w, request, i) < 0)
            report->bad(report, i, -ENOMEM, "No memory.");
    }
    return 0;
}

static void worded_done(struct leat_source *source) {}

static struct worded_source *worded(int64_t count, int (*bad)(int64_t index))
{
    static const struct source_ops ops = {.read = worded_read, .done = worded_done};
    struct worded_source *w = (struct worded_source *)source_new(sizeof *w, &ops);
    int64_t shape[] = {count, 2};
    must(source_add_field(&w->base, "number", LEAT_INT64, 8, 1, shape, NULL, &err));
    must(source_add_field(&w->base, "pairs", LEAT_INT32, 4, 2, shape, NULL, &err));
    must(source_add_field(&w->base, "text", LEAT_UINT8, 1, 1, shape, NULL, &err));
    w->base.field[1].variable = w->base.field[2].variable = 1;
    w->bad = bad;
    w->huge = w->huge_too = -1;
    w->base.sample_ns = 5000; /* several pieces a batch */
    return w;
}

static int64_t at_most(int64_t items, int64_t most)
{
    return most && items > most ? most : items;
}

static void check_pair(const int32_t *row, int64_t index, int64_t at)
{
    assert_int_equal(row[0], pair_at(index, at, 0));
    assert_int_equal(row[1], pair_at(index, at, 1));
}

/* Checks all that a batch shows against its indices. */
static void check_words(const struct leat_batch *batch, const struct leat_layout *layout)
{
    const int64_t *number = batch->data[0];
    const struct leat_span *spans = batch->data[1], *texts = batch->data[2];
    const int32_t *pairs = batch->data[1];
    const char *text = batch->data[2];
    int pad = layout->kind == LEAT_LAYOUT_PAD, list = layout->kind == LEAT_LAYOUT_LIST;
    int64_t all[3] = {0}, longest[3] = {0};
    assert_null(batch->lengths[0]);
    for (int64_t i = 0; i < batch->samples; i++) {
        char expected[128];
        int64_t index = batch->indices[i], rows = at_most(pairs_of(index), layout->most);
        int64_t letters = at_most(text_of(index, expected), layout->most);
        assert_int_equal(number[i], index);
        assert_int_equal(batch->lengths[1][i], rows);
        assert_int_equal(batch->lengths[2][i], letters);
        const int32_t *own =
            list ? spans[i].data : pairs + 2 * (pad ? i * batch->items[1] : all[1]);
        const char *said = list ? texts[i].data : text + (pad ? i * batch->items[2] : all[2]);
        for (int64_t k = 0; k < rows; k++)
            check_pair(own + 2 * k, index, k);
        assert_memory_equal(said, expected, (size_t)letters);
        for (int64_t k = rows * 2; pad && k < batch->items[1] * 2; k++)
            assert_int_equal(own[k], (int)layout->value);
        for (int64_t k = letters; pad && k < batch->items[2]; k++)
            assert_int_equal(said[k], (int)layout->value);
        all[1] += rows;
        all[2] += letters;
        longest[1] = rows > longest[1] ? rows : longest[1];
        longest[2] = letters > longest[2] ? letters : longest[2];
    }
    for (int f = 1; f < 3; f++) {
        int64_t unit = layout->multiple ? layout->multiple : 1;
        int64_t padded = (longest[f] + unit - 1) / unit * unit;
        assert_int_equal(batch->items[f], layout->kind == LEAT_LAYOUT_CONCAT ? all[f]
                                          : pad                              ? padded
                                                                             : longest[f]);
    }
}

static const struct leat_layout layouts[] = {
    {.kind = LEAT_LAYOUT_LIST  },
    {                       .kind = LEAT_LAYOUT_LIST,                 .most = 3},
    {                       .kind = LEAT_LAYOUT_PAD                         },
    { .kind = LEAT_LAYOUT_PAD,             .value = 77, .multiple = 8},
    {                                   .kind = LEAT_LAYOUT_PAD,                .value = 1, .multiple = 5, .most = 7},
    {          .kind = LEAT_LAYOUT_CONCAT                         },
    {             .kind = LEAT_LAYOUT_CONCAT, .most = 4},
};

enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static struct leat_loader_options asked(const struct leat_layout *layout, int threads)
{
    return (struct leat_loader_options){
        .batch_size = BATCH, .order = LEAT_ORDER_FULL, .threads = threads, .layout = *layout};
}

/* Each sample once, each way, for any number of threads. */
static void every_layout_is_exact(void **state)
{
    for (int n = 0; n < LAYOUTS * 3; n++) {
        static int seen[N];
        static const int threads[] = {LEAT_THREADS_NONE, 1, 4};
        const struct leat_layout *layout = &layouts[n / 3];
        struct worded_source *w = worded(N, NULL);
        struct leat_loader *l = load(&w->base, asked(layout, threads[n % 3]));
        struct leat_batch *batch;
        memset(seen, 0, sizeof seen);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            must(leat_loader_start(l, epoch, &err));
            while ((batch = next(l))) {
                check_words(batch, layout);
                for (int64_t i = 0; i < batch->samples; i++)
                    seen[batch->indices[i]]++;
                leat_batch_unref(batch);
            }
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], 2);
        leat_loader_close(l);
        leat_source_unref(&w->base);
    }
}

/* Also after the loader is closed. */
static void kept_batches_never_change(void **state)
{
    struct leat_batch *kept[3][N / BATCH + 1];
    struct worded_source *w = worded(N, NULL);
    for (int n = 0; n < 3; n++) {
        const struct leat_layout *layout = &layouts[n * 2 + 1];
        struct leat_loader *l = load(&w->base, asked(layout, 3));
        must(leat_loader_start(l, 0, &err));
        for (int i = 0; i <= N / BATCH; i++)
            kept[n][i] = next(l);
        assert_null(next(l));
        must(leat_loader_start(l, 1, &err)); /* others are made meanwhile */
        leat_batch_unref(next(l));
        leat_loader_close(l);
    }
    leat_source_unref(&w->base);
    for (int n = 0; n < 3; n++)
        for (int i = 0; i <= N / BATCH; i++) {
            check_words(kept[n][i], &layouts[n * 2 + 1]);
            leat_batch_unref(kept[n][i]);
        }
}

static void each_field_may_have_its_own(void **state)
{
    struct leat_layout each[3] = {
        {0                      },
        {.kind = LEAT_LAYOUT_PAD, .value = -1},
        {0                      }
    };
    struct worded_source *w = worded(N, NULL);
    struct leat_loader_options options = asked(&layouts[5], 2);
    options.layouts = each;
    struct leat_loader *l = load(&w->base, options);
    memset(each, 0xff, sizeof each); /* it was copied */
    struct leat_batch *batch;
    must(leat_loader_start(l, 0, &err));
    while ((batch = next(l))) {
        const struct leat_span *texts = batch->data[2];
        const int32_t *pairs = batch->data[1];
        for (int64_t i = 0; i < batch->samples; i++) {
            char expected[128];
            int64_t index = batch->indices[i], rows = pairs_of(index);
            assert_int_equal(texts[i].items, text_of(index, expected));
            assert_memory_equal(texts[i].data, expected, (size_t)texts[i].items);
            const int32_t *own = pairs + 2 * i * batch->items[1];
            for (int64_t k = 0; k < batch->items[1] * 2; k++)
                assert_int_equal(own[k], k < rows * 2 ? pair_at(index, k / 2, (int)(k % 2)) : -1);
        }
        leat_batch_unref(batch);
    }
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

/* ---- bad samples ------------------------------------------------------------------------------
 */
static int is_bad(int64_t index)
{
    return index % 50 == 7;
}

/* A replacement has its own length. */
static void repaired_batches_are_exact(void **state)
{
    for (int n = 0; n < LAYOUTS * 3; n++) {
        const struct leat_layout *layout = &layouts[n / 3];
        struct worded_source *w = worded(N, is_bad);
        struct leat_loader_options options = asked(layout, 3);
        int64_t samples = 0, indices[BATCH];
        options.on_error = n % 3 == 0 ? LEAT_ERROR_REPLACE : LEAT_ERROR_SKIP;
        options.order = n % 3 == 2 ? LEAT_ORDER_GIVEN : LEAT_ORDER_FULL;
        struct leat_loader *l = load(&w->base, options);
        struct leat_batch *batch;
        must(leat_loader_start(l, 0, &err));
        for (int64_t first = 0;; first += BATCH) {
            for (int64_t i = 0; i < BATCH; i++)
                indices[i] = first + i;
            if (n % 3 == 2 && first + BATCH <= N)
                must(leat_loader_submit(l, indices, BATCH, &err));
            if (!(batch = next(l)))
                break;
            check_words(batch, layout);
            for (int64_t i = 0; i < batch->samples; i++)
                assert_false(is_bad(batch->indices[i]));
            samples += batch->samples;
            leat_batch_unref(batch);
        }
        struct leat_loader_stats stats;
        leat_loader_stats(l, &stats);
        int64_t given = N / BATCH * BATCH;
        assert_in_range(stats.errors, n % 3 == 2 ? 20 : 21, 40); /* a draw may be bad too */
        assert_int_equal(samples, n % 3 == 0 ? N : n % 3 == 1 ? N - 21 : given - 20);
        leat_loader_close(l);
        leat_source_unref(&w->base);
    }
}

/* ---- memory -----------------------------------------------------------------------------------
 */

/* Memory of the loader, checked against its budget. */
static uint64_t check_memory(const struct leat_loader *l)
{
    struct leat_loader_stats stats;
    leat_loader_stats(l, &stats);
    assert_true(stats.memory_bytes <= stats.memory_most_bytes);
    return stats.memory_bytes;
}

/* A budget that does not fit all batches made ahead: they are discarded and made again, and the
 * consumer does not notice, also with bad samples. */
static void a_small_budget_is_enough(void **state)
{
    int refused = 0;
    for (int n = 0; n < LAYOUTS * 2; n++) {
        static int seen[N];
        const struct leat_layout *layout = &layouts[n / 2];
        struct worded_source *w = worded(N, n % 2 ? is_bad : NULL);
        struct leat_loader_options options = asked(layout, 3);
        options.ahead = 8;
        options.on_error = LEAT_ERROR_SKIP;
        options.memory_bytes = 130 << 10;
        struct leat_loader *l = load(&w->base, options);
        struct leat_batch *batch;
        memset(seen, 0, sizeof seen);
        must(leat_loader_start(l, 0, &err));
        while ((batch = next(l))) {
            check_memory(l);
            check_words(batch, layout);
            for (int64_t i = 0; i < batch->samples; i++)
                seen[batch->indices[i]]++;
            leat_batch_unref(batch);
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], !(n % 2 && is_bad(i)));
        struct leat_loader_stats stats;
        leat_loader_stats(l, &stats);
        assert_int_equal(stats.errors, n % 2 ? 21 : 0);
        refused += w->refused;
        leat_loader_close(l);
        leat_source_unref(&w->base);
    }
    assert_true(refused > 0); /* else this tests nothing */
}

static void keeping_too_many_batches_fails(void **state)
{
    struct worded_source *w = worded(N, NULL);
    struct leat_loader_options options = asked(&layouts[2], 2);
    options.memory_bytes = 300 << 10;
    struct leat_loader *l = load(&w->base, options);
    struct leat_batch *kept[N / BATCH + 1] = {NULL}, *batch;
    int got, count = 0, full = 0, delivered = 0;
    must(leat_loader_start(l, 0, &err));
    while ((got = leat_loader_next(l, -1, &batch, &err)) != 0) {
        check_memory(l);
        if (got > 0) {
            kept[count++] = batch;
            delivered++;
            continue;
        }
        assert_int_equal(got, -LEAT_E_FULL);
        assert_non_null(strstr(err.text, "still held"));
        assert_true(count > 0);
        full++;
        while (count) {
            check_words(kept[--count], &layouts[2]);
            leat_batch_unref(kept[count]);
        }
    }
    while (count)
        leat_batch_unref(kept[--count]);
    assert_true(full > 0);
    assert_int_equal(delivered, N / BATCH + 1);
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

static void *release_later(void *batch)
{
    usleep(20000);
    leat_batch_unref(batch);
    return NULL;
}

static void when_full_wait_waits(void **state)
{
    struct worded_source *w = worded(N, NULL);
    struct leat_loader_options options = asked(&layouts[2], 2);
    options.memory_bytes = 130 << 10;
    options.when_full = LEAT_FULL_WAIT;
    struct leat_loader *l = load(&w->base, options);
    struct leat_batch *batch, *before = NULL;
    int delivered = 0;
    must(leat_loader_start(l, 0, &err));
    for (;;) { /* two at a time: more than fit */
        pthread_t thread;
        if (before)
            assert_int_equal(pthread_create(&thread, NULL, release_later, before), 0);
        batch = delivered < 8 ? next(l) : NULL;
        if (before)
            pthread_join(thread, NULL);
        if (!batch)
            break;
        check_words(batch, &layouts[2]);
        before = batch;
        delivered++;
    }
    assert_int_equal(delivered, 8);
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

/* What is released while the batch is made in vain must not be waited for. */
static void releasing_in_time_avoids_the_wait(void **state)
{
    struct worded_source *w = worded(N, NULL);
    struct leat_loader_options options = asked(&layouts[0], LEAT_THREADS_NONE);
    w->huge = BATCH - 1;
    w->huge_too = 3 * BATCH - 1;
    w->huge_bytes = 200 << 10;
    options.order = LEAT_ORDER_SEQUENTIAL;
    options.memory_bytes = 400 << 10; /* not for both of them */
    options.when_full = LEAT_FULL_WAIT;
    struct leat_loader *l = load(&w->base, options);
    must(leat_loader_start(l, 0, &err));
    w->released = next(l);
    struct leat_batch *second = next(l), *third = NULL;
    must(leat_loader_next(l, 2000, &third, &err));
    assert_int_equal(w->refused, 2);
    assert_int_equal(third->number, 2);
    assert_int_equal(third->lengths[2][BATCH - 1], 200 << 10);
    leat_batch_unref(second);
    leat_batch_unref(third);
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

/* A batch that does not fit after its bad samples were replaced is made again: what was listed and
 * taken from the end counts once. */
static void replaced_samples_of_a_discarded_batch_count_once(void **state)
{
    static int seen[N];
    struct leat_layout wide = {.kind = LEAT_LAYOUT_PAD, .multiple = 1024};
    struct worded_source *w = worded(N, is_bad);
    struct leat_loader_options options = asked(&wide, LEAT_THREADS_NONE);
    options.on_error = LEAT_ERROR_SKIP;
    options.memory_bytes = 500 << 10; /* 8 + 1 bytes for each of 32 x 1024 rows: not for two */
    struct leat_loader *l = load(&w->base, options);
    struct leat_batch *batch, *before = NULL;
    int got, full = 0;
    memset(seen, 0, sizeof seen);
    must(leat_loader_start(l, 0, &err));
    while ((got = leat_loader_next(l, -1, &batch, &err)) != 0) {
        check_memory(l);
        leat_batch_unref(before);
        before = got > 0 ? batch : NULL;
        full += got == -LEAT_E_FULL;
        if (got < 0 && got != -LEAT_E_FULL)
            fail_msg("%d: %s", got, err.text);
        if (got < 0)
            continue;
        check_words(batch, &wide);
        for (int64_t i = 0; i < batch->samples; i++)
            seen[batch->indices[i]]++;
    }
    leat_batch_unref(before);
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], !is_bad(i));
    struct leat_loader_stats stats;
    struct leat_loader_error errors[30];
    leat_loader_stats(l, &stats);
    assert_int_equal(stats.errors, 21);
    assert_int_equal(leat_loader_errors(l, 0, errors, 30), 21);
    assert_true(full > 20);
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

/* Its batch alone fails, with a message. */
static void a_sample_beyond_the_budget(void **state)
{
    struct worded_source *w = worded(N, NULL);
    struct leat_loader_options options = asked(&layouts[0], 2);
    w->huge = 100;
    w->huge_bytes = 4 << 20;
    options.order = LEAT_ORDER_SEQUENTIAL;
    options.memory_bytes = 1 << 20;
    struct leat_loader *l = load(&w->base, options);
    struct leat_batch *batch;
    int got, failed = 0, fine = 0;
    must(leat_loader_start(l, 0, &err));
    while ((got = leat_loader_next(l, -1, &batch, &err)) != 0) {
        check_memory(l);
        if (got < 0) {
            assert_int_equal(got, -ENOMEM);
            assert_non_null(strstr(err.text, "Batch 3 does not fit"));
            failed++;
            continue;
        }
        check_words(batch, &layouts[0]);
        leat_batch_unref(batch);
        fine++;
    }
    assert_int_equal(failed, 1);
    assert_int_equal(fine, N / BATCH);
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

static void surplus_memory_is_freed(void **state)
{
    struct worded_source *w = worded(N, NULL);
    struct leat_loader_options options = asked(&layouts[3], 2);
    options.ahead = 2;
    struct leat_loader *l = load(&w->base, options);
    struct leat_batch *kept[N / BATCH + 1];
    must(leat_loader_start(l, 0, &err));
    for (int i = 0; i <= N / BATCH; i++)
        kept[i] = next(l);
    uint64_t most = check_memory(l);
    for (int i = 0; i <= N / BATCH; i++)
        leat_batch_unref(kept[i]);
    assert_true(check_memory(l) < most / 4);
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

/* No allocation for each sample or batch after some epochs. */
static void later_epochs_allocate_next_to_nothing(void **state)
{
    struct worded_source *w = worded(N, NULL);
    struct leat_loader *l = load(&w->base, asked(&layouts[3], 2));
    unsigned long made = 0;
    for (uint64_t epoch = 0; epoch < 30; epoch++) {
        struct leat_batch *batch;
        must(leat_loader_start(l, epoch, &err));
        while ((batch = next(l)))
            leat_batch_unref(batch);
        unsigned long now = mem_fail_at(0);
        if (epoch >= 15)
            made += now;
    }
    assert_true(made <= 15); /* of 480 batches; two for each time that a batch is larger than all */
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

static int whole_life(const struct leat_layout *layout, const struct leat_layout *once)
{
    struct worded_source *w = worded(200, NULL);
    struct leat_loader_options options = asked(layout, 2);
    struct leat_loader *l = NULL;
    struct leat_batch *batch;
    int64_t samples = 0, indices[] = {3, 199, 3};
    options.ahead = 3;
    int got = leat_source_read(&w->base, indices, 3, once, &batch, &err);
    if (got == 0) {
        check_words(batch, once);
        leat_batch_unref(batch);
        got = leat_loader_new(&w->base, &options, &l, &err);
    }
    if (got == 0)
        got = leat_loader_start(l, 0, &err);
    while (got >= 0 && (got = leat_loader_next(l, -1, &batch, &err)) > 0) {
        check_words(batch, layout);
        samples += batch->samples;
        leat_batch_unref(batch);
    }
    assert_true(got < 0 || samples == 200);
    leat_loader_close(l);
    leat_source_unref(&w->base);
    return got;
}

static void any_allocation_may_fail(void **state)
{
    for (int n = 0; n < LAYOUTS; n++) {
        int refused = 0;
        assert_int_equal(whole_life(&layouts[n], &layouts[LAYOUTS - 1 - n]), 0);
        unsigned long allocations = 60;
        for (unsigned long i = 2; i <= allocations;
             i++) { /* the first is of the test's own source */
            mem_fail_at(i);
            err.text[0] = 0;
            int got = whole_life(&layouts[n], &layouts[LAYOUTS - 1 - n]);
            refused += got < 0;
            assert_true(got == 0 || (got == -ENOMEM && *err.text));
        }
        mem_fail_at(0);
        assert_in_range(refused, 1, allocations);
    }
}

/* ---- the arena itself --------------------------------------------------------------------------
 */
struct grabber {
    struct arena *arena;
    int number;
    unsigned char *got[500];
};

static void *grab(void *argument)
{
    struct grabber *g = argument;
    for (int i = 0; i < 500; i++) {
        size_t bytes = (size_t)(g->number * 37 + i * 13) % 700 + 1;
        g->got[i] = arena_alloc(g->arena, bytes);
        memset(g->got[i], g->number * 16 + i % 16, bytes);
    }
    return NULL;
}

/* Threads never get the same bytes, and the budget is as before when all is freed. */
static void an_arena_is_shared_by_threads(void **state)
{
    static struct grabber grabbers[4];
    struct budget budget = {.most_bytes = 64 << 20};
    struct arena arena = {0};
    arena_init(&arena, &budget);
    for (int round = 0; round < 4; round++) {
        pthread_t threads[4];
        for (int t = 0; t < 4; t++) {
            grabbers[t] = (struct grabber){.arena = &arena, .number = t};
            assert_int_equal(pthread_create(&threads[t], NULL, grab, &grabbers[t]), 0);
        }
        for (int t = 0; t < 4; t++)
            pthread_join(threads[t], NULL);
        for (int t = 0; t < 4; t++)
            for (int i = 0; i < 500; i++)
                for (size_t k = 0; k < (size_t)(t * 37 + i * 13) % 700 + 1; k++)
                    assert_int_equal(grabbers[t].got[i][k], t * 16 + i % 16);
        assert_int_equal(budget.used_bytes, arena.cost_bytes);
        assert_int_equal(arena.refused, 0);
        arena_reset(&arena);
        assert_true(!arena.chunks->next); /* one of the size that was needed */
    }
    assert_null(arena_alloc(&arena, 65 << 20));
    assert_null(arena_alloc(&arena, UINT64_MAX));
    assert_int_equal(arena.refused, 1);
    arena_done(&arena);
    assert_int_equal(budget.used_bytes, 0);
}

/* ---- padding ----------------------------------------------------------------------------------
 */
static const struct {
    enum leat_dtype dtype;
    double value;
    uint64_t bits; /* of the item, its first eight bytes */
    int refused;
} paddings[] = {
    {LEAT_INT8,       -1,           0xff,               0},
    {LEAT_INT8,       -128,         0x80,               0},
    {LEAT_INT8,       128,          0,                  1},
    {LEAT_INT8,       0.5,          0,                  1},
    {LEAT_UINT8,      255,          0xff,               0},
    {LEAT_UINT8,      -1,           0,                  1},
    {LEAT_INT16,      -2,           0xfffe,             0},
    {LEAT_UINT16,     65535,        0xffff,             0},
    {LEAT_INT32,      -100,         0xffffff9c,         0},
    {LEAT_INT32,      0x1p31,       0,                  1},
    {LEAT_UINT32,     4294967295.0, 0xffffffff,         0},
    {LEAT_INT64,      -100,         0xffffffffffffff9c, 0},
    {LEAT_INT64,      -0x1p63,      0x8000000000000000, 0},
    {LEAT_INT64,      0x1p63,       0,                  1},
    {LEAT_UINT64,     0x1p63,       0x8000000000000000, 0},
    {LEAT_INT64,      0.0 / 0.0,    0,                  1},
    {LEAT_BOOL,       2,            1,                  0},
    {LEAT_FLOAT16,    1,            0x3c00,             0},
    {LEAT_FLOAT16,    -2.5,         0xc100,             0},
    {LEAT_FLOAT16,    0.1,          0x2e66,             0},
    {LEAT_FLOAT16,    65504,        0x7bff,             0},
    {LEAT_FLOAT16,    65505,        0,                  1},
    {LEAT_BFLOAT16,   1e39,         0,                  1},
    {LEAT_FLOAT32,    -1e39,        0,                  1},
    {LEAT_COMPLEX64,  1e39,         0,                  1},
    {LEAT_FLOAT32,    1.0 / 0.0,    0x7f800000,         0},
    {LEAT_FLOAT16,    2049,         0x6800,             0}, /* a tie, to the even one below */
    {LEAT_FLOAT16,    2051,         0x6802,             0}, /* a tie, to the even one above */
    {LEAT_FLOAT16,    0x1p-24,      0x0001,             0},
    {LEAT_FLOAT16,    0x1.ffcp-15,  0x0400,             0}, /* the largest subnormal and a half: up */
    {LEAT_FLOAT16,    -1.0 / 0.0,   0xfc00,             0},
    {LEAT_FLOAT16,    0.0 / 0.0,    0x7e00,             0},
    {LEAT_BFLOAT16,   1,            0x3f80,             0},
    {LEAT_BFLOAT16,   -100,         0xc2c8,             0},
    {LEAT_BFLOAT16,   0.1,          0x3dcd,             0},
    {LEAT_FLOAT32,    -1.5,         0xbfc00000,         0},
    {LEAT_FLOAT64,    -1.5,         0xbff8000000000000, 0},
    {LEAT_COMPLEX64,  2,            0x40000000,         0},
    {LEAT_COMPLEX128, 2,            0x4000000000000000, 0},
    {LEAT_RAW,        0,            0,                  0},
    {LEAT_RAW,        1,            0,                  1},
};

static int read_nothing(struct leat_source *source, const struct source_request *request,
                        struct source_report *report, struct leat_err *why)
{
    struct leat_span *spans = (struct leat_span *)(void *)request->places[0];
    for (size_t i = 0; i < request->count; i++)
        spans[i] = (struct leat_span){.items = 0};
    return 0;
}

/* A batch of samples without rows is all padding. */
static void padding_is_of_the_type(void **state)
{
    static const struct source_ops ops = {.read = read_nothing, .done = worded_done};
    for (size_t n = 0; n < sizeof paddings / sizeof *paddings; n++) {
        struct leat_source *source = source_new(sizeof *source, &ops);
        uint64_t item = paddings[n].dtype == LEAT_RAW ? 3 : leat_dtype_bytes(paddings[n].dtype);
        int64_t shape[] = {4, 3};
        must(source_add_field(source, "x", paddings[n].dtype, item, 2, shape, NULL, &err));
        source->field[0].variable = 1;
        struct leat_layout asks = {.kind = LEAT_LAYOUT_PAD, .value = paddings[n].value};
        struct batch_layout layout;
        int got = layout_init(&layout, source, &asks, NULL, &err);
        if (paddings[n].refused) {
            assert_int_equal(got, -LEAT_E_USAGE);
            assert_non_null(strstr(err.text, "\"x\""));
        } else {
            uint64_t bits = 0;
            assert_int_equal(got, 0);
            memcpy(&bits, layout.field[0].item, item < 8 ? item : 8);
            if (bits != paddings[n].bits)
                fail_msg("row %zu: %llx", n, (unsigned long long)bits);
        }
        leat_source_unref(source);
    }
}

static void layouts_that_do_not_exist(void **state)
{
    struct worded_source *w = worded(N, NULL);
    struct leat_layout wrong[] = {
        {.kind = (enum leat_layout_kind)3}, {.multiple = -1}, {.most = -1}};
    for (int i = 0; i < 3; i++) {
        struct leat_loader_options options = asked(&wrong[i], 1);
        struct leat_loader *l;
        assert_int_equal(leat_loader_new(&w->base, &options, &l, &err), -LEAT_E_USAGE);
        assert_non_null(strstr(err.text, "\"pairs\""));
    }
    /* A width that does not fit into memory is an error of the batch. */
    struct leat_loader_options options =
        asked(&(struct leat_layout){.kind = LEAT_LAYOUT_PAD, .multiple = INT64_MAX / 2}, 1);
    struct leat_loader *l = load(&w->base, options);
    struct leat_batch *batch;
    must(leat_loader_start(l, 0, &err));
    assert_int_equal(leat_loader_next(l, -1, &batch, &err), -ENOMEM);
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

/* ---- without a loader -------------------------------------------------------------------------
 */
static void single_samples(void **state)
{
    struct worded_source *w = worded(N, is_bad);
    int64_t indices[] = {5, 1000, 5, 0}, bad[] = {1, 57, 2, 7}, outside[] = {1, N};
    struct leat_batch *batch[LAYOUTS];
    for (int n = 0; n < LAYOUTS; n++)
        must(leat_source_read(&w->base, indices, 4, &layouts[n], &batch[n], &err));
    struct leat_batch *none;
    assert_int_equal(leat_source_read(&w->base, bad, 4, NULL, &none, &err), -LEAT_E_CORRUPT);
    assert_string_equal(err.text, "Sample 57: file 57 is torn");
    assert_int_equal(leat_source_read(&w->base, outside, 2, NULL, &none, &err), -ERANGE);
    assert_int_equal(leat_source_read(&w->base, bad, 0, NULL, &none, &err), -LEAT_E_USAGE);
    leat_source_unref(&w->base); /* the batches hold it */
    for (int n = 0; n < LAYOUTS; n++) {
        assert_int_equal(batch[n]->samples, 4);
        assert_memory_equal(batch[n]->indices, indices, sizeof indices);
        check_words(leat_batch_ref(batch[n]), &layouts[n]);
        leat_batch_unref(batch[n]);
        leat_batch_unref(batch[n]);
    }
}

/* ---- fork -------------------------------------------------------------------------------------
 */
static void a_child_continues(void **state)
{
    skip_with_sanitizers();
    struct worded_source *w = worded(N, NULL);
    struct leat_loader *l = load(&w->base, asked(&layouts[3], 3));
    struct leat_batch *batch, *kept;
    must(leat_loader_start(l, 0, &err));
    kept = next(l);
    fflush(NULL);
    pid_t child = fork();
    int64_t samples = kept->samples;
    while ((batch = next(l))) {
        check_words(batch, &layouts[3]);
        check_memory(l);
        samples += batch->samples;
        leat_batch_unref(batch);
    }
    check_words(kept, &layouts[3]);
    leat_batch_unref(kept);
    leat_loader_close(l);
    leat_source_unref(&w->base);
    if (!child)
        _exit(samples == N ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(samples, N);
}

/* As if all threads of the parent were allocating a chunk at the moment of the fork. The child
 * needs one too, for a sample larger than all before. */
static void a_child_does_not_wait_for_the_parents_threads(void **state)
{
    skip_with_sanitizers();
    struct worded_source *w = worded(N, NULL);
    w->huge = N - 1;
    w->huge_bytes = 1 << 20;
    struct leat_loader_options options = asked(&layouts[0], 2);
    options.order = LEAT_ORDER_SEQUENTIAL;
    options.ahead = 3;
    struct leat_loader *l = load(&w->base, options);
    struct leat_batch *batch;
    int64_t samples = 0;
    must(leat_loader_start(l, 0, &err));
    leat_batch_unref(next(l));
    for (size_t i = 0; i < l->slots_count; i++)
        pthread_mutex_lock(&l->slots[i]->arena.lock);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        alarm(20); /* it would wait forever */
        while ((batch = next(l))) {
            samples += batch->samples;
            leat_batch_unref(batch);
        }
        leat_loader_close(l);
        leat_source_unref(&w->base);
        _exit(samples == N - BATCH ? 0 : 1);
    }
    for (size_t i = 0; i < l->slots_count; i++)
        pthread_mutex_unlock(&l->slots[i]->arena.lock);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    leat_loader_close(l);
    leat_source_unref(&w->base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_is_exact),
        cmocka_unit_test(kept_batches_never_change),
        cmocka_unit_test(each_field_may_have_its_own),
        cmocka_unit_test(repaired_batches_are_exact),
        cmocka_unit_test(a_small_budget_is_enough),
        cmocka_unit_test(keeping_too_many_batches_fails),
        cmocka_unit_test(when_full_wait_waits),
        cmocka_unit_test(releasing_in_time_avoids_the_wait),
        cmocka_unit_test(replaced_samples_of_a_discarded_batch_count_once),
        cmocka_unit_test(a_sample_beyond_the_budget),
        cmocka_unit_test(surplus_memory_is_freed),
        cmocka_unit_test(later_epochs_allocate_next_to_nothing),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(an_arena_is_shared_by_threads),
        cmocka_unit_test(padding_is_of_the_type),
        cmocka_unit_test(layouts_that_do_not_exist),
        cmocka_unit_test(single_samples),
        cmocka_unit_test(a_child_continues),
        cmocka_unit_test(a_child_does_not_wait_for_the_parents_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
