/* spans.h: samples read straight from a source, as the engine reads them, for tests of sources of
 * samples of different length. */
#ifndef LEAT_TESTS_SPANS_H
#define LEAT_TESTS_SPANS_H

#include "samples.h"

/* Memory of one request, freed with it: `most` pieces, then none. */
struct arena {
    void *pieces[4096];
    size_t count, most;
};

static inline void *test_alloc(const struct source_request *request, uint64_t bytes)
{
    struct arena *arena = request->alloc_owner;
    if (arena->count == arena->most)
        return NULL;
    return arena->pieces[arena->count++] = aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static inline void arena_done(struct arena *arena)
{
    while (arena->count)
        free(arena->pieces[--arena->count]);
}

/* What was reported as bad: how often, and the last message. */
struct bad_count {
    struct source_report base;
    size_t count, place;
    int code;
    char text[256];
};

static inline void count_bad(struct source_report *report, size_t place, int code, const char *text)
{
    struct bad_count *bad = (struct bad_count *)report;
    bad->count++;
    bad->place = place;
    bad->code = code;
    snprintf(bad->text, sizeof bad->text, "%s", text);
}

/* Reads `count` samples into `places`; what was bad is added to `bad`. */
static inline int read_some(struct leat_source *source, const int64_t *indices, size_t count,
                            uint8_t *const *places, struct arena *arena, struct bad_count *bad)
{
    struct source_request request = {.indices = indices,
                                     .count = count,
                                     .places = places,
                                     .alloc = test_alloc,
                                     .alloc_owner = arena};
    bad->base.bad = count_bad;
    return source->ops->read(source, &request, &bad->base, &err);
}

#endif
