/* test_fold.c: every sentence of the accounting as a stream of records with its exact answer.
 *
 * A stream is written as the script would make it, one line a span: FETCH(loader, iteration,
 * samples, t0, t1) and so on, in the order in which the spans end. Times are small numbers of
 * nanoseconds. Every step that comes out is checked to be the exact sum of its phases, whatever
 * else a test looks at. */
#include "collect/fold.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAIN = 100, OTHER_THREAD = 200, MOST = 4096 };
enum { N_CHECKPOINT = 1, N_EVAL, N_USER, N_FORWARD, N_INPUT, N_ALLREDUCE, N_BACKWARD, N_NESTED };

struct told {
    char name[32];
    int64_t step;
    uint64_t a, b, other;
};

static struct world {
    struct fold *fold;
    struct step_row steps[MOST];
    int step_count, drops;
    struct told spans[MOST];
    int span_count;
    struct ring_record records[MOST];
    int record_count;
    int32_t tid;
} w;

static void on_step(void *context, const struct step_row *row)
{
    uint64_t sum = 0;
    for (int i = 0; i < PHASES; i++) {
        sum += row->phase_ns[i];
        if (!row->known[i])
            assert_int_equal(row->phase_ns[i], 0);
    }
    assert_int_equal(sum, row->wall_ns);
    assert_int_equal(row->step, w.step_count);
    assert_true(w.step_count < MOST);
    w.steps[w.step_count++] = *row;
}

static void on_drop(void *context)
{
    w.drops++;
    w.step_count = 0;
}

