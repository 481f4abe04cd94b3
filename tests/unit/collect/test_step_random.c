/* test_step_random.c: invariants of the step builder under random streams. */
#include "step_world.h"

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
        const struct reported *t = &w.spans[i];
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
        /* The result does not depend on the size of the feeds. */
        int n = w.record_count, cut = n > 0 ? (int)dice((uint64_t)n) : 0;
        assert_int_equal(step_builder_feed(w.builder, w.records, cut), 0);
        assert_int_equal(step_builder_feed(w.builder, w.records + cut, n - cut), 0);
        assert_int_equal(step_builder_end(w.builder, now), 0);
        if (step_builder_steps(w.builder) != steps && steps > 0)
            fail_msg("stream %lu: %ld steps, expected %d", (unsigned long)i,
                     (long)step_builder_steps(w.builder), steps);
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

/* Random bytes in a ring: any result is fine but a crash. */
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
            assert_int_equal(step_builder_feed(w.builder, junk + k, 40), 0);
        assert_int_equal(step_builder_end(w.builder, 5000), 0);
        done();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_streams),
        cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
