/* make_db.c: records a run that never happened, through the real writer.
 *
 *     make_db PATH RANKS STEPS
 *
 * A training of 8 ranks for a million steps takes hours; its database takes a minute. The steps
 * vary as real ones do (a log-normal spread, a stall now and then, checkpoints, epochs), and around
 * them are processes with workers and what went on inside these, samples once per second, and
 * spans. The same arguments give the same database. Prints one line: seconds, rows and bytes.
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

static struct step_row make_step(int rank, int64_t step, int64_t *end_ns)
{
    static const double shares[PHASES] = {
        [PHASE_INPUT] = 0.12,    [PHASE_FORWARD] = 0.3, [PHASE_BACKWARD] = 0.4,
        [PHASE_OPTIMIZER] = 0.1, [PHASE_SYNC] = 0.05,   [PHASE_OTHER] = 0.03};
    struct step_row row = {
        .id = store_step_id(rank, step), .samples = 64, .micro_steps = 1, .records = 5};
    for (int p = 0; p < PHASES; p++) {
        row.phase_ns[p] = (int64_t)(shares[p] * STEP_NS *
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
    row.phase_ns[PHASE_H2D] = STORE_NULL;
    row.end_ns = *end_ns += row.wall_ns;
    return row;
}

/* The rows of a worker about the input path: each part with about 60 bins, and as many
 * lines of code. */
static int add_input(struct store_writer *w, int64_t pid, int64_t worker)
{
    static const char *const parts[] = {"sample", "fetch", "collate", "pickle", "idle"};
    int code = 0;
    for (int p = 0; p < 5 && code == 0; p++) {
        struct input_part_row part = {.pid = pid,
                                      .worker = worker,
                                      .part = parts[p],
                                      .n = 64000,
                                      .total_ns = 64000000000,
                                      .max_ns = 9000000};
        code = store_add_input_part(w, &part);
        for (int64_t bin = 0; bin < 60 && code == 0; bin++) {
            struct input_bin_row row = {
                .pid = pid, .worker = worker, .part = parts[p], .bin = 600 + bin, .n = 100 + bin};
            code = store_add_input_bin(w, &row);
        }
    }
    for (int64_t i = 0; i < 60 && code == 0; i++) {
        struct input_line_row line = {
            .pid = pid,
            .worker = worker,
            .id = i,
            .below = i % 3 ? i - i % 3 : STORE_NULL,
            .part = "sample",
            .file = "/usr/lib/python3/dist-packages/torchvision/datasets/folder.py",
            .line = 200 + i,
            .function = "__getitem__",
            .samples = 60 - i,
            .ns = (60 - i) * 10000000,
            .read_ns = i * 1000,
            .decode_ns = i * 2000,
            .library = 1,
        };
        code = store_add_input_line(w, &line);
    }
    return code;
}

static int add_loader(struct store_writer *w, int64_t pid, int64_t rank)
{
    struct loader_row loader = loader_row_nulls;
    loader.pid = pid;
    loader.loader = 0;
    loader.rank = rank;
    loader.use = "train";
    loader.dataset = "ImageFolder";
    loader.batch_size = 64;
    loader.num_workers = WORKERS;
    loader.iterations = 1;
    loader.batches = 1000;
    loader.samples = 64000;
    loader.wait_ns = 1000000000;
    loader.first_wait_ns = 1000000;
    loader.background_ns = 0;
    return store_add_loader(w, &loader);
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
        struct process_row process = process_row_nulls;
        int64_t pid = process.pid = 1000 + rank * 16;
        process.ppid = 999;
        process.role = "main";
        process.rank = process.local_rank = rank;
        process.world_size = ranks;
        process.comm = "python3";
        process.command = "python3 train.py";
        process.started_ns = 0;
        process.recorded = 1;
        process.signals = "fetch,backward,optimizer,sync";
        process.torch = "2.13.0";
        process.lost_records = 0;
        process.record_cost_ns = 800;
        code = store_add_process(w, &process);
        if (code == 0)
            code = add_loader(w, pid, rank);
        for (int64_t i = 0; i < WORKERS && code == 0; i++)
            code = add_input(w, pid, i);
        for (int64_t i = 0; i < WORKERS && code == 0; i++) {
            struct process_row worker = process_row_nulls;
            worker.pid = pid + 1 + i;
            worker.ppid = pid;
            worker.role = "worker";
            worker.rank = rank;
            worker.worker_id = i;
            worker.comm = "python3";
            worker.started_ns = 0;
            worker.recorded = 1;
            code = store_add_process(w, &worker);
        }
    }
    return code;
}

