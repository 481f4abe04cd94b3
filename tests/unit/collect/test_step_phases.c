/* test_step_phases.c: the phase of each nanosecond of a step, in loops of every shape. */
#include "step_world.h"

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
    const struct loader_totals *l = step_builder_loader(w.builder, 1);
    assert_int_equal(l->iterations, 1);
    assert_int_equal(l->batches, 7);
    assert_int_equal(l->samples, 28);
    assert_int_equal(l->wait_ns, 7 + 70 + 2);
    assert_int_equal(l->first_wait_ns, 17);
    assert_int_equal(l->trained, 1);
    assert_int_equal(l->evaluated, 0);
    assert_null(step_builder_loader(w.builder, 2));
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
        assert_int_equal(step_builder_feed(w.builder, &all[i], 1), 0);
    w.record_count = 0;
    assert_int_equal(step_builder_steps(w.builder), 6); /* the last is pending */
    assert_int_equal(step_builder_step_at(w.builder), 7);
    finish(t);
    assert_int_equal(w.step_count, 7);
    expect(6, 10, 0, 20, 30, 15, 0, 8);
    done();
}

static void test_times_are_relative(void **state)
{
    begin();
    step_builder_free(w.builder);
    struct step_sink sink = {NULL, on_step, on_drop, on_span};
    assert_int_equal(step_builder_new(5000, 0, &sink, &w.builder), 0);
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
    assert_int_equal(w.steps[0].phase_ns[PHASE_H2D], STORE_NULL);
    assert_int_equal(w.steps[0].phase_ns[PHASE_SYNC], STORE_NULL);
    assert_int_not_equal(w.steps[0].phase_ns[PHASE_INPUT], STORE_NULL);
    assert_int_not_equal(w.steps[0].phase_ns[PHASE_OTHER], STORE_NULL);
    done();
    begin_with(0);
    step_builder_signals(w.builder, LEAT_SIGNAL_H2D);
    plain_step(1, 1, 100);
    finish(1000);
    assert_int_not_equal(w.steps[0].phase_ns[PHASE_H2D], STORE_NULL);
    assert_int_equal(w.steps[0].phase_ns[PHASE_SYNC], STORE_NULL);
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
    assert_int_equal(w.steps[0].samples, STORE_NULL);
    assert_int_equal(w.steps[0].micro_steps, 2);
    assert_int_equal(w.steps[1].samples, STORE_NULL);
    assert_int_equal(w.steps[1].micro_steps, 0);
    done();
}

/* ---- loops of other shapes ---------------------------------------------------------------- */

static void test_accumulation(void **state)
{
    begin(); /* 8 micro-steps per step, the first round before any optimizer is known */
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
    assert_int_equal(step_builder_loader(w.builder, 1)->trained, 1);
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
    assert_int_equal(step_builder_loader(w.builder, 1)->trained, 2);
    done();
}

static void test_new_iterator_each_step(void **state)
{
    begin(); /* next(iter(loader)), more iterations than the table holds */
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
    assert_int_equal(step_builder_loader(w.builder, 1)->trained, 700);
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
    assert_int_equal(step_builder_loader(w.builder, 1)->trained, 1);
    assert_int_equal(step_builder_loader(w.builder, 1)->evaluated, 0);
    assert_int_equal(step_builder_loader(w.builder, 2)->trained, 1);
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
    assert_int_equal(step_builder_loader(w.builder, 1)->trained, 1);
    assert_int_equal(step_builder_loader(w.builder, 2)->trained, 1);
    assert_int_equal(count_spans("eval"), 0);
    done();
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