static void on_span(void *context, const char *name, int64_t step, uint64_t a, uint64_t b,
                    uint64_t other)
{
    assert_true(w.span_count < MOST);
    struct told *t = &w.spans[w.span_count++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->step = step;
    t->a = a;
    t->b = b;
    t->other = other;
    assert_true(b >= a);
    assert_true(other <= b - a);
}

static void begin_with(uint32_t signals)
{
    memset(&w, 0, sizeof w);
    w.tid = MAIN;
    struct fold_sink sink = {NULL, on_step, on_drop, on_span};
    assert_int_equal(fold_new(0, signals, &sink, &w.fold), 0);
    fold_name(w.fold, N_CHECKPOINT, "checkpoint");
    fold_name(w.fold, N_EVAL, "eval");
    fold_name(w.fold, N_USER, "logging");
    fold_name(w.fold, N_FORWARD, "forward");
    fold_name(w.fold, N_INPUT, "input");
    fold_name(w.fold, N_ALLREDUCE, "all_reduce");
    fold_name(w.fold, N_BACKWARD, "backward");
    fold_name(w.fold, N_NESTED, "plots");
}

static void begin(void)
{
    begin_with(~0u);
}

static void rec(int kind, unsigned flags, uint32_t id, uint64_t arg, uint64_t t0, uint64_t t1)
{
    assert_true(w.record_count < MOST);
    w.records[w.record_count++] = (struct ring_record){
        .rec = {t0, t1, arg, id, (uint16_t)kind, (uint16_t)flags},
          .tid = w.tid
    };
}

#define FETCH(loader, it, n, a, b) rec(LEAT_REC_FETCH, 0, loader, LEAT_FETCH_ARG(it, n), a, b)
#define FETCH_NOGRAD(loader, it, n, a, b)                                                          \
    rec(LEAT_REC_FETCH, LEAT_REC_NOGRAD, loader, LEAT_FETCH_ARG(it, n), a, b)
#define END(loader, it, a, b)  rec(LEAT_REC_FETCH, LEAT_REC_END, loader, LEAT_FETCH_ARG(it, 0), a, b)
#define ITER(loader, it, a, b) rec(LEAT_REC_ITER, 0, loader, LEAT_FETCH_ARG(it, 0), a, b)
#define BACKWARD(a, b)         rec(LEAT_REC_BACKWARD, 0, 0, 0, a, b)
#define OPT(id, a, b)          rec(LEAT_REC_OPTIMIZER, 0, id, 0, a, b)
#define SPAN(kind, id, a, b)   rec(LEAT_REC_##kind, 0, id, 0, a, b)
#define STEP(t)                rec(LEAT_REC_STEP, 0, 0, 0, t, t)

static void feed(void)
{
    assert_int_equal(fold_feed(w.fold, w.records, w.record_count), 0);
    w.record_count = 0;
}

static void finish(uint64_t end)
{
    feed();
    assert_int_equal(fold_end(w.fold, end), 0);
    assert_int_equal(fold_steps(w.fold), w.step_count);
}

static void done(void)
{
    fold_free(w.fold);
    w.fold = NULL;
}

/* The phases of a step in the order of the columns. */
static void expect(int step, uint64_t input, uint64_t h2d, uint64_t forward, uint64_t backward,
                   uint64_t optimizer, uint64_t sync, uint64_t other)
{
    const uint64_t want[PHASES] = {input, h2d, forward, backward, optimizer, sync, other};
    assert_true(step < w.step_count);
    for (int i = 0; i < PHASES; i++)
        if (w.steps[step].phase_ns[i] != want[i])
            fail_msg("step %d %s: %lu, expected %lu", step, leat_phase_names[i],
                     (unsigned long)w.steps[step].phase_ns[i], (unsigned long)want[i]);
}

static int count_spans(const char *name)
{
    int n = 0;
    for (int i = 0; i < w.span_count; i++)
        n += strcmp(w.spans[i].name, name) == 0;
    return n;
}

static void expect_span(int nth, const char *name, uint64_t a, uint64_t b, uint64_t other)
{
    for (int i = 0; i < w.span_count; i++) {
        if (strcmp(w.spans[i].name, name) != 0 || nth-- > 0)
            continue;
        assert_int_equal(w.spans[i].a, a);
        assert_int_equal(w.spans[i].b, b);
        assert_int_equal(w.spans[i].other, other);
        return;
    }
    fail_msg("no span %s", name);
}

/* One plain training step from t: fetch 10, forward 20, backward 30, other 5, optimizer 15, and 3
 * of other before the next. Returns where the next begins. */
static uint64_t plain_step(uint32_t loader, uint32_t it, uint64_t t)
{
    FETCH(loader, it, 4, t, t + 10);
    BACKWARD(t + 30, t + 60);
    OPT(0, t + 65, t + 80);
    return t + 83;
}

/* ---- phases ------------------------------------------------------------------------------- */

static void test_plain(void **state)
{
    begin();
    ITER(1, 1, 1000, 1007);
    uint64_t t = 1010;
    for (int i = 0; i < 7; i++)
        t = plain_step(1, 1, t);
    END(1, 1, t, t + 2);
    finish(t + 100);
    assert_int_equal(w.step_count, 7);
    assert_int_equal(w.drops, 0);
    expect(0, 17, 0, 20, 30, 15, 0, 8);
    for (int i = 1; i < 7; i++) {
        expect(i, 10, 0, 20, 30, 15, 0, 8);
        assert_int_equal(w.steps[i].wall_ns, 83);
        assert_int_equal(w.steps[i].samples, 4);
        assert_int_equal(w.steps[i].micro_steps, 1);
        assert_int_equal(w.steps[i].records, 3);
        assert_int_equal(w.steps[i].flags, 0);
    }
    assert_int_equal(w.steps[0].flags, STEP_EPOCH_START);
    assert_int_equal(w.steps[0].end_ns, 1090);
    expect_span(0, "epoch_start", 1000, 1020, 0);
    const struct fold_loader *l = fold_loader(w.fold, 1);
    assert_int_equal(l->iterations, 1);
    assert_int_equal(l->batches, 7);
    assert_int_equal(l->samples, 28);
    assert_int_equal(l->wait_ns, 7 + 70 + 2);
    assert_int_equal(l->first_wait_ns, 17);
    assert_int_equal(l->trained, 1);
    assert_int_equal(l->evaluated, 0);
    assert_null(fold_loader(w.fold, 2));
    done();
}

static void test_feeds_of_one(void **state)
{
    begin();
    uint64_t t = 1000;
    for (int i = 0; i < 7; i++)
        t = plain_step(1, 1, t);
    struct ring_record all[64];
    int n = w.record_count;
    memcpy(all, w.records, sizeof all);
    for (int i = 0; i < n; i++)
        assert_int_equal(fold_feed(w.fold, &all[i], 1), 0);
    w.record_count = 0;
    assert_int_equal(fold_steps(w.fold), 6); /* the last is pending */
    assert_int_equal(fold_step_at(w.fold), 7);
    finish(t);
    assert_int_equal(w.step_count, 7);
    expect(6, 10, 0, 20, 30, 15, 0, 8);
    done();
}

static void test_times_are_relative(void **state)
{
    begin();
    fold_free(w.fold);
    struct fold_sink sink = {NULL, on_step, on_drop, on_span};
    assert_int_equal(fold_new(5000, 0, &sink, &w.fold), 0);
    plain_step(1, 1, 6000);
    finish(7000);
    assert_int_equal(w.steps[0].end_ns, 1080);
    done();
}

static void test_h2d_and_sync(void **state)
{
    begin();
    FETCH(1, 1, 4, 100, 110);
    SPAN(H2D, 0, 112, 120);            /* 2 before it: the batch has arrived: forward */
    SPAN(SYNC, N_ALLREDUCE, 140, 150); /* inside the backward: sync wins */
    BACKWARD(130, 160);
    SPAN(SYNC, N_ALLREDUCE, 160, 165);
    OPT(0, 165, 170);
    finish(200);
    expect(0, 10, 8, 2 + 10, 20, 5, 15, 0);
    assert_int_equal(count_spans("all_reduce"), 2);
    expect_span(0, "all_reduce", 140, 150, 0);
    done();
}

static void test_nested_in_input(void **state)
{
    begin();
    SPAN(SYNC, N_ALLREDUCE, 102, 104);
    SPAN(H2D, 0, 104, 106);
    SPAN(NAMED, N_USER, 106, 108);
    BACKWARD(108, 109);
    FETCH(1, 1, 4, 100, 110);
    SPAN(H2D, 0, 122, 124);
    SPAN(SYNC, N_ALLREDUCE, 120, 130); /* a transfer inside a synchronisation is sync */
    BACKWARD(130, 160);
    OPT(0, 160, 170);
    finish(200);
    expect(0, 10, 0, 10, 30, 10, 10, 0);
    done();
}

static void test_missing_signals(void **state)
{
    begin_with(LEAT_SIGNAL_FETCH | LEAT_SIGNAL_BACKWARD | LEAT_SIGNAL_OPTIMIZER);
    uint64_t t = plain_step(1, 1, 100);
    plain_step(1, 1, t);
    finish(1000);
    assert_int_equal(w.steps[0].known[PHASE_H2D], 0);
    assert_int_equal(w.steps[0].known[PHASE_SYNC], 0);
    assert_int_equal(w.steps[0].known[PHASE_INPUT], 1);
    assert_int_equal(w.steps[0].known[PHASE_OTHER], 1);
    done();
    begin_with(0);
    fold_signals(w.fold, LEAT_SIGNAL_H2D);
    plain_step(1, 1, 100);
    finish(1000);
    assert_int_equal(w.steps[0].known[PHASE_H2D], 1);
    assert_int_equal(w.steps[0].known[PHASE_SYNC], 0);
    done();
}

static void test_named(void **state)
{
    begin();
    FETCH(1, 1, 4, 100, 110);
    SPAN(NAMED, N_NESTED, 116, 118);
    SPAN(NAMED, N_USER, 112, 120);
    SPAN(NAMED, N_FORWARD, 120, 125);
    BACKWARD(130, 160);
    SPAN(NAMED, N_FORWARD, 162, 164);
    OPT(0, 170, 180);
    SPAN(H2D, 0, 192, 195);
    SPAN(NAMED, N_CHECKPOINT, 190, 200);
    FETCH(1, 1, 4, 200, 210);
    BACKWARD(210, 220);
    OPT(0, 220, 230);
    finish(300);
    expect(0, 10, 0, 2 + 5 + 5 + 2, 30, 10, 0, 8 + 2 + 6);
    expect(1, 10, 3, 0, 10, 10, 0, 10 + 7);
    expect_span(0, "logging", 112, 120, 6);
    expect_span(0, "plots", 116, 118, 2);
    expect_span(0, "checkpoint", 190, 200, 7);
    assert_int_equal(count_spans("forward"), 0);
    assert_int_equal(w.steps[0].flags, 0);
    assert_int_equal(w.steps[1].flags, STEP_CHECKPOINT);
    done();
}

static void test_named_around_steps(void **state)
{
    begin();
    uint64_t t = 100;
    for (int i = 0; i < 3; i++)
        t = plain_step(1, 1, t);
    FETCH(1, 1, 4, t, t + 10);
    BACKWARD(t + 30, t + 60);
    OPT(0, t + 65, t + 80);
    SPAN(NAMED, N_USER, 90, t + 83); /* an epoch: no part of a step */
    plain_step(1, 1, t + 83);
    finish(t + 1000);
    assert_int_equal(w.step_count, 5);
    expect(4, 10, 0, 20, 30, 15, 0, 8);
    expect_span(0, "logging", 90, t + 83, 0);
    done();
}

static void test_named_input(void **state)
{
    begin(); /* leat.phase("input") around get_batch() */
    uint64_t t = 100;
    for (int i = 0; i < 3; i++, t += 100) {
        SPAN(NAMED, N_INPUT, t, t + 20);
        BACKWARD(t + 50, t + 80);
        OPT(0, t + 80, t + 90);
    }
    finish(1000);
    assert_int_equal(w.step_count, 3);
    expect(0, 20, 0, 30, 30, 10, 0, 0);
    expect(1, 20, 0, 30, 30, 10, 0, 10);
    done();
}

static void test_compile_is_transparent(void **state)
{
    begin();
    FETCH(1, 1, 4, 100, 110);
    SPAN(COMPILE, 0, 112, 128);
    SPAN(COMPILE, 0, 140, 145);
    BACKWARD(130, 160);
    OPT(0, 160, 170);
    plain_step(1, 1, 170);
    finish(300);
    expect(0, 10, 0, 20, 30, 10, 0, 0);
    assert_int_equal(w.steps[0].flags, STEP_COMPILE);
    assert_int_equal(w.steps[1].flags, 0);
    expect_span(0, "compile", 112, 128, 0);
    expect_span(1, "compile", 140, 145, 0);
    done();
}

static void test_closure(void **state)
{
    begin(); /* LBFGS: the closures make the forward and the backward inside step() */
    for (uint64_t t = 100; t < 400; t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        BACKWARD(t + 22, t + 30);
        SPAN(CLOSURE, 0, t + 20, t + 30);
        BACKWARD(t + 52, t + 60);
        SPAN(CLOSURE, 0, t + 50, t + 60);
        OPT(0, t + 15, t + 70);
    }
    finish(1000);
    assert_int_equal(w.step_count, 3);
    expect(1, 10, 0, 5 + 4, 16, 55 - 20, 0, 30);
    done();
}

static void test_exception(void **state)
{
    begin();
    uint64_t t = plain_step(1, 1, 100);
    FETCH(1, 1, 4, t, t + 10);
    rec(LEAT_REC_BACKWARD, LEAT_REC_ERROR, 0, 0, t + 20, t + 30);
    OPT(0, t + 30, t + 40);
    FETCH(1, 1, 4, t + 50, t + 60);
    rec(LEAT_REC_BACKWARD, LEAT_REC_ERROR, 0, 0, t + 70, t + 80); /* and it ended here */
    finish(t + 100);
    assert_int_equal(w.step_count, 2);
    assert_int_equal(w.steps[0].flags, 0);
    assert_int_equal(w.steps[1].flags, STEP_EXCEPTION);
    done();
}

static void test_samples_unknown(void **state)
{
    begin();
    FETCH(1, 1, 0, 100, 110);
    BACKWARD(120, 130);
    FETCH(1, 1, 8, 130, 140);
    BACKWARD(140, 150);
    OPT(0, 150, 160);
    BACKWARD(170, 180);
    OPT(0, 180, 190);
    finish(200);
    assert_int_equal(w.steps[0].samples, -1);
    assert_int_equal(w.steps[0].micro_steps, 2);
    assert_int_equal(w.steps[1].samples, -1);
    assert_int_equal(w.steps[1].micro_steps, 0);
    done();
}

/* ---- loops of other shapes ---------------------------------------------------------------- */

static void test_accumulation(void **state)
{
    begin(); /* 8 micro-steps a step, the first round before any optimizer is known */
    uint64_t t = 1000;
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 8; i++, t += 50) {
            FETCH(1, 1, 4, t, t + 10);
            BACKWARD(t + 25, t + 45);
        }
        feed();
        OPT(0, t, t + 30);
        t += 30;
    }
    finish(t);
    assert_int_equal(w.drops, 1);
    assert_int_equal(w.step_count, 3);
    for (int i = 0; i < 3; i++) {
        expect(i, 80, 0, 120, 160, 30, 0, 40);
        assert_int_equal(w.steps[i].micro_steps, 8);
        assert_int_equal(w.steps[i].samples, 32);
        assert_int_equal(w.steps[i].flags, 0);
    }
    done();
}

