/* fuzz_bench.c: any bytes as the lines of a process that `leat bench` measures. Whatever it says,
 * the session comes to an end, and table and JSON can be made of what it holds. */
#include "base/clock.h"
#include "tune/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_result(const struct tune_result *result)
{
    struct str text = {0};
    tune_text(result, 0, &text);
    for (const char *p = str_text(&text); *p; p++) {
        if (*p != '\n' && ((unsigned char)*p < 0x20 || *p == 0x7f)) {
            fprintf(stderr, "a byte could steer the terminal: %s\n", str_text(&text));
            abort();
        }
    }
    str_done(&text);
    json_t *json = tune_json(result);
    if (!json) {
        fprintf(stderr, "no JSON could be made\n");
        abort();
    }
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tune_limits limits = {.cpus = 4,
                                 .memory_bytes = 1 << 30,
                                 .shm_bytes = 1 << 26,
                                 .time_s = 600,
                                 .hang_s = 30,
                                 .most_workers = 16,
                                 .sizes = {64},
                                 .size_count = 1};
    struct session session;
    struct str progress = {0};
    uint64_t now_ns = NS_PER_S;
    session_init(&session, &limits, 1);
    const char *from = (const char *)data, *end = from + size;
    while (from < end) {
        const char *stop = memchr(from, '\n', (size_t)(end - from));
        stop = stop ? stop : end;
        session_take_line(&session, from, (size_t)(stop - from), now_ns += NS_PER_S / 2);
        session_memory(&session, (int64_t)(stop - from) << 16);
        session_tick(&session, now_ns);
        session_progress(&session, now_ns, &progress);
        str_done(&progress);
        progress = (struct str){0};
        str_done(&session.output);
        from = stop + 1;
    }
    session_process_ended(&session, "the process is gone", now_ns);
    check_result(&session.result);
    session_done(&session);
    return 0;
}
