/* collector.c: the life of a collector: adopting processes, draining them, the end.
 *
 * A process is known from its hello on. Its memory is drained every 100 ms, and once more after its
 * death, whatever killed it: then its rows are written and the mapping is given back, so that a run
 * which starts new workers every epoch holds only those that live.
 *
 * What grows with the run is written as it comes (steps, samples) or every ten seconds (processes,
 * loaders, workers, totals), so that a leat that is killed itself leaves a database to read.
 */
#include "collect/collector_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

int collector_new(struct store_writer *writer, const struct collector_options *options,
                  struct collector **ret_collector, struct leat_err *err)
{
    struct collector *c = mem_alloc(sizeof *c);
    char *root = mem_strdup(options->proc_root ? options->proc_root : "/");
    if (!c || !root) {
        mem_free(c);
        mem_free(root);
        return err_set(err, -ENOMEM, "There is no memory to collect what the training records.");
    }
    c->writer = writer;
    c->options = *options;
    c->options.proc_root = c->proc_root = root;
    sample_begin(c);
    *ret_collector = c;
    return 0;
}

void collector_free(struct collector *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->speaker_count; i++)
        speaker_free(c->speakers[i]);
    mem_free(c->speakers);
    mem_free(c->buffer);
    input_done(c);
    sample_done(c);
    mem_free(c->proc_root);
    mem_free(c);
}

struct speaker *speaker_find(struct collector *c, int64_t pid)
{
    for (size_t i = c->speaker_count; i-- > 0;)
        if (c->speakers[i]->pid == pid)
            return c->speakers[i];
    return NULL;
}

/* Nothing more will be asked of it: a worker that is gone and lost nothing. */
static bool is_forgettable(const struct speaker *s)
{
    return !s->open && s->rank < 0 && s->lost == 0 && s->header.role == LEAT_ROLE_WORKER;
}

/* A run that starts new workers every epoch must not grow: the rows of the dead are written, and
 * both views of them are forgotten together, lest one writes over what the other knew. */
void collector_forget(struct collector *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->seen_count; i++) {
        struct seen *seen = &c->seen[i];
        const struct speaker *s = speaker_find(c, seen->pid);
        if (!seen->ended_ns || seen->silent_why || (s && !is_forgettable(s))) {
            c->seen[kept++] = *seen;
            continue;
        }
        mem_free(seen->command);
    }
    c->seen_count = kept;
    kept = 0;
    for (size_t i = 0; i < c->speaker_count; i++) {
        struct speaker *s = c->speakers[i];
        if (is_forgettable(s) && !sample_find(c, s->pid))
            speaker_free(s);
        else
            c->speakers[kept++] = s;
    }
    c->speaker_count = kept;
    c->forget_at = kept + DEAD_MOST;
}

int collector_adopt(struct collector *c, int memfd, pid_t pid, struct leat_err *err)
{
    struct speaker *s = NULL, *earlier = speaker_find(c, pid);
    uint64_t now = clock_now_ns();
    /* The same pid again: the number was used anew, or the process has replaced itself by exec. */
    if (earlier && earlier->open) {
        speaker_drain(earlier);
        speaker_end(earlier, now);
    }
    if (c->speaker_count >= c->forget_at)
        collector_forget(c);
    int result =
        mem_reserve(&c->speakers, &c->speaker_cap, c->speaker_count + 1, sizeof *c->speakers);
    if (result == 0 && !(s = speaker_new(c, pid)))
        result = -ENOMEM;
    if (result < 0)
        err_set(err, result, "There is no memory to follow process %d.", (int)pid);
    else
        result = ring_reader_open(&s->reader, memfd, err);
    close(memfd);
    if (result < 0) {
        speaker_free(s);
        return result;
    }
    s->open = true;
    ring_reader_header(&s->reader, &s->header);
    s->started_ns = collector_relative(c, s->header.start_ns < now ? s->header.start_ns : now);
    c->speakers[c->speaker_count++] = s;
    return 0;
}

static bool is_dead(const struct speaker *s)
{
    return s->pid > 0 && kill(s->pid, 0) < 0 && errno == ESRCH;
}

int collector_drain(struct collector *c)
{
    uint64_t now = clock_now_ns();
    bool check = now >= c->next_death_check_ns;
    int records = 0;
    if (check)
        c->next_death_check_ns = now + 500 * NS_PER_MS;
    for (size_t i = 0; i < c->speaker_count; i++) {
        struct speaker *s = c->speakers[i];
        if (!s->open)
            continue;
        bool dead = check && is_dead(s); /* asked before draining: nothing comes after it */
        int taken = speaker_drain(s);
        records += taken > 0 ? taken : 0;
        if (dead)
            speaker_end(s, now);
    }
    return records;
}

/* Called by collector_sample: about once a second what came is committed. The rows of processes,
 * loaders and workers are replaced every second at first, so that a run whose leat was killed early
 * is whole, and every ten later. */
static void commit(struct collector *c, uint64_t now)
{
    if (now >= c->next_rows_ns) {
        bool young = collector_relative(c, now) < 30 * NS_PER_S;
        c->next_rows_ns = now + (young ? 1 : 10) * NS_PER_S;
        for (size_t i = 0; i < c->speaker_count; i++)
            if (c->speakers[i]->open)
                speaker_rows(c->speakers[i]);
        input_write(c, false);
    }
    if (now >= c->next_commit_ns) {
        c->next_commit_ns = now + NS_PER_S;
        store_flush(c->writer);
    }
}

int collector_sample(struct collector *c)
{
    uint64_t now = clock_now_ns();
    sample_run(c, now);
    commit(c, now);
    return 0;
}

int collector_finish(struct collector *c)
{
    uint64_t now = clock_now_ns();
    if (c->finished)
        return 0;
    c->finished = true;
    sample_finish(c);
    for (size_t i = 0; i < c->speaker_count; i++) {
        struct speaker *s = c->speakers[i];
        if (!s->open)
            continue;
        bool dead = is_dead(s) || s->header.closed;
        speaker_drain(s);
        speaker_end(s, now);
        if (!dead)
            s->ended_ns = 0; /* it outlives the run */
    }
    input_write(c, true);
    lost_write(c);
    for (size_t i = 0; i < c->seen_count; i++) /* after the ranks are known */
        sample_write_process(c, speaker_find(c, c->seen[i].pid), &c->seen[i]);
    for (size_t i = 0; i < c->speaker_count; i++)
        if (!sample_find(c, c->speakers[i]->pid))
            sample_write_process(c, c->speakers[i], NULL);
    return store_flush(c->writer);
}