static void test_no_loader(void **state)
{
    begin(); /* get_batch(): the gaps before the backward are the forward */
    for (uint64_t t = 100; t < 500; t += 100) {
        BACKWARD(t + 40, t + 70);
        OPT(0, t + 75, t + 90);
    }
    finish(1000);
    assert_int_equal(w.step_count, 4);
    expect(0, 0, 0, 0, 30, 15, 0, 5);
    for (int i = 1; i < 4; i++)
        expect(i, 0, 0, 50, 30, 15, 0, 5);
    done();
}

static void test_one_step_without_fetch(void **state)
{
    begin();
    uint64_t t = 100;
    for (int i = 0; i < 20; i++) {
        if (i == 11) { /* this batch is used again */
            BACKWARD(t + 30, t + 60);
            OPT(0, t + 65, t + 80);
            t += 83;
        } else {
            t = plain_step(1, 1, t);
        }
    }
    finish(t);
    assert_int_equal(w.step_count, 20);
    expect(11, 0, 0, 33, 30, 15, 0, 5);
    expect(12, 10, 0, 20, 30, 15, 0, 8);
    done();
}

static void test_two_steps_a_batch(void **state)
{
    begin();
    uint64_t t = 100;
    for (int i = 0; i < 5; i++, t += 200) {
        FETCH(1, 1, 4, t, t + 10);
        BACKWARD(t + 30, t + 60);
        OPT(0, t + 60, t + 70);
        BACKWARD(t + 100, t + 130);
        OPT(0, t + 130, t + 140);
    }
    finish(t);
    assert_int_equal(w.step_count, 10);
    expect(0, 10, 0, 20, 30, 10, 0, 0);
    expect(1, 0, 0, 30, 30, 10, 0, 0);
    expect(2, 10, 0, 20, 30, 10, 0, 60);
    done();
}

static void test_backward_twice(void **state)
{
    begin(); /* two losses: the second forward lies between the backwards */
    FETCH(1, 1, 4, 100, 110);
    BACKWARD(120, 130);
    BACKWARD(150, 160);
    OPT(0, 170, 180);
    finish(200);
    expect(0, 10, 0, 10 + 20, 20, 10, 0, 10);
    done();
}

static void test_no_backward_seen(void **state)
{
    begin(); /* gradients made by other means: forward up to the optimizer */
    uint64_t t = 100;
    for (int i = 0; i < 4; i++, t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        OPT(0, t + 60, t + 80);
    }
    finish(t);
    assert_int_equal(w.step_count, 4);
    expect(0, 10, 0, 50, 0, 20, 0, 0);
    expect(3, 10, 0, 50, 0, 20, 0, 20);
    assert_int_equal(fold_loader(w.fold, 1)->trained, 1);
    done();
}

static void test_prefetch(void **state)
{
    begin(); /* the next batch is fetched before this one's backward */
    FETCH(1, 1, 4, 100, 110);
    uint64_t t = 110;
    for (int i = 0; i < 5; i++, t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        BACKWARD(t + 30, t + 60);
        OPT(0, t + 60, t + 80);
    }
    END(1, 1, t, t + 1); /* the last batch is worked on after the end */
    BACKWARD(t + 30, t + 60);
    OPT(0, t + 60, t + 80);
    finish(t + 100);
    assert_int_equal(w.step_count, 6);
    expect(0, 20, 0, 20, 30, 20, 0, 0);
    expect(4, 10, 0, 20, 30, 20, 0, 20);
    expect(5, 1, 0, 20 + 29, 30, 20, 0, 0);
    assert_int_equal(count_spans("eval"), 0);
    done();
}

static void test_prefetch_over_epochs(void **state)
{
    begin(); /* the next epoch's first batch is fetched between backward and optimizer */
    FETCH(1, 1, 4, 100, 110);
    BACKWARD(120, 130);
    END(1, 1, 130, 131);
    ITER(1, 2, 131, 135);
    FETCH(1, 2, 4, 135, 140);
    OPT(0, 140, 150);
    feed();
    BACKWARD(160, 170);
    FETCH(1, 2, 4, 170, 175);
    OPT(0, 175, 180);
    finish(200);
    assert_int_equal(w.step_count, 2);
    expect(0, 10 + 1 + 4 + 5, 0, 10, 10, 10, 0, 0);
    expect(1, 5, 0, 10, 10, 5, 0, 0);
    assert_int_equal(w.steps[0].micro_steps, 2);
    assert_int_equal(count_spans("eval"), 0);
    assert_int_equal(fold_loader(w.fold, 1)->trained, 2);
    done();
}

static void test_new_iterator_each_step(void **state)
{
    begin(); /* next(iter(loader)), more often than iterations are remembered */
    uint64_t t = 100;
    for (uint32_t i = 0; i < 700; i++, t += 100) {
        ITER(1, i, t, t + 20);
        FETCH(1, i, 4, t + 20, t + 30);
        BACKWARD(t + 40, t + 60);
        OPT(0, t + 60, t + 100);
    }
    finish(t);
    assert_int_equal(w.step_count, 700);
    for (int i = 0; i < 700; i++)
        expect(i, 30, 0, 10, 20, 40, 0, 0);
    assert_int_equal(fold_loader(w.fold, 1)->trained, 700);
    done();
}

