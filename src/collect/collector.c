/* collector.c: new processes, draining them, and the end of the run.
 *
 * A process is followed from its hello on. Its memory is drained every 100 ms, and once more after
 * it has ended, also when it was killed: then its rows are written and its memory is unmapped, so
 * that a run which starts new workers every epoch keeps only the running ones.
 *
 * Steps and samples are written as they come, the rows of processes, loaders, workers and totals
 * every ten seconds, so that a leat that is killed leaves a complete database.
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
    ends_begin(c);
    samples_begin(c);
    *ret_collector = c;
    return 0;
}

void collector_free(struct collector *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->recording_count; i++)
        recording_process_free(c->recording[i]);
    ends_done(c);
    mem_free(c->recording);
    mem_free(c->buffer);
    input_done(c);
    samples_done(c);
    tree_done(c);
    mem_free(c->proc_root);
    mem_free(c);
}

struct recording_process *recording_process_find(struct collector *c, int64_t pid)
{
    for (size_t i = c->recording_count; i-- > 0;)
        if (c->recording[i]->pid == pid)
            return c->recording[i];
    return NULL;
}

/* A worker that has ended and lost nothing is not needed any more. */
static bool is_forgettable(const struct recording_process *s)
{
    return !s->open && s->rank < 0 && s->lost == 0 && s->header.role == LEAT_ROLE_WORKER;
}

/* A run that starts new workers every epoch must not need more and more memory: ended processes
 * whose rows are written are forgotten, both views together, because a row is made of both. */
void collector_forget(struct collector *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->tree_count; i++) {
        struct tree_process *seen = &c->tree[i];
        const struct recording_process *s = recording_process_find(c, seen->pid);
        if (!seen->ended_ns || seen->no_data_reason || (s && !is_forgettable(s))) {
            c->tree[kept++] = *seen;
            continue;
        }
        mem_free(seen->command);
    }
    c->tree_count = kept;
    kept = 0;
    for (size_t i = 0; i < c->recording_count; i++) {
        struct recording_process *s = c->recording[i];
        if (is_forgettable(s) && !tree_find(c, s->pid))
            recording_process_free(s);
        else
            c->recording[kept++] = s;
    }
    c->recording_count = kept;
    c->forget_at = kept + MAX_ENDED;
}

int collector_adopt(struct collector *c, int memfd, pid_t pid, struct leat_err *err)
{
    struct recording_process *s = NULL, *earlier = recording_process_find(c, pid);
    uint64_t now = clock_now_ns();
    /* The same pid again: it was reused, or the process has called exec. */
    if (earlier && earlier->open) {
        recording_process_drain(earlier);
        recording_process_end(earlier, now);
    }
    if (c->recording_count >= c->forget_at)
        collector_forget(c);
    int result = mem_reserve(&c->recording, &c->recording_capacity, c->recording_count + 1,
                             sizeof *c->recording);
    if (result == 0 && !(s = recording_process_new(c, pid)))
        result = -ENOMEM;
    if (result < 0)
        err_set(err, result, "There is no memory to follow process %d.", (int)pid);
    else
        result = ring_reader_open(&s->reader, memfd, err);
    close(memfd);
    if (result < 0) {
        recording_process_free(s);
        return result;
    }
    s->open = true;
    ring_reader_header(&s->reader, &s->header);
    s->started_ns = collector_relative(c, s->header.start_ns < now ? s->header.start_ns : now);
    c->recording[c->recording_count++] = s;
    ends_watch(c, s);
    return 0;
}

static bool has_ended(const struct recording_process *s)
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
    for (size_t i = 0; i < c->recording_count; i++) {
        struct recording_process *s = c->recording[i];
        if (!s->open)
            continue;
        bool ended = check && has_ended(s); /* checked before draining: nothing comes after it */
        int taken = recording_process_drain(s);
        records += taken > 0 ? taken : 0;
        if (ended)
            recording_process_end(s, now);
    }
    return records;
}

/* Called by collector_sample: commits about once per second. The rows of processes, loaders and
 * workers are replaced every second at first, so that a run whose leat is killed early is complete,
 * and every ten seconds later. */
static void commit(struct collector *c, uint64_t now)
{
    if (now >= c->next_rows_ns) {
        bool at_start = collector_relative(c, now) < 30 * NS_PER_S;
        c->next_rows_ns = now + (at_start ? 1 : 10) * NS_PER_S;
        for (size_t i = 0; i < c->recording_count; i++)
            if (c->recording[i]->open)
                recording_process_write(c->recording[i]);
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
    samples_run(c, now);
    commit(c, now);
    return 0;
}

int collector_finish(struct collector *c)
{
    uint64_t now = clock_now_ns();
    if (c->finished)
        return 0;
    c->finished = true;
    samples_finish(c);
    for (size_t i = 0; i < c->recording_count; i++) {
        struct recording_process *s = c->recording[i];
        if (!s->open)
            continue;
        bool ended = has_ended(s) || s->header.closed;
        recording_process_drain(s);
        recording_process_end(s, now);
        if (!ended)
            s->ended_ns = 0; /* it outlives the run */
    }
    input_write(c, true);
    lost_write(c);
    for (size_t i = 0; i < c->tree_count; i++) /* after the ranks are known */
        tree_write_process(c, recording_process_find(c, c->tree[i].pid), &c->tree[i]);
    for (size_t i = 0; i < c->recording_count; i++)
        if (!tree_find(c, c->recording[i]->pid))
            tree_write_process(c, c->recording[i], NULL);
    return store_flush(c->writer);
}
