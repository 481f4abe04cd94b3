/* spans.h: samples read straight from a source, as the engine reads them, for tests of sources of
 * samples of different length. */
#ifndef LEAT_TESTS_SPANS_H
#define LEAT_TESTS_SPANS_H

#include "samples.h"

/* Room of one request: what was given out is freed with it. `most` pieces are given, then none. */
struct room {
    void *pieces[4096];
    size_t count, most;
};

static inline void *room_of_test(const struct source_request *request, uint64_t bytes)
{
    struct room *room = request->room_owner;
    if (room->count == room->most)
        return NULL;
    return room->pieces[room->count++] = aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static inline void room_done(struct room *room)
{
    while (room->count)
        free(room->pieces[--room->count]);
}

/* What was reported as bad: how often, and the last sentence. */
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
                            uint8_t *const *places, struct room *room, struct bad_count *bad)
{
    struct source_request request = {.indices = indices,
                                     .count = count,
                                     .places = places,
                                     .room = room_of_test,
                                     .room_owner = room};
    bad->base.bad = count_bad;
    return source->ops->read(source, &request, &bad->base, &err);
}

#endif