static void test_two_loaders(void **state)
{
    begin(); /* semi-supervised: both are drawn from in every step, from the first on */
    uint64_t t = 100;
    ITER(1, 1, t, t + 5);
    ITER(2, 2, t + 5, t + 10);
    t += 10;
    for (int i = 0; i < 5; i++, t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        FETCH(2, 2, 16, t + 12, t + 20);
        BACKWARD(t + 40, t + 60);
        OPT(0, t + 60, t + 80);
        feed();
    }
    finish(t);
    assert_int_equal(w.step_count, 5);
    expect(0, 10 + 18, 0, 22, 20, 20, 0, 0);
    expect(4, 18, 0, 22, 20, 20, 0, 20);
    assert_int_equal(w.steps[0].micro_steps, 2);
    assert_int_equal(w.steps[0].samples, 20);
    assert_int_equal(count_spans("eval"), 0);
    assert_int_equal(fold_loader(w.fold, 1)->trained, 1);
    assert_int_equal(fold_loader(w.fold, 1)->evaluated, 0);
    assert_int_equal(fold_loader(w.fold, 2)->trained, 1);
    done();
}

static void test_loader_in_loader(void **state)
{
    begin(); /* a wrapped loader: one batch, whose size only the inner one knows */
    uint64_t t = 100;
    for (int i = 0; i < 5; i++, t += 100) {
        FETCH(1, 1, 4, t + 2, t + 9);
        FETCH(2, 2, 0, t, t + 10);
        BACKWARD(t + 40, t + 60);
        OPT(0, t + 60, t + 80);
    }
    finish(t);
    assert_int_equal(w.step_count, 5);
    for (int i = 0; i < 5; i++) {
        expect(i, 10, 0, 30, 20, 20, 0, i ? 20 : 0);
        assert_int_equal(w.steps[i].micro_steps, 1);
        assert_int_equal(w.steps[i].samples, 4);
    }
    assert_int_equal(fold_loader(w.fold, 1)->trained, 1);
    assert_int_equal(fold_loader(w.fold, 2)->trained, 1);
    assert_int_equal(count_spans("eval"), 0);
    done();
}

/* ---- several optimizers ------------------------------------------------------------------- */

/* Steps the optimizers named by the letters, one every 10 ns. */
static void letters(const char *text)
{
    static uint64_t t;
    if (w.record_count == 0)
        t = 1000;
    for (; *text; text++, t += 10) {
        BACKWARD(t + 2, t + 5);
        OPT((uint32_t)(*text - 'A'), t + 5, t + 10);
    }
}

static int steps_of(const char *text)
{
    begin();
    letters(text);
    finish(1 << 20);
    uint64_t wall = 0;
    for (int i = 0; i < w.step_count; i++)
        wall += w.steps[i].wall_ns;
    assert_int_equal(wall, 10 * strlen(text) - 2); /* nothing is lost between steps */
    int n = w.step_count;
    done();
    return n;
}

static void test_rounds(void **state)
{
    assert_int_equal(steps_of("A"), 1);
    assert_int_equal(steps_of("AAAAAAA"), 7);
    assert_int_equal(steps_of("DGDGDG"), 3);
    assert_int_equal(steps_of("DG"), 1);
    assert_int_equal(steps_of("DDDDDGDDDDDG"), 10);
    assert_int_equal(steps_of("DDDDDGDDDDDGDDDDD"), 15);
    assert_int_equal(steps_of("ABCABCABC"), 3);
    assert_int_equal(steps_of("ABCDEFG"), 1);
    assert_int_equal(steps_of("AAABBB"), 6);
    assert_int_equal(steps_of("AAABBBAAABBB"), 12);
    assert_int_equal(steps_of("ABBBB"), 5);
    assert_int_equal(steps_of("AAAABABAB"), 6);
}

static void test_phase_switch(void **state)
{
    char text[401];
    memset(text, 'A', 100);
    memset(text + 100, 'B', 100);
    memset(text + 200, 'C', 200);
    text[400] = 0;
    assert_int_equal(steps_of(text), 400);
}

static void test_gan_phases(void **state)
{
    begin();
    uint64_t t = 100;
    for (int i = 0; i < 4; i++, t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        BACKWARD(t + 20, t + 30);
        OPT(0, t + 30, t + 40);
        BACKWARD(t + 55, t + 70);
        OPT(1, t + 70, t + 80);
    }
    finish(t);
    assert_int_equal(w.step_count, 4);
    expect(0, 10, 0, 10 + 15, 25, 20, 0, 0);
    expect(3, 10, 0, 10 + 15, 25, 20, 0, 20);
    assert_int_equal(w.steps[3].end_ns, 480);
    assert_int_equal(w.steps[3].micro_steps, 1);
    done();
}

static void test_optimizer_in_backward(void **state)
{
    begin(); /* one optimizer a parameter, each stepped by a hook inside the backward */
    uint64_t t = 100;
    for (int i = 0; i < 5; i++, t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        for (uint32_t k = 0; k < 7; k++)
            rec(LEAT_REC_OPTIMIZER, LEAT_REC_NESTED, k, 0, t + 40 + 5 * k, t + 42 + 5 * k);
        BACKWARD(t + 30, t + 90);
    }
    finish(t);
    assert_int_equal(w.step_count, 5);
    expect(0, 10, 0, 20, 60 - 14, 14, 0, 0);
    expect(4, 10, 0, 20, 60 - 14, 14, 0, 10);
    done();
}

static void test_optimizer_around_optimizer(void **state)
{
    begin(); /* GradScaler.step() and the step() it calls are one */
    uint64_t t = 100;
    for (int i = 0; i < 5; i++, t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        BACKWARD(t + 30, t + 60);
        OPT(0, t + 65, t + 75);
        OPT(i % 2 ? 9 : 0, t + 60, t + 80);
    }
    finish(t);
    assert_int_equal(w.step_count, 5);
    expect(1, 10, 0, 20, 30, 5 + 10, 0, 20 + 5); /* the outer one is known when it ends */
    done();
}

static void test_explicit_steps(void **state)
{
    begin(); /* leat.step() after two optimizers' worth of work each */
    uint64_t t = 100;
    for (int i = 0; i < 5; i++, t += 200) {
        FETCH(1, 1, 4, t, t + 10);
        BACKWARD(t + 30, t + 57);
        OPT(0, t + 60, t + 80);
        BACKWARD(t + 100, t + 130);
        OPT(0, t + 130, t + 140);
        STEP(t + 150);
        feed();
    }
    OPT(0, t, t + 10); /* after the last leat.step(): part of no step */
    finish(t + 50);
    assert_int_equal(w.step_count, 5);
    expect(0, 10, 0, 20 + 20, 57, 30, 0, 13);
    expect(4, 10, 0, 20 + 20, 57, 30, 0, 63);
    done();
}

static void test_explicit_steps_only(void **state)
{
    begin(); /* leat.step() in a loop that never learns */
    uint64_t t = 100;
    for (int i = 0; i < 5; i++, t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        STEP(t + 90);
    }
    finish(t);
    assert_int_equal(w.step_count, 5);
    expect(0, 10, 0, 80, 0, 0, 0, 0);
    expect(1, 10, 0, 80, 0, 0, 0, 10);
    assert_int_equal(w.steps[1].flags, STEP_INFERENCE);
    assert_int_equal(count_spans("eval"), 0);
    done();
}

/* ---- evaluation --------------------------------------------------------------------------- */

