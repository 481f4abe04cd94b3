/* process_tree.c: which processes belong to the run, and their rows.
 *
 * The training command and all its descendants, and every process that records, also when it was
 * reparented. All of /proc is searched at most once per second, and not when no process was created
 * since the last search.
 *
 * A pid alone does not identify a process: pids are reused. A pid with another start time is
 * another process.
 */
#include "collect/collector_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct tree_process *tree_find(struct collector *c, int64_t pid)
{
    for (size_t i = c->tree_count; i-- > 0;)
        if (c->tree[i].pid == pid)
            return &c->tree[i];
    return NULL;
}

/* The kernel counts a process's start in ticks since boot, including suspend; CLOCK_MONOTONIC does
 * not include it. */
static uint64_t start_of(const struct collector *c, int64_t ticks, uint64_t now)
{
    struct timespec boot;
    long per_second = sysconf(_SC_CLK_TCK);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    uint64_t boot_ns = (uint64_t)boot.tv_sec * NS_PER_S + (uint64_t)boot.tv_nsec;
    if (ticks < 0 || per_second <= 0)
        return collector_relative(c, now);
    uint64_t start = (uint64_t)ticks * (NS_PER_S / (uint64_t)per_second);
    uint64_t age = boot_ns > start ? boot_ns - start : 0;
    return collector_relative(c, now > age ? now - age : 0);
}

static void add_to_tree(struct collector *c, const struct proc_info *info, uint64_t now)
{
    struct tree_process *s = tree_find(c, info->pid);
    if (!s && c->tree_count >= MAX_TREE && c->last_forget_ns != now) {
        c->last_forget_ns = now;
        collector_forget(c);
    }
    if (s) { /* the pid was reused: the table has one row per pid, the later one wins */
        mem_free(s->command);
        mem_free(s->no_data_reason);
    } else if (c->tree_count >= MAX_TREE ||
               mem_reserve(&c->tree, &c->tree_capacity, c->tree_count + 1, sizeof *c->tree) < 0) {
        c->tree_overflow++;
        return;
    } else {
        s = &c->tree[c->tree_count++];
    }
    *s = (struct tree_process){.pid = info->pid,
                               .ppid = info->ppid,
                               .start_ticks = info->start_ticks,
                               .started_ns = start_of(c, info->start_ticks, now)};
}

static void track(struct collector *c, int64_t pid, uint64_t now)
{
    struct tree_process *s = tree_find(c, pid);
    struct proc_info info;
    if (s && !s->ended_ns)
        return;
    if (proc_read(c->proc_root, pid, &info) < 0)
        return;
    if (s && s->start_ticks == info.start_ticks)
        s->ended_ns = 0; /* it could not be read for a moment */
    else
        add_to_tree(c, &info, now);
}

/* A process that leaves the tree without ending was adopted by init; it stays a process of the run.
 * The pause after a search is COST_FACTOR times as long as the search. */
void tree_update(struct collector *c, uint64_t now)
{
    if (now < c->next_tree_ns)
        return;
    int64_t *pids = NULL, last = proc_last_pid(c->proc_root);
    size_t count = 0;
    uint64_t begin = clock_cpu_ns();
    c->next_tree_ns = now + NS_PER_S;
    if (last > 0 && last == c->last_pid)
        return;
    bool searched = proc_tree(c->proc_root, c->options.root_pid, &pids, &count) == 0;
    c->last_pid = searched ? last : -1;
    for (size_t i = 0; i < count; i++)
        track(c, pids[i], now);
    mem_free(pids);
    uint64_t cost = COST_FACTOR * (clock_cpu_ns() - begin);
    if (cost > NS_PER_S)
        c->next_tree_ns = now + cost;
}

/* A process that records is known without a search: workers of a short epoch may end before the
 * next one. */
void tree_track_recording(struct collector *c, uint64_t now)
{
    for (size_t i = 0; i < c->recording_count; i++)
        if (c->recording[i]->open && c->recording[i]->pid > 0)
            track(c, c->recording[i]->pid, now);
}

/* ---- rows --------------------------------------------------------------------------------- */

static void signals_text(uint32_t signals, char *text, size_t bytes)
{
    static const char *const names[] = {"fetch", "backward", "optimizer", "sync",
                                        "h2d",   "worker",   "step",      "cuda"};
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (signals & 1u << i && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "", names[i]);
}

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static const char *role_of(const struct recording_process *s)
{
    if (s->rank >= 0)
        return "main";
    return s->header.role == LEAT_ROLE_WORKER || s->worker.batches ? "worker" : "other";
}

/* processes.rank: of a worker that of its trainer, of other processes without steps none. */
static int64_t row_rank(const struct recording_process *s)
{
    if (s->rank >= 0 || role_of(s)[0] != 'w')
        return s->rank;
    const struct recording_process *trainer = recording_process_trainer(s);
    return trainer ? trainer->rank : recording_process_declared_rank(s);
}

void tree_write_process(struct collector *c, const struct recording_process *s,
                        const struct tree_process *seen)
{
    static const struct recording_process no_records = {.rank = -1, .header = {.worker_id = -1}};
    static const struct tree_process not_seen = {.started_ns = UINT64_MAX};
    char signals[96];
    bool recorded = s != NULL;
    s = s ? s : &no_records;
    const struct rec_header *h = &s->header;
    int64_t pid = seen ? seen->pid : s->pid, ppid = seen ? seen->ppid : h->ppid;
    seen = seen ? seen : &not_seen;
    int64_t rank = row_rank(s);
    uint64_t started =
        recorded && s->started_ns < seen->started_ns ? s->started_ns : seen->started_ns;
    uint64_t ended = seen->ended_ns ? seen->ended_ns : s->ended_ns;
    uint64_t cost = h->cost_ns;
    signals_text(h->signals, signals, sizeof signals);
    struct process_row row = {
        .pid = pid,
        .ppid = ppid,
        .role = role_of(s),
        .rank = store_or_null(rank),
        .local_rank = store_or_null(rank >= 0 ? h->local_rank : -1),
        .world_size = store_or_null(rank >= 0 ? h->world_size : -1),
        .worker_id = store_or_null(h->worker_id),
        .comm = text_or_null(seen->comm),
        .command = seen->command,
        .started_ns = store_signed(started),
        .ended_ns = ended ? store_signed(ended) : STORE_NULL,
        .recorded = recorded,
        .signals = text_or_null(signals),
        .missing = text_or_null(h->missing),
        .python = text_or_null(h->python),
        .torch = text_or_null(h->torch),
        .devices = text_or_null(h->devices),
        .exception = h->exception[0] ? h->exception : ends_text(c, s),
        .lost_records = recorded ? store_signed(s->lost) : STORE_NULL,
        .record_cost_ns = cost > 0 && cost < NS_PER_S ? (int64_t)cost : STORE_NULL,
    };
    store_add_process(c->writer, &row);
}

void tree_done(struct collector *c)
{
    for (size_t i = 0; i < c->tree_count; i++) {
        mem_free(c->tree[i].command);
        mem_free(c->tree[i].no_data_reason);
    }
    mem_free(c->tree);
}