/* What a second of the run leaves behind. */
static int add_second(struct store_writer *w, int ranks, int64_t second, int64_t step)
{
    int64_t t = second * (int64_t)NS_PER_S;
    struct sys_sample_row machine = sys_sample_row_nulls;
    machine.t_ns = t;
    machine.cpu_ratio = 0.5;
    machine.run_cpu_ratio = 0.4;
    machine.iowait_ratio = 0.01;
    machine.memory_total = (int64_t)1 << 38;
    machine.memory_available = (int64_t)1 << 37;
    machine.cpu_pressure = 0.02;
    int code = store_add_sys_sample(w, &machine);
    for (int64_t rank = 0; rank < ranks && code == 0; rank++) {
        for (int64_t i = 0; i <= WORKERS && code == 0; i++) {
            struct proc_sample_row sample = {
                .t_ns = t,
                .pid = 1000 + rank * 16 + i,
                .cpu_ns = t / 2,
                .rss_bytes = 2000000000,
                .threads = 12,
                .fds = 80,
                .voluntary = second * 900,
                .involuntary = second * 20,
                .minor_faults = second * 500,
                .major_faults = second / 9,
                .read_bytes = second * 50000000,
                .write_bytes = second * 4096,
                .read_calls = second * 800,
                .shared_bytes = 300000000,
                .fd_limit = 1024,
                .run_delay_ns = STORE_NULL,
            };
            code = store_add_proc_sample(w, &sample);
        }
        struct memory_sample_row memory = {.t_ns = t,
                                           .rank = rank,
                                           .device = rank,
                                           .step = step,
                                           .allocated = 20000000000,
                                           .reserved = 24000000000,
                                           .split = STORE_NULL,
                                           .retries = STORE_NULL};
        if (code == 0)
            code = store_add_memory_sample(w, &memory);
    }
    return code ? code : store_flush(w);
}

static int record(struct store_writer *w, int ranks, int64_t steps, uint64_t *ret_worst_ns)
{
    int64_t *ends = mem_alloc_array((size_t)ranks, sizeof *ends);
    uint64_t worst = 0;
    int64_t second = 0;
    int code = ends ? add_processes(w, ranks) : -ENOMEM;
    for (int64_t step = 0; step < steps && code == 0; step++) {
        for (int rank = 0; rank < ranks && code == 0; rank++) {
            struct step_row row = make_step(rank, step, &ends[rank]);
            code = store_add_step(w, &row);
        }
        if (code == 0 && ends[0] / (int64_t)NS_PER_S > second) {
            uint64_t before = clock_now_ns();
            code = add_second(w, ranks, ++second, step);
            before = clock_now_ns() - before;
            worst = before > worst ? before : worst;
        }
    }
    if (code == 0)
        code = store_set_metaf(w, "duration_ns", "%lld", (long long)ends[0]);
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
    int closed = store_writer_close(w, &err);
    struct stat st;
    if (code || closed || stat(argv[1], &st)) {
        fprintf(stderr, "make_db: %s %s\n", err_text(code ? code : closed), err.text);
        return 1;
    }
    printf("ranks %llu steps %llu seconds %.1f longest_flush_ms %.1f bytes %lld\n",
           (unsigned long long)ranks, (unsigned long long)steps,
           (double)(clock_now_ns() - start) / 1e9, (double)worst / 1e6, (long long)st.st_size);
    return 0;
}