static void test_eval_between_steps(void **state)
{
    begin();
    uint64_t t = 100;
    for (int i = 0; i < 3; i++)
        t = plain_step(1, 1, t); /* the optimizer ended at t - 3 */
    ITER(2, 2, t, t + 100);
    FETCH(2, 2, 4, t + 100, t + 500);
    SPAN(NAMED, N_USER, t + 500, t + 510);
    FETCH(2, 2, 4, t + 600, t + 700);
    END(2, 2, t + 800, t + 801);
    plain_step(1, 1, t + 811);
    finish(t + 1000);
    assert_int_equal(w.step_count, 4);
    expect(3, 10, 0, 20, 30, 15, 0, 3 + 10 + 5);
    assert_int_equal(w.steps[3].wall_ns, 93);
    assert_int_equal(w.steps[3].flags, STEP_AFTER_EVAL);
    assert_int_equal(w.steps[3].micro_steps, 1);
    assert_int_equal(w.steps[2].flags, 0);
    assert_int_equal(count_spans("eval"), 1);
    expect_span(0, "eval", t, t + 801, 0);
    expect_span(0, "logging", t + 500, t + 510, 0);
    assert_int_equal(fold_loader(w.fold, 2)->evaluated, 1);
    assert_int_equal(fold_loader(w.fold, 2)->trained, 0);
    assert_int_equal(fold_loader(w.fold, 2)->batches, 2);
    assert_int_equal(fold_loader(w.fold, 2)->wait_ns, 601);
    assert_int_equal(fold_loader(w.fold, 2)->first_wait_ns, 500);
    done();
}

static void test_eval_broken_off(void **state)
{
    begin(); /* to the start of the next event of another kind */
    uint64_t t = plain_step(1, 1, 100);
    ITER(2, 2, t, t + 10);
    FETCH(2, 2, 4, t + 10, t + 50);
    FETCH(2, 2, 4, t + 70, t + 90);
    plain_step(1, 1, t + 200);
    finish(t + 1000);
    expect(1, 10, 0, 20, 30, 15, 0, 3 + 5);
    expect_span(0, "eval", t, t + 200, 0);
    done();
    begin();
    t = plain_step(1, 1, 100);
    FETCH(2, 2, 4, t, t + 50);
    SPAN(NAMED, N_CHECKPOINT, t + 80, t + 90);
    plain_step(1, 1, t + 200);
    finish(t + 1000);
    expect(1, 10, 0, 20, 30, 15, 0, 3 + 120 + 5);
    expect_span(0, "eval", t, t + 80, 0);
    expect_span(0, "checkpoint", t + 80, t + 90, 10);
    done();
}

static void test_eval_in_a_step(void **state)
{
    begin(); /* after the batch came: the forward goes on afterwards */
    uint64_t t = plain_step(1, 1, 100);
    FETCH(1, 1, 4, t, t + 10);
    FETCH_NOGRAD(2, 2, 4, t + 15, t + 50);
    END(2, 2, t + 60, t + 65);
    BACKWARD(t + 75, t + 80);
    OPT(0, t + 80, t + 90);
    finish(t + 100);
    expect(1, 10, 0, 5 + 10, 5, 10, 0, 3);
    expect_span(0, "eval", t + 15, t + 65, 0);
    assert_int_equal(w.steps[1].flags, STEP_AFTER_EVAL);
    done();
}

static void test_eval_broken_off_in_a_step(void **state)
{
    begin(); /* next(iter(val_loader)): the forward of the training follows at once */
    uint64_t t = plain_step(1, 1, 100);
    FETCH(1, 1, 4, t, t + 10);
    ITER(2, 2, t + 15, t + 20);
    FETCH_NOGRAD(2, 2, 4, t + 20, t + 50);
    BACKWARD(t + 75, t + 80);
    OPT(0, t + 80, t + 90);
    finish(t + 100);
    expect(1, 10, 0, 5 + 25, 5, 10, 0, 3);
    expect_span(0, "eval", t + 15, t + 50, 0);
    done();
}

static void test_eval_without_a_train_loader(void **state)
{
    begin(); /* get_batch() trains, a loader evaluates: whether it forgot no_grad, or broke off */
    uint64_t t = 1000;
    for (uint32_t i = 0; i < 6; i++, t += 200) {
        if (i % 2) {
            FETCH(2, i, 4, t, t + 60);
            END(2, i, t + 70, t + 80);
        } else {
            FETCH_NOGRAD(2, i, 4, t, t + 80);
        }
        BACKWARD(t + 100, t + 150);
        OPT(0, t + 150, t + 200);
    }
    finish(t);
    assert_int_equal(w.step_count, 6);
    for (int i = 1; i < 6; i++)
        expect(i, 0, 0, 20, 50, 50, 0, 0);
    assert_int_equal(count_spans("eval"), 6);
    assert_int_equal(fold_loader(w.fold, 2)->trained, 0);
    assert_int_equal(fold_loader(w.fold, 2)->evaluated, 6);
    done();
}

static void test_eval_with_gradients_in_a_step(void **state)
{
    begin(); /* fetched last before the backward, but another loader is known to train */
    uint64_t t = plain_step(1, 1, 100);
    FETCH(1, 1, 4, t, t + 10);
    FETCH(2, 2, 4, t + 15, t + 50);
    FETCH(2, 2, 4, t + 60, t + 65);
    BACKWARD(t + 75, t + 80);
    OPT(0, t + 80, t + 90);
    plain_step(1, 1, t + 90);
    finish(t + 300);
    expect(1, 10, 0, 5 + 10, 5, 10, 0, 3);
    expect_span(0, "eval", t + 15, t + 65, 0);
    assert_int_equal(fold_loader(w.fold, 2)->evaluated, 1);
    done();
}

/* A 400 ms evaluation fetch every 100 steps leaves the steps as they are. */
static void test_rare_slow_eval(void **state)
{
    begin();
    uint64_t t = 1000000, ms = 1000000;
    for (uint32_t i = 0; i < 500; i++, t += 10 * ms) {
        if (i % 100 == 99) {
            FETCH_NOGRAD(2, 100 + i, 4, t, t + 400 * ms);
            t += 400 * ms;
        }
        FETCH(1, 1, 4, t, t + ms / 10);
        BACKWARD(t + 4 * ms, t + 8 * ms);
        OPT(0, t + 8 * ms, t + 10 * ms);
    }
    finish(t);
    assert_int_equal(w.step_count, 500);
    for (int i = 0; i < 500; i++)
        expect(i, ms / 10, 0, 39 * ms / 10, 4 * ms, 2 * ms, 0, 0);
    assert_int_equal(count_spans("eval"), 5);
    done();
}

static void test_eval_merges(void **state)
{
    begin(); /* two evaluations that touch are one, two that do not are two */
    uint64_t t = plain_step(1, 1, 100);
    FETCH(2, 2, 4, t, t + 50);
    FETCH(3, 3, 4, t + 70, t + 80);
    END(3, 3, t + 90, t + 91);
    FETCH(2, 4, 4, t + 100, t + 110);
    END(2, 4, t + 120, t + 121);
    plain_step(1, 1, t + 200);
    finish(t + 1000);
    assert_int_equal(count_spans("eval"), 2);
    expect_span(0, "eval", t, t + 91, 0);
    expect_span(1, "eval", t + 100, t + 121, 0);
    expect(1, 10, 0, 20, 30, 15, 0, 3 + 9 + 79 + 5);
    done();
}

static void test_eval_between_micro_steps(void **state)
{
    begin(); /* a validation batch from a standing iterator, twice in a step */
    FETCH(1, 1, 4, 100, 110);
    BACKWARD(120, 130);
    FETCH_NOGRAD(2, 2, 4, 130, 140);
    FETCH(1, 1, 4, 150, 160);
    BACKWARD(170, 180);
    FETCH_NOGRAD(2, 2, 4, 180, 190);
    OPT(0, 200, 210);
    finish(300);
    expect(0, 20, 0, 20, 20, 10, 0, 0);
    assert_int_equal(w.steps[0].wall_ns, 70);
    expect_span(0, "eval", 130, 150, 0);
    expect_span(1, "eval", 180, 200, 0);
    done();
}

