/* test_step_eval.c: what is not the training: evaluations, and the work of other threads. */
#include "step_world.h"

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
    assert_int_equal(step_builder_loader(w.builder, 2)->evaluated, 1);
    assert_int_equal(step_builder_loader(w.builder, 2)->trained, 0);
    assert_int_equal(step_builder_loader(w.builder, 2)->batches, 2);
    assert_int_equal(step_builder_loader(w.builder, 2)->wait_ns, 601);
    assert_int_equal(step_builder_loader(w.builder, 2)->first_wait_ns, 500);
    done();
}

static void test_eval_interrupted(void **state)
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

static void test_eval_interrupted_in_a_step(void **state)
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
    begin(); /* get_batch() trains, a loader evaluates: with gradients on, or interrupted */
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
    assert_int_equal(step_builder_loader(w.builder, 2)->trained, 0);
    assert_int_equal(step_builder_loader(w.builder, 2)->evaluated, 6);
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
    assert_int_equal(step_builder_loader(w.builder, 2)->evaluated, 1);
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
    begin(); /* a sanity check: its batches were emitted as steps, and are dropped */
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
    assert_int_equal(step_builder_loader(w.builder, 2)->evaluated, 1);
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
    begin(); /* a new, short, interrupted evaluation in each step, fetched with gradients on */
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
    assert_int_equal(step_builder_loader(w.builder, 2)->evaluated, 6);
    done();
}

/* ---- other threads ------------------------------------------------------------------------ */

static void test_background_fetch(void **state)
{
    begin(); /* a prefetching thread: only the time blocked on it counts */
    uint64_t t = 1000;
    for (int i = 0; i < 5; i++, t += 100) {
        w.tid = OTHER_THREAD;
        FETCH(1, 1, 4, t - 66, t + 20); /* 86 recorded, 13 waited for */
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
    const struct loader_totals *l = step_builder_loader(w.builder, 1);
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
    begin(); /* it is fast enough: no input at all; the time before the backward is the forward */
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
    assert_int_equal(step_builder_loader(w.builder, 1)->trained, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eval_between_steps),
        cmocka_unit_test(test_eval_interrupted),
        cmocka_unit_test(test_eval_in_a_step),
        cmocka_unit_test(test_eval_interrupted_in_a_step),
        cmocka_unit_test(test_eval_without_a_train_loader),
        cmocka_unit_test(test_eval_with_gradients_in_a_step),
        cmocka_unit_test(test_rare_slow_eval),
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
        cmocka_unit_test(test_background_runs_ahead),
        cmocka_unit_test(test_wait_in_backward),
        cmocka_unit_test(test_training_thread_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
