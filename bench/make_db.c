/* make_db.c: records a run that never happened, through the real writer.
 *
 *     make_db PATH RANKS STEPS
 *
 * A training of 8 ranks for a million steps takes hours; its database takes a minute. The steps
 * vary as real ones do (a log-normal spread, a stall now and then, checkpoints, epochs), and around
 * them are processes with workers and what went on inside these, samples once a second, and spans.
 * The same arguments give the same database. Prints one line: seconds, rows and bytes.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/stats.h"
#include "store/store.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

enum { WORKERS = 4, STEP_NS = 3000000, EPOCH_STEPS = 5000, CHECKPOINT_STEPS = 10000 };

/* A number around 1: the sum of four uniform ones is normal enough. */
static double spread(uint64_t seed, uint64_t counter, double sigma)
{
    double sum = -2;
    for (uint64_t i = 0; i < 4; i++)
        sum += (double)(stats_random(seed, counter * 4 + i) >> 11) * 0x1p-53;
    return exp(sum * sigma * 1.73);
}

static struct step_row make_step(int rank, int64_t step, uint64_t *end_ns)
{
    static const double shares[PHASES] = {
        [PHASE_INPUT] = 0.12,    [PHASE_FORWARD] = 0.3, [PHASE_BACKWARD] = 0.4,
        [PHASE_OPTIMIZER] = 0.1, [PHASE_SYNC] = 0.05,   [PHASE_OTHER] = 0.03};
    struct step_row row = {
        .rank = rank, .step = step, .samples = 64, .micro_steps = 1, .records = 5};
    for (int p = 0; p < PHASES; p++) {
        row.known[p] = p != PHASE_H2D;
        row.phase_ns[p] = (uint64_t)(shares[p] * STEP_NS *
                                     spread((uint64_t)(rank * PHASES + p), (uint64_t)step, 0.1));
    }
    if (step % 997 == 0)
        row.phase_ns[PHASE_INPUT] += 8 * STEP_NS;
    if (step % EPOCH_STEPS == 0)
        row.flags |= STEP_EPOCH_START;
    if (step % CHECKPOINT_STEPS == CHECKPOINT_STEPS - 1) {
        row.flags |= STEP_CHECKPOINT;
        row.phase_ns[PHASE_OTHER] += 50 * STEP_NS;
    }
    for (int p = 0; p < PHASES; p++)
        row.wall_ns += row.phase_ns[p];
    row.end_ns = *end_ns += row.wall_ns;
    return row;
}

/* What a worker leaves of the inside of the input path: each part with some 60 bins, and as many
 * lines of code. */
static int add_input(struct store_writer *w, int64_t pid, int64_t worker)
{
    static const char *const parts[] = {"sample", "fetch", "collate", "pickle", "idle"};
    int code = 0;
    for (int p = 0; p < 5 && code == 0; p++) {
        code = store_add(w, "input_parts", "pid,loader,worker,part,n,total_ns,max_ns,bytes",
                         "iiisiiii", pid, (int64_t)0, worker, parts[p], (int64_t)64000,
                         (int64_t)64000000000, (int64_t)9000000, (int64_t)0);
        for (int64_t bin = 0; bin < 60 && code == 0; bin++)
            code = store_add(w, "input_hist", "pid,loader,worker,part,bin,n", "iiisii", pid,
                             (int64_t)0, worker, parts[p], 600 + bin, 100 + bin);
    }
    for (int64_t i = 0; i < 60 && code == 0; i++)
        code = store_add(w, "input_lines",
                         "pid,loader,worker,id,below,part,file,line,function,samples,ns,read_ns,"
                         "decode_ns,blocked_ns,library",
                         "iiiidssisiiiiii", pid, (int64_t)0, worker, i,
                         i % 3 ? (double)(i - i % 3) : (double)NAN, "sample",
                         "/usr/lib/python3/dist-packages/torchvision/datasets/folder.py", 200 + i,
                         "__getitem__", 60 - i, (60 - i) * 10000000, i * 1000, i * 2000, (int64_t)0,
                         (int64_t)1);
    return code;
}

static int add_processes(struct store_writer *w, int ranks)
{
    int code = store_set_meta(w, "run_name", "recorded");
    code = code ? code : store_set_meta(w, "command", "[\"python3\", \"train.py\"]");
    code = code ? code : store_set_meta(w, "started_at", "2026-01-01T00:00:00Z");
    code = code ? code : store_set_meta(w, "ended", "completed");
    code = code ? code : store_set_meta(w, "exit_status", "0");
    code = code ? code : store_set_meta(w, "cpus", "64");
    for (int64_t rank = 0; rank < ranks && code == 0; rank++) {
        int64_t pid = 1000 + rank * 16;
        code = store_add(w, "processes",
                         "pid,ppid,role,rank,local_rank,world_size,comm,command,started_ns,"
                         "recorded,signals,torch,lost_records,record_cost_ns",
                         "iisiiissiissii", pid, (int64_t)999, "main", rank, rank, (int64_t)ranks,
                         "python3", "python3 train.py", (int64_t)0, (int64_t)1,
                         "fetch,backward,optimizer,sync", "2.13.0", (int64_t)0, (int64_t)800);
        if (code == 0)
            code = store_add(w, "loaders",
                             "pid,loader,rank,use,dataset,batch_size,num_workers,iterations,"
                             "batches,samples,wait_ns,first_wait_ns,background_ns",
                             "iiissiiiiiiii", pid, (int64_t)0, rank, "train", "ImageFolder",
                             (int64_t)64, (int64_t)WORKERS, (int64_t)1, (int64_t)1000,
                             (int64_t)64000, (int64_t)1000000000, (int64_t)1000000, (int64_t)0);
        for (int64_t i = 0; i < WORKERS && code == 0; i++)
            code = add_input(w, pid, i);
        for (int64_t i = 0; i < WORKERS && code == 0; i++)
            code = store_add(
                w, "processes", "pid,ppid,role,rank,worker_id,comm,started_ns,recorded", "iisiisii",
                pid + 1 + i, pid, "worker", rank, i, "python3", (int64_t)0, (int64_t)1);
    }
    return code;
}