static void test_eval_named(void **state)
{
    begin();
    uint64_t t = plain_step(1, 1, 100);
    FETCH(2, 2, 4, t + 5, t + 50);
    SPAN(NAMED, N_EVAL, t, t + 100);
    plain_step(1, 1, t + 100);
    finish(t + 1000);
    expect(1, 10, 0, 20, 30, 15, 0, 3 + 5);
    assert_int_equal(count_spans("eval"), 1);
    expect_span(0, "eval", t, t + 100, 0);
    done();
}

static void test_eval_before_training(void **state)
{
    begin(); /* a sanity check: its batches were given out as steps, and are taken back */
    ITER(2, 1, 100, 110);
    FETCH(2, 1, 4, 110, 150);
    FETCH(2, 1, 4, 160, 190);
    END(2, 1, 200, 201);
    feed();
    assert_int_equal(w.step_count, 2);
    assert_int_equal(w.steps[0].flags, STEP_INFERENCE | STEP_EPOCH_START);
    ITER(1, 2, 400, 410);
    plain_step(1, 2, 410);
    finish(1000);
    assert_int_equal(w.drops, 1);
    assert_int_equal(w.step_count, 1);
    expect(0, 20, 0, 20, 30, 15, 0, 5);
    expect_span(0, "eval", 100, 201, 0);
    assert_int_equal(count_spans("epoch_start"), 1);
    expect_span(0, "epoch_start", 400, 420, 0);
    assert_int_equal(fold_loader(w.fold, 2)->evaluated, 1);
    done();
}

static void test_eval_after_training(void **state)
{
    begin();
    uint64_t t = plain_step(1, 1, 100);
    END(1, 1, t, t + 5);
    FETCH(2, 2, 4, t + 10, t + 50);
    END(2, 2, t + 60, t + 61);
    SPAN(NAMED, N_CHECKPOINT, t + 70, t + 90);
    finish(t + 5000);
    assert_int_equal(w.step_count, 1);
    expect_span(0, "eval", t + 10, t + 61, 0);
    expect_span(0, "checkpoint", t + 70, t + 90, 0);
    done();
}

static void test_eval_every_step(void **state)
{
    begin(); /* a fresh, short evaluation in each step, broken off, fetched with gradients on */
    uint64_t t = 100;
    for (uint32_t i = 0; i < 6; i++, t += 200) {
        FETCH(1, 1, 4, t, t + 10);
        BACKWARD(t + 30, t + 60);
        OPT(0, t + 65, t + 80);
        ITER(2, 100 + i, t + 90, t + 95);
        FETCH(2, 100 + i, 4, t + 95, t + 150);
    }
    finish(t);
    assert_int_equal(w.step_count, 6);
    for (int i = 1; i < 6; i++) {
        expect(i, 10, 0, 20, 30, 15, 0, 5 + 10);
        assert_int_equal(w.steps[i].flags, STEP_AFTER_EVAL);
    }
    assert_int_equal(fold_loader(w.fold, 2)->evaluated, 6);
    done();
}

/* ---- other threads ------------------------------------------------------------------------ */

static void test_background_fetch(void **state)
{
    begin(); /* a prefetching thread: only the time blocked on it counts */
    uint64_t t = 1000;
    for (int i = 0; i < 5; i++, t += 100) {
        w.tid = OTHER_THREAD;
        FETCH(1, 1, 4, t - 66, t + 20); /* 86 said, 13 real */
        w.tid = MAIN;
        SPAN(WAIT, 0, t + 7, t + 20);
        SPAN(WAIT, 0, t + 25, t + 26); /* no fetch at that time: part of the forward */
        BACKWARD(t + 40, t + 60);
        OPT(0, t + 60, t + 90);
        feed();
    }
    finish(t);
    assert_int_equal(w.step_count, 5);
    for (int i = 1; i < 5; i++) {
        expect(i, 13, 0, 20, 20, 30, 0, 17);
        assert_int_equal(w.steps[i].micro_steps, 1);
        assert_int_equal(w.steps[i].samples, 4);
    }
    const struct fold_loader *l = fold_loader(w.fold, 1);
    assert_int_equal(l->wait_ns, 0);
    assert_int_equal(l->background_ns, 5 * 86);
    assert_int_equal(l->trained, 1);
    done();
}

static void test_background_order(void **state)
{
    begin(); /* the ring of the other thread is read later: the order in a feed does not matter */
    for (int i = 0; i < 5; i++) {
        uint64_t t = 1000 + 100 * (uint64_t)i;
        SPAN(WAIT, 0, t + 7, t + 20);
        BACKWARD(t + 40, t + 60);
        OPT(0, t + 60, t + 90);
    }
    w.tid = OTHER_THREAD;
    for (int i = 0; i < 5; i++) {
        uint64_t t = 1000 + 100 * (uint64_t)i;
        FETCH(1, 1, 4, t - 66, t + 20);
    }
    finish(2000);
    assert_int_equal(w.step_count, 5);
    expect(0, 13, 0, 20, 20, 30, 0, 0);
    expect(4, 13, 0, 20, 20, 30, 0, 17);
    done();
}

static void test_background_late(void **state)
{
    begin(); /* a record that comes one drain late still lands in its step */
    w.tid = OTHER_THREAD;
    FETCH(1, 1, 4, 900, 920);
    w.tid = MAIN;
    BACKWARD(940, 960);
    OPT(0, 960, 990);
    feed();
    SPAN(WAIT, 0, 1000, 1020);
    BACKWARD(1040, 1060);
    OPT(0, 1060, 1090);
    feed();
    w.tid = OTHER_THREAD;
    FETCH(1, 1, 4, 930, 1020);
    finish(2000);
    assert_int_equal(w.step_count, 2);
    expect(1, 20, 0, 20, 20, 30, 0, 10);
    done();
}

static void test_background_without_wait(void **state)
{
    begin(); /* it keeps up: no input at all, and what precedes the backward is the forward */
    for (int i = 0; i < 5; i++) {
        uint64_t t = 1000 + 100 * (uint64_t)i;
        w.tid = OTHER_THREAD;
        FETCH(1, 1, 4, t - 66, t + 20);
        w.tid = MAIN;
        BACKWARD(t + 40, t + 60);
        OPT(0, t + 60, t + 90);
    }
    finish(2000);
    expect(2, 0, 0, 50, 20, 30, 0, 0);
    assert_int_equal(w.steps[2].micro_steps, 1);
    assert_int_equal(count_spans("eval"), 0);
    done();
}

static void test_background_runs_ahead(void **state)
{
    begin(); /* the whole epoch is fetched before the first backward */
    w.tid = OTHER_THREAD;
    for (uint64_t i = 0; i < 3; i++)
        FETCH(1, 1, 4, 900 + 10 * i, 910 + 10 * i);
    END(1, 1, 930, 931);
    w.tid = MAIN;
    for (uint64_t t = 1000; t < 1300; t += 100) {
        BACKWARD(t + 40, t + 60);
        OPT(0, t + 60, t + 90);
    }
    finish(2000);
    assert_int_equal(w.step_count, 3);
    assert_int_equal(w.steps[0].micro_steps, 3);
    assert_int_equal(fold_loader(w.fold, 1)->trained, 1);
    assert_int_equal(count_spans("eval"), 0);
    done();
}

