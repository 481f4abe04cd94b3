/* test_step_builder.c: where steps end: one optimizer, several, leat.step(), and none at all. */
#include "step_world.h"

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
    begin(); /* one optimizer per parameter, each stepped by a hook inside the backward */
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
    begin(); /* leat.step() after two optimizer steps each */
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
    begin(); /* leat.step() in a loop without training */
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
    assert_int_equal(step_builder_loader(w.builder, 1)->batches, 3);
    assert_int_equal(step_builder_loader(w.builder, 1)->wait_ns, 20 + 15 + 10 + 30 + 5);
    assert_int_equal(step_builder_loader(w.builder, 1)->trained, 0);
    done();
}

static void test_inference_left(void **state)
{
    begin(); /* interrupted: the last batch lasts as long as the one before, or to the end */
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
        expect(i, 10, 0, 20, 30, 40, 0, 0); /* the update after it counts as optimizer */
    done();
}

static void test_updates_by_hand_with_evaluation(void **state)
{
    begin(); /* before the first epoch, and after each of two */
    uint64_t t = 100;
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        for (int i = 0; i < (epoch ? 11 : 0); i++, t += 100) {
            FETCH(1, 2 * epoch, 4, t, t + 10);
            BACKWARD(t + 30, t + 60);
        }
        END(1, 2 * epoch, t, t + 1);
        for (int i = 0; i < 5; i++, t += 100)
            FETCH_NOGRAD(2, 2 * epoch + 1, 4, t + 1, t + 10);
        END(2, 2 * epoch + 1, t, t + 1);
        feed();
    }
    finish(t);
    assert_int_equal(w.step_count, 22);
    for (int i = 0; i < 22; i++)
        expect(i, 10, 0, 20, 30, 40, 0, 0);
    done();
    begin(); /* gradients only where they are needed: these are steps */
    for (t = 100; t < 800; t += 100) {
        FETCH_NOGRAD(1, 1, 4, t, t + 10);
        BACKWARD(t + 30, t + 60);
    }
    finish(t);
    assert_int_equal(w.step_count, 7);
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
    struct step_sink quiet = {NULL, NULL, on_drop, on_span};
    step_builder_free(w.builder);
    assert_int_equal(step_builder_new(0, ~0u, &quiet, &w.builder), 0);
    uint64_t t = 100;
    for (int round = 0; round < 500; round++) {
        for (int i = 0; i < 1000; i++, t += 100)
            FETCH(1, 1, 4, t, t + 10);
        feed();
    }
    assert_int_equal(step_builder_steps(w.builder), 499999);
    END(1, 1, t, t + 1);
    ITER(2, 2, t + 50, t + 60);
    plain_step(2, 2, t + 60);
    feed();
    assert_int_equal(step_builder_end(w.builder, t), 0);
    assert_int_equal(step_builder_steps(w.builder), 1);
    assert_int_equal(w.drops, 1);
    expect_span(0, "eval", 100, t + 1, 0);
    assert_int_equal(step_builder_loader(w.builder, 1)->batches, 500000);
    assert_int_equal(step_builder_loader(w.builder, 1)->evaluated, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_phase_switch),
        cmocka_unit_test(test_gan_phases),
        cmocka_unit_test(test_optimizer_in_backward),
        cmocka_unit_test(test_optimizer_around_optimizer),
        cmocka_unit_test(test_explicit_steps),
        cmocka_unit_test(test_explicit_steps_only),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_inference_left),
        cmocka_unit_test(test_inference_with_backward),
        cmocka_unit_test(test_updates_by_hand_with_evaluation),
        cmocka_unit_test(test_inference_wrapped),
        cmocka_unit_test(test_endless_inference),
        cmocka_unit_test(test_huge_eval),
        cmocka_unit_test(test_huge_accumulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