/* What a second of the run leaves behind. */
static int add_second(struct store_writer *w, int ranks, int64_t second, int64_t step)
{
    int64_t t = second * (int64_t)NS_PER_S;
    int code = store_add(w, "sys_samples",
                         "t_ns,cpu_ratio,run_cpu_ratio,iowait_ratio,memory_total,memory_available,"
                         "cpu_pressure",
                         "idddiid", t, 0.5, 0.4, 0.01, (int64_t)1 << 38, (int64_t)1 << 37, 0.02);
    for (int64_t rank = 0; rank < ranks && code == 0; rank++) {
        for (int64_t i = 0; i <= WORKERS && code == 0; i++)
            code = store_add(w, "proc_samples",
                             "t_ns,pid,cpu_ns,rss_bytes,threads,fds,voluntary,involuntary,"
                             "minor_faults,major_faults,read_bytes,write_bytes,read_calls,"
                             "shared_bytes,fd_limit",
                             "iiiiiiiiiiiiiii", t, 1000 + rank * 16 + i, t / 2, (int64_t)2000000000,
                             (int64_t)12, (int64_t)80, second * 900, second * 20, second * 500,
                             second / 9, second * 50000000, second * 4096, second * 800,
                             (int64_t)300000000, (int64_t)1024);
        if (code == 0)
            code =
                store_add(w, "memory_samples", "t_ns,rank,device,step,allocated,reserved", "iiiiii",
                          t, rank, rank, step, (int64_t)20000000000, (int64_t)24000000000);
        if (code == 0 && second % 30 == 0)
            code = store_add(w, "spans", "rank,name,step,start_ns,end_ns", "isiii", rank,
                             "checkpoint", step, t, t + 150000000);
    }
    return code ? code : store_flush(w);
}

static int record(struct store_writer *w, int ranks, int64_t steps, uint64_t *ret_worst_ns)
{
    uint64_t *ends = mem_alloc_array((size_t)ranks, sizeof *ends), worst = 0;
    int64_t second = 0;
    int code = ends ? add_processes(w, ranks) : -ENOMEM;
    for (int64_t step = 0; step < steps && code == 0; step++) {
        for (int rank = 0; rank < ranks && code == 0; rank++) {
            struct step_row row = make_step(rank, step, &ends[rank]);
            code = store_add_step(w, &row);
        }
        if (code == 0 && ends[0] / NS_PER_S > (uint64_t)second) {
            uint64_t before = clock_now_ns();
            code = add_second(w, ranks, ++second, step);
            before = clock_now_ns() - before;
            worst = before > worst ? before : worst;
        }
    }
    if (code == 0)
        code = store_set_metaf(w, "duration_ns", "%llu", (unsigned long long)ends[0]);
    mem_free(ends);
    *ret_worst_ns = worst;
    return code;
}

int main(int argc, char **argv)
{
    uint64_t ranks, steps, worst = 0, start = clock_now_ns();
    struct store_writer *w;
    struct leat_err err = {""};
    if (argc != 4 || num_parse_u64(argv[2], &ranks) || num_parse_u64(argv[3], &steps) ||
        ranks < 1 || ranks > 1024) {
        fprintf(stderr, "usage: make_db PATH RANKS STEPS\n");
        return 2;
    }
    if (store_writer_open(argv[1], &w, &err)) {
        fprintf(stderr, "make_db: %s\n", err.text);
        return 1;
    }
    int code = record(w, (int)ranks, (int64_t)steps, &worst);
    char *path = NULL;
    int closed = store_writer_close(w, &path, &err);
    struct stat st;
    if (code || closed || stat(path, &st)) {
        fprintf(stderr, "make_db: %s %s\n", err_text(code ? code : closed), err.text);
        mem_free(path);
        return 1;
    }
    printf("ranks %llu steps %llu seconds %.1f longest_flush_ms %.1f bytes %lld\n",
           (unsigned long long)ranks, (unsigned long long)steps,
           (double)(clock_now_ns() - start) / 1e9, (double)worst / 1e6, (long long)st.st_size);
    mem_free(path);
    return 0;
}