static void test_wait_in_backward(void **state)
{
    begin();
    w.tid = OTHER_THREAD;
    FETCH(1, 1, 4, 1000, 1055);
    w.tid = MAIN;
    SPAN(WAIT, 0, 1045, 1055);
    BACKWARD(1040, 1060);
    OPT(0, 1060, 1090);
    finish(2000);
    expect(0, 0, 0, 0, 20, 30, 0, 0);
    done();
}

static void test_training_thread_moves(void **state)
{
    begin(); /* each trial of a search trains in a thread of its own */
    uint64_t t = 1000;
    for (int trial = 0; trial < 3; trial++) {
        w.tid = MAIN + trial;
        for (int i = 0; i < 4; i++)
            t = plain_step(1, (uint32_t)trial, t);
    }
    finish(t);
    assert_int_equal(w.step_count, 12);
    expect(9, 10, 0, 20, 30, 15, 0, 8);
    done();
}

/* ---- inference ---------------------------------------------------------------------------- */

static void test_inference(void **state)
{
    begin();
    ITER(1, 1, 100, 120);
    FETCH(1, 1, 4, 125, 140);
    SPAN(SYNC, N_ALLREDUCE, 150, 155);
    FETCH(1, 1, 4, 160, 170);
    FETCH(1, 1, 4, 200, 230);
    END(1, 1, 260, 265);
    finish(5000);
    assert_int_equal(w.step_count, 3);
    expect(0, 35, 0, 15, 0, 0, 5, 5);
    expect(1, 10, 0, 30, 0, 0, 0, 0);
    expect(2, 30, 0, 30, 0, 0, 0, 0);
    assert_int_equal(w.steps[0].wall_ns, 60);
    assert_int_equal(w.steps[2].end_ns, 260);
    assert_int_equal(w.steps[1].flags, STEP_INFERENCE);
    assert_int_equal(w.steps[1].samples, 4);
    assert_int_equal(w.drops, 0);
    assert_int_equal(count_spans("all_reduce"), 1);
    expect_span(0, "epoch_start", 100, 140, 0);
    assert_int_equal(fold_loader(w.fold, 1)->batches, 3);
    assert_int_equal(fold_loader(w.fold, 1)->wait_ns, 20 + 15 + 10 + 30 + 5);
    assert_int_equal(fold_loader(w.fold, 1)->trained, 0);
    done();
}

static void test_inference_left(void **state)
{
    begin(); /* broken off: the last batch lasts as long as the one before, or to the end */
    FETCH(1, 1, 4, 100, 110);
    FETCH(1, 1, 4, 150, 160);
    finish(5000);
    assert_int_equal(w.step_count, 2);
    expect(1, 10, 0, 40, 0, 0, 0, 0);
    done();
    begin();
    FETCH(1, 1, 4, 100, 110);
    FETCH(1, 1, 4, 150, 160);
    finish(170);
    expect(1, 10, 0, 10, 0, 0, 0, 0);
    done();
}

static void test_inference_with_backward(void **state)
{
    begin(); /* SGD by hand: a step for each batch */
    uint64_t t = 100;
    for (int i = 0; i < 11; i++, t += 100) {
        FETCH(1, 1, 4, t, t + 10);
        BACKWARD(t + 30, t + 60);
    }
    END(1, 1, t, t + 1);
    finish(t);
    assert_int_equal(w.step_count, 11);
    for (int i = 0; i < 11; i++)
        expect(i, 10, 0, 20, 30, 0, 0, 40);
    done();
}

static void test_inference_wrapped(void **state)
{
    begin();
    uint64_t t = 100;
    for (int i = 0; i < 7; i++, t += 100) {
        FETCH(1, 1, 4, t + 1, t + 9);
        feed();
        FETCH(2, 2, 4, t, t + 10);
        feed();
    }
    finish(t);
    assert_int_equal(w.step_count, 7);
    done();
}

/* Gives `n` batches without any backward in one go, then a training step. */
static void test_endless_inference(void **state)
{
    begin();
    w.step_count = 0;
    struct fold_sink quiet = {NULL, NULL, on_drop, on_span};
    fold_free(w.fold);
    assert_int_equal(fold_new(0, ~0u, &quiet, &w.fold), 0);
    uint64_t t = 100;
    for (int round = 0; round < 500; round++) {
        for (int i = 0; i < 1000; i++, t += 100)
            FETCH(1, 1, 4, t, t + 10);
        feed();
    }
    assert_int_equal(fold_steps(w.fold), 499999);
    END(1, 1, t, t + 1);
    ITER(2, 2, t + 50, t + 60);
    plain_step(2, 2, t + 60);
    feed();
    assert_int_equal(fold_end(w.fold, t), 0);
    assert_int_equal(fold_steps(w.fold), 1);
    assert_int_equal(w.drops, 1);
    expect_span(0, "eval", 100, t + 1, 0);
    assert_int_equal(fold_loader(w.fold, 1)->batches, 500000);
    assert_int_equal(fold_loader(w.fold, 1)->evaluated, 1);
    done();
}

static void test_huge_eval(void **state)
{
    begin(); /* half a million evaluation batches inside one step, fed over many drains */
    uint64_t t = plain_step(1, 1, 100);
    uint64_t from = t;
    for (int round = 0; round < 500; round++) {
        for (int i = 0; i < 1000; i++, t += 10)
            FETCH(2, 2, 4, t, t + 5);
        feed();
    }
    END(2, 2, t, t + 1);
    plain_step(1, 1, t + 1);
    finish(t + 100);
    assert_int_equal(w.step_count, 2);
    expect(1, 10, 0, 20, 30, 15, 0, 3 + 5);
    assert_int_equal(count_spans("eval"), 1);
    expect_span(0, "eval", from, t + 1, 0);
    done();
}

static void test_huge_accumulation(void **state)
{
    begin(); /* 200 000 micro-steps in a step: the sums stay exact */
    uint64_t t = plain_step(1, 1, 100) - 3;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 1000; i++, t += 100) {
            FETCH(1, 1, 4, t, t + 10);
            BACKWARD(t + 30, t + 100);
        }
        feed();
    }
    OPT(0, t, t + 5);
    finish(t + 100);
    assert_int_equal(w.step_count, 2);
    expect(1, 200000 * 10, 0, 200000 * 20, 200000 * 70, 5, 0, 0);
    assert_int_equal(w.steps[1].micro_steps, 200000);
    assert_int_equal(w.steps[1].samples, 800000);
    done();
}

/* ---- random streams ------------------------------------------------------------------------ */

static uint64_t seed;

static uint64_t dice(uint64_t sides)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % sides;
}

static uint64_t now;

static uint64_t pass(uint64_t most)
{
    return now += dice(most + 1);
}

/* A span with up to `depth` levels of others in it. */
static void random_span(int kind, uint32_t id, uint64_t arg, unsigned flags, int depth)
{
    uint64_t t0 = pass(3);
    for (uint64_t n = depth > 0 ? dice(3) : 0; n-- > 0;) {
        static const int inner[] = {LEAT_REC_SYNC,    LEAT_REC_H2D,  LEAT_REC_NAMED,
                                    LEAT_REC_COMPILE, LEAT_REC_WAIT, LEAT_REC_CLOSURE};
        int k = inner[dice(6)];
        random_span(k, k == LEAT_REC_NAMED ? 1 + (uint32_t)dice(8) : 0, 0, 0, depth - 1);
    }
    rec(kind, flags, id, arg, t0, pass(5));
}

