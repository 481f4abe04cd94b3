/* step_world.h: common code of the step builder's tests.
 *
 * A stream is written as the script would make it, one line per span: FETCH(loader, iteration,
 * samples, t0, t1) and so on, in the order in which the spans end. Times are small numbers of
 * nanoseconds. Every step that comes out is checked to be the exact sum of its phases, whatever
 * else a test checks. */
#ifndef LEAT_TESTS_FOLD_WORLD_H
#define LEAT_TESTS_FOLD_WORLD_H

#include "collect/step_builder.h"

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

struct reported {
    char name[32];
    int64_t step;
    uint64_t a, b, other;
};

static struct world {
    struct step_builder *builder;
    struct step_row steps[MOST];
    int step_count, drops;
    struct reported spans[MOST];
    int span_count;
    struct ring_record records[MOST];
    int record_count;
    int32_t tid;
} w;

static inline void on_step(void *context, const struct step_row *row)
{
    uint64_t sum = 0;
    int saturated = row->wall_ns == INT64_MAX; /* of garbage */
    for (int i = 0; i < PHASES; i++) {
        sum += row->phase_ns[i] == STORE_NULL ? 0 : (uint64_t)row->phase_ns[i];
        saturated |= row->phase_ns[i] == INT64_MAX;
    }
    if (!saturated)
        assert_int_equal(sum, row->wall_ns);
    assert_int_equal(row->id, w.step_count);
    assert_true(w.step_count < MOST);
    w.steps[w.step_count++] = *row;
}

static inline void on_drop(void *context)
{
    w.drops++;
    w.step_count = 0;
}

static inline void on_span(void *context, const char *name, int64_t step, uint64_t a, uint64_t b,
                           uint64_t other)
{
    assert_true(w.span_count < MOST);
    struct reported *t = &w.spans[w.span_count++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->step = step;
    t->a = a;
    t->b = b;
    t->other = other;
    assert_true(b >= a);
    assert_true(other <= b - a);
}

static inline void begin_with(uint32_t signals)
{
    memset(&w, 0, sizeof w);
    w.tid = MAIN;
    struct step_sink sink = {NULL, on_step, on_drop, on_span};
    assert_int_equal(step_builder_new(0, signals, &sink, &w.builder), 0);
    step_builder_name(w.builder, N_CHECKPOINT, "checkpoint");
    step_builder_name(w.builder, N_EVAL, "eval");
    step_builder_name(w.builder, N_USER, "logging");
    step_builder_name(w.builder, N_FORWARD, "forward");
    step_builder_name(w.builder, N_INPUT, "input");
    step_builder_name(w.builder, N_ALLREDUCE, "all_reduce");
    step_builder_name(w.builder, N_BACKWARD, "backward");
    step_builder_name(w.builder, N_NESTED, "plots");
}

static inline void begin(void)
{
    begin_with(~0u);
}

static inline void rec(int kind, unsigned flags, uint32_t id, uint64_t arg, uint64_t t0,
                       uint64_t t1)
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

static inline void feed(void)
{
    assert_int_equal(step_builder_feed(w.builder, w.records, w.record_count), 0);
    w.record_count = 0;
}

static inline void finish(uint64_t end)
{
    feed();
    assert_int_equal(step_builder_end(w.builder, end), 0);
    assert_int_equal(step_builder_steps(w.builder), w.step_count);
}

static inline void done(void)
{
    step_builder_free(w.builder);
    w.builder = NULL;
}

/* The phases of a step in the order of the columns. */
static inline void expect(int step, uint64_t input, uint64_t h2d, uint64_t forward,
                          uint64_t backward, uint64_t optimizer, uint64_t sync, uint64_t other)
{
    const uint64_t want[PHASES] = {input, h2d, forward, backward, optimizer, sync, other};
    assert_true(step < w.step_count);
    for (int i = 0; i < PHASES; i++) {
        int64_t ns = w.steps[step].phase_ns[i];
        if ((ns == STORE_NULL ? 0 : ns) != (int64_t)want[i])
            fail_msg("step %d %s: %ld, expected %lu", step, leat_phase_names[i], (long)ns,
                     (unsigned long)want[i]);
    }
}

static inline int count_spans(const char *name)
{
    int n = 0;
    for (int i = 0; i < w.span_count; i++)
        n += strcmp(w.spans[i].name, name) == 0;
    return n;
}

static inline void expect_span(int nth, const char *name, uint64_t a, uint64_t b, uint64_t other)
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
static inline uint64_t plain_step(uint32_t loader, uint32_t it, uint64_t t)
{
    FETCH(loader, it, 4, t, t + 10);
    BACKWARD(t + 30, t + 60);
    OPT(0, t + 65, t + 80);
    return t + 83;
}

#endif