static void random_background(void)
{
    w.tid = OTHER_THREAD;
    uint64_t back = dice(20), keep = now;
    now -= back < now ? back : 0;
    random_span(LEAT_REC_FETCH, 9, LEAT_FETCH_ARG(99, dice(5)), 0, 0);
    now = keep > now ? keep : now;
    w.tid = MAIN;
}

/* One legal script: steps with micro-steps, evaluations of all shapes, named spans, threads.
 * Returns how often its one optimizer stepped. */
static int random_stream(void)
{
    int steps = 0;
    uint32_t iteration = 1;
    bool threads = dice(3) == 0;
    now = 1000 + dice(100);
    for (uint64_t n = dice(40); n-- > 0;) {
        if (dice(6) == 0) {
            uint32_t it = ++iteration + 1000;
            random_span(LEAT_REC_ITER, 2, LEAT_FETCH_ARG(it, 0), 0, 1);
            for (uint64_t k = dice(5); k-- > 0;)
                random_span(LEAT_REC_FETCH, 2, LEAT_FETCH_ARG(it, dice(3)),
                            dice(2) ? LEAT_REC_NOGRAD : 0, 1);
            if (dice(2))
                random_span(LEAT_REC_FETCH, 2, LEAT_FETCH_ARG(it, 0), LEAT_REC_END, 0);
        }
        if (dice(8) == 0) {
            random_span(LEAT_REC_FETCH, 1, LEAT_FETCH_ARG(iteration, 0), LEAT_REC_END, 0);
            random_span(LEAT_REC_ITER, 1, LEAT_FETCH_ARG(++iteration, 0), 0, 2);
        }
        for (uint64_t k = dice(4); k-- > 0;) {
            if (dice(5))
                random_span(LEAT_REC_FETCH, 1, LEAT_FETCH_ARG(iteration, dice(4)), 0, 2);
            if (threads)
                random_background();
            if (dice(5))
                random_span(LEAT_REC_BACKWARD, 0, 0, 0, 3);
            if (dice(5) == 0)
                random_span(LEAT_REC_NAMED, 1 + (uint32_t)dice(8), 0, 0, 2);
        }
        pass(2);
        now++; /* an optimizer does not start before the last has ended */
        random_span(LEAT_REC_OPTIMIZER, 0, 0, 0, 2);
        steps++;
    }
    return steps;
}

/* Between the ends of two steps there is the later step, evaluation, and nothing else. */
static void check_conserved(int step)
{
    uint64_t from = w.steps[step - 1].end_ns, to = w.steps[step].end_ns, eval = 0;
    for (int i = 0; i < w.span_count; i++) {
        const struct told *t = &w.spans[i];
        uint64_t a = t->a > from ? t->a : from, b = t->b < to ? t->b : to;
        if (strcmp(t->name, "eval") == 0 && a < b)
            eval += b - a;
    }
    assert_int_equal(to - from, w.steps[step].wall_ns + eval);
}

static void test_random_streams(void **state)
{
    for (uint64_t i = 0; i < 10000; i++) {
        begin();
        seed = i;
        int steps = random_stream();
        /* In feeds of any size the answer is the same. */
        int n = w.record_count, cut = n > 0 ? (int)dice((uint64_t)n) : 0;
        assert_int_equal(fold_feed(w.fold, w.records, cut), 0);
        assert_int_equal(fold_feed(w.fold, w.records + cut, n - cut), 0);
        assert_int_equal(fold_end(w.fold, now), 0);
        if (fold_steps(w.fold) != steps && steps > 0)
            fail_msg("stream %lu: %ld steps, expected %d", (unsigned long)i,
                     (long)fold_steps(w.fold), steps);
        uint64_t records = 0;
        for (int k = 0; k < w.step_count; k++) {
            records += w.steps[k].records;
            if (k > 0 && steps > 0)
                check_conserved(k);
        }
        assert_true(records <= (uint64_t)n);
        done();
    }
}

/* Bytes of a process that scribbled over its ring: anything but a crash. */
static void test_garbage(void **state)
{
    for (uint64_t i = 0; i < 2000; i++) {
        begin();
        seed = i;
        struct ring_record junk[200];
        for (int k = 0; k < 200; k++) {
            uint64_t t0 = dice(3) ? dice(1000) : dice(1 << 30) << 34, t1 = t0 + dice(200);
            junk[k] = (struct ring_record){
                .rec = {t0, dice(50) ? t1 : UINT64_MAX, dice(4) << 32 | dice(3),
                        (uint32_t)dice(400), (uint16_t)(1 + dice(LEAT_REC_KINDS - 1)),
                        (uint16_t)dice(32)},
                .tid = (int32_t)dice(3)
            };
        }
        for (int k = 0; k < 200; k += 40)
            assert_int_equal(fold_feed(w.fold, junk + k, 40), 0);
        assert_int_equal(fold_end(w.fold, 5000), 0);
        done();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_feeds_of_one),
        cmocka_unit_test(test_times_are_relative),
        cmocka_unit_test(test_h2d_and_sync),
        cmocka_unit_test(test_nested_in_input),
        cmocka_unit_test(test_missing_signals),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_named_around_steps),
        cmocka_unit_test(test_named_input),
        cmocka_unit_test(test_compile_is_transparent),
        cmocka_unit_test(test_closure),
        cmocka_unit_test(test_exception),
        cmocka_unit_test(test_samples_unknown),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_no_loader),
        cmocka_unit_test(test_one_step_without_fetch),
        cmocka_unit_test(test_two_steps_a_batch),
        cmocka_unit_test(test_backward_twice),
        cmocka_unit_test(test_no_backward_seen),
        cmocka_unit_test(test_prefetch),
        cmocka_unit_test(test_prefetch_over_epochs),
        cmocka_unit_test(test_new_iterator_each_step),
        cmocka_unit_test(test_two_loaders),
        cmocka_unit_test(test_loader_in_loader),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_phase_switch),
        cmocka_unit_test(test_gan_phases),
        cmocka_unit_test(test_optimizer_in_backward),
        cmocka_unit_test(test_optimizer_around_optimizer),
        cmocka_unit_test(test_explicit_steps),
        cmocka_unit_test(test_explicit_steps_only),
        cmocka_unit_test(test_eval_between_steps),
        cmocka_unit_test(test_eval_broken_off),
        cmocka_unit_test(test_eval_in_a_step),
        cmocka_unit_test(test_eval_broken_off_in_a_step),
        cmocka_unit_test(test_rare_slow_eval),
        cmocka_unit_test(test_eval_without_a_train_loader),
        cmocka_unit_test(test_eval_with_gradients_in_a_step),
        cmocka_unit_test(test_background_runs_ahead),
        cmocka_unit_test(test_eval_merges),
        cmocka_unit_test(test_eval_between_micro_steps),
        cmocka_unit_test(test_eval_named),
        cmocka_unit_test(test_eval_before_training),
        cmocka_unit_test(test_eval_after_training),
        cmocka_unit_test(test_eval_every_step),
        cmocka_unit_test(test_background_fetch),
        cmocka_unit_test(test_background_order),
        cmocka_unit_test(test_background_late),
        cmocka_unit_test(test_background_without_wait),
        cmocka_unit_test(test_wait_in_backward),
        cmocka_unit_test(test_training_thread_moves),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_inference_left),
        cmocka_unit_test(test_inference_with_backward),
        cmocka_unit_test(test_inference_wrapped),
        cmocka_unit_test(test_endless_inference),
        cmocka_unit_test(test_huge_eval),
        cmocka_unit_test(test_huge_accumulation),
        cmocka_unit_test(test_random_streams),
        cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
