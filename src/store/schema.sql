-- schema.sql: the run database, leat's one waist. Everything that observes writes it; every finding
-- is made from it, and from nothing else. docs/run-db.md explains it with example queries.
--
-- Times are nanoseconds from the start of the run (meta.start_ns is CLOCK_MONOTONIC then).
-- NULL means "not measured"; zero means "measured, and it was zero".

PRAGMA application_id = 0x6c656174; -- "leat": what `file` and other tools see in the header
PRAGMA user_version = 9;            -- the same number as meta.schema

CREATE TABLE meta (              -- facts of the run, one a row; values are text
    key   TEXT PRIMARY KEY,      -- schema, run_name, command (JSON array), started_at (ISO 8601, UTC),
    value TEXT                   -- start_ns, duration_ns, node, leat, ended, exit_status, signal,
) WITHOUT ROWID;                 -- oom_kills, cpus, memory_limit_bytes, max_steps, logs_dir, thinned.*

CREATE TABLE processes (         -- every process of the run's tree that was seen
    pid          INTEGER PRIMARY KEY,
    ppid         INTEGER,
    role         TEXT,           -- main (it trains or iterates), worker (DataLoader), other
    rank         INTEGER,        -- global rank; 0 for a run without ranks; NULL for role other
    local_rank   INTEGER,
    world_size   INTEGER,
    worker_id    INTEGER,
    comm         TEXT,
    command      TEXT,
    started_ns   INTEGER,
    ended_ns     INTEGER,        -- NULL: alive when last seen
    recorded     INTEGER,        -- 1: it spoke to leat, 0: only seen from outside
    signals      TEXT,           -- what its hooks can see, by comma: fetch,backward,optimizer,sync,h2d,...
    missing      TEXT,           -- hooks that found no patch point, and why
    python       TEXT,
    torch        TEXT,
    devices      TEXT,           -- UUIDs of the GPUs it used, by comma
    exception    TEXT,           -- "Type: text (file:line)" when it ended by one
    lost_records INTEGER,
    record_cost_ns INTEGER       -- measured cost of one hook with its record
);

CREATE TABLE steps (             -- one row a step and rank; old ones may be folded (step_folds)
    id           INTEGER PRIMARY KEY,  -- rank * 2^40 + step
    end_ns       INTEGER NOT NULL,
    wall_ns      INTEGER NOT NULL,     -- the sum of the phases that follow
    input_ns     INTEGER NOT NULL,
    h2d_ns       INTEGER,
    forward_ns   INTEGER NOT NULL,
    backward_ns  INTEGER NOT NULL,
    optimizer_ns INTEGER NOT NULL,
    sync_ns      INTEGER,
    other_ns     INTEGER NOT NULL,
    samples      INTEGER,              -- NULL when the batch has no countable size
    micro_steps  INTEGER NOT NULL,     -- batches that arrived in this step
    records      INTEGER NOT NULL,     -- records it was made of (leat's own cost = records x cost)
    flags        INTEGER NOT NULL      -- 1 epoch start, 2 compile, 4 checkpoint, 8 evaluation before it,
                                       -- 16 an exception inside, 32 inference (no optimizer in the run)
);

CREATE TABLE step_folds (        -- what old rows of steps were folded into: one row an interval
    rank INTEGER, first_step INTEGER, n INTEGER, end_ns INTEGER, wall_ns INTEGER, input_ns INTEGER,
    h2d_ns INTEGER, forward_ns INTEGER, backward_ns INTEGER, optimizer_ns INTEGER, sync_ns INTEGER,
    other_ns INTEGER, samples INTEGER, micro_steps INTEGER, records INTEGER, flags INTEGER,
    PRIMARY KEY (rank, first_step)
) WITHOUT ROWID;

CREATE TABLE step_hist (         -- distribution of the folded steps, in bins 2 % wide:
    rank  INTEGER,               -- bin = floor(ln(ns) / ln(1.02)); 0 also holds 0 and 1 ns
    phase TEXT,                  -- wall, input, h2d, forward, backward, optimizer, sync, other
    bin   INTEGER,
    n     INTEGER,
    PRIMARY KEY (rank, phase, bin)
) WITHOUT ROWID;

CREATE TABLE spans (             -- what has a name: checkpoint, compile, eval, epoch_start, user phases,
    rank     INTEGER,            -- collectives; the longest are kept one by one
    name     TEXT,
    step     INTEGER,            -- the step it fell into or preceded
    start_ns INTEGER,
    end_ns   INTEGER
);

CREATE TABLE span_totals (       -- all of them, summed
    rank INTEGER, name TEXT, n INTEGER, total_ns INTEGER, max_ns INTEGER,
    other_ns INTEGER,            -- the part that is inside the `other` phase of steps
    PRIMARY KEY (rank, name)
) WITHOUT ROWID;

CREATE TABLE loaders (           -- each DataLoader that was iterated
    pid INTEGER, loader INTEGER, rank INTEGER,
    use             TEXT,        -- train, eval, or infer
    dataset         TEXT, dataset_length INTEGER, location TEXT, -- file:line that made it
    batch_size INTEGER, num_workers INTEGER, prefetch_factor INTEGER, pin_memory INTEGER,
    persistent_workers INTEGER, iterable INTEGER,
    own             INTEGER,     -- 1: a leat.DataLoader; through torch where engines has no row
    engine_readable INTEGER,     -- 1: leat.DataLoader with the same arguments makes the batches in C
    iterations INTEGER, batches INTEGER, samples INTEGER,
    wait_ns         INTEGER,     -- blocked in next() by the training thread, first batches included
    first_wait_ns   INTEGER,     -- of it: making iterators and waiting for the first batch of each
    background_ns   INTEGER,     -- spent in next() on other threads
    PRIMARY KEY (pid, loader)
) WITHOUT ROWID;

CREATE TABLE engines (           -- of them those whose batches leat's own threads make, summed over the run
    pid INTEGER, loader INTEGER, -- as in loaders
    source       TEXT,           -- how leat_source_text() begins: "npy x.npy: 1000 samples of ..."
    ordering     TEXT,           -- full, quasi, window, sequential, given (by a sampler of torch)
    threads INTEGER,             -- at work when last heard of
    cores INTEGER, ahead INTEGER, memory_bytes INTEGER, -- that it may use; batches ahead; budget
    batches INTEGER, samples INTEGER, bytes INTEGER,    -- delivered
    waits        INTEGER,        -- requests that found no batch ready
    wait_ns      INTEGER,        -- of the consumer, in them
    help_ns      INTEGER,        -- of it: the consumer made the batch itself
    order_ns INTEGER, read_ns INTEGER, layout_ns INTEGER, -- by stage, over threads and consumer
    idle_ns      INTEGER,        -- threads without work
    PRIMARY KEY (pid, loader)
) WITHOUT ROWID;

CREATE TABLE cuda_calls (        -- what a process asked of CUDA, counted by the probe (LD_PRELOAD)
    pid   INTEGER, rank INTEGER, -- as in processes
    span  TEXT,                  -- before (until the first batch had come), steps (until the last step
                                 -- ended), after
    class TEXT,                  -- launch, graph_launch, h2d_pinned, h2d_pageable, d2h_pinned,
                                 -- d2h_pageable, d2d, copy_other, memset, sync, event_sync, event, alloc,
                                 -- free, alloc_async, free_async, alloc_host, free_host
    n     INTEGER,               -- calls; a class that never happened has no row
    ns    INTEGER,               -- of the host inside them, over all threads
    bytes INTEGER,               -- copied, set or allocated
    PRIMARY KEY (pid, span, class)
) WITHOUT ROWID;

CREATE TABLE gpu_clock (         -- device time by what the host did meanwhile, measured by the probe with
    pid   INTEGER, rank INTEGER, -- timing events on the stream that computes; from the fourth step on, and
                                 -- of short steps only as many as cost next to nothing
    phase TEXT,                  -- input (waited for a batch), h2d (copied on that stream), forward, backward,
                                 -- optimizer, sync (just after waiting for the device), allocator, other,
                                 -- launch (between launches close to each other; by samples), collective
    n         INTEGER,           -- stretches in which the host launched nothing; of launch: samples
    device_ns INTEGER,           -- device time charged to the phase; all phases together: what was measured
    idle_ns   INTEGER,           -- of it: the device had nothing to do
    hidden_ns INTEGER,           -- host time in those stretches during which the device still had work
    PRIMARY KEY (pid, phase)
) WITHOUT ROWID;

CREATE TABLE cuda_lines (        -- the lines of Python code that copy between host and GPU, or wait for it
    pid   INTEGER, rank INTEGER, -- as in processes
    file TEXT, line INTEGER, function TEXT, -- the user's; a library's where none of the user called it
    class TEXT,                  -- as in cuda_calls: h2d_*, d2h_*, sync, event_sync
    n     INTEGER,               -- calls, over the whole run
    ns    INTEGER,               -- of the host inside them
    bytes INTEGER,
    steps INTEGER,               -- in so many of the process's steps; before the first batch counts as one
    PRIMARY KEY (pid, file, line, function, class)
) WITHOUT ROWID;

CREATE TABLE workers (           -- each DataLoader worker process
    pid INTEGER PRIMARY KEY, parent_pid INTEGER, rank INTEGER, worker_id INTEGER,
    batches INTEGER, samples INTEGER, busy_ns INTEGER, first_ns INTEGER, last_ns INTEGER,
    max_ns INTEGER,              -- the slowest batch
    loader INTEGER               -- of its parent (loaders); NULL: could not be told
);

CREATE TABLE input_parts (       -- what making a batch and handing it over took, by part
    pid INTEGER, loader INTEGER, -- the loader and its process (loaders); loader -1: could not be told
    worker   INTEGER,            -- worker_id, summed over the epochs; -1: the process itself;
                                 -- -2: workers whose number is not known, together
    part     TEXT,               -- sample: one __getitem__, or next() of an IterableDataset
                                 -- fetch: all samples of a batch, however they were asked for
                                 -- collate: collate_fn of a batch
                                 -- pickle: a batch made ready for the queue, in the worker
                                 -- unpickle: the same undone, in the process of the loader
                                 -- pin: copied into pinned memory, by the pin thread
                                 -- idle: a worker without work, waiting for indices
                                 -- ready: batches that lay ready when one was asked for (a count, no time)
    n        INTEGER,            -- times it was timed: always, but of batches made without workers in less
                                 -- than 8 ms, the first 64 and then one in 8 ms / batch, or in 16; of
                                 -- samples of less than 500 us, 256 of a process and then those of one
                                 -- batch in 500 us / sample, or in 64
    total_ns INTEGER, max_ns INTEGER,
    bytes    INTEGER,            -- pickle and unpickle: what went through the pipe; else 0
    PRIMARY KEY (pid, loader, worker, part)
) WITHOUT ROWID;

CREATE TABLE input_hist (        -- their distribution, in the bins of step_hist; for ready the bin is
    pid INTEGER, loader INTEGER, worker INTEGER, part TEXT, bin INTEGER, n INTEGER, -- the count itself
    PRIMARY KEY (pid, loader, worker, part, bin)
) WITHOUT ROWID;

CREATE TABLE input_lines (       -- where the time of making batches goes, by sampling
    pid INTEGER, loader INTEGER, worker INTEGER, -- as in input_parts
    id         INTEGER,          -- of the line, among those of the same worker
    below      INTEGER,          -- id of the user's line that called this library line; NULL: a user's line
    part       TEXT,             -- sample or collate
    file TEXT, line INTEGER, function TEXT,
    samples    INTEGER,          -- how often it was seen at work
    ns         INTEGER,          -- time it stands for; a user's line includes what it calls
    read_ns    INTEGER,          -- of it: blocked in system calls that read or open files
    decode_ns  INTEGER,          -- of it: decoding images
    blocked_ns INTEGER,          -- of it: blocked in other system calls (sleep, locks, sockets)
    library    INTEGER,          -- 1: code of an installed package or of Python; 0: the user's own
    PRIMARY KEY (pid, loader, worker, id)
) WITHOUT ROWID;

CREATE TABLE proc_samples (      -- each process of the tree, from /proc; counters are totals so far
    t_ns INTEGER, pid INTEGER, cpu_ns INTEGER, rss_bytes INTEGER, threads INTEGER, fds INTEGER,
    voluntary INTEGER, involuntary INTEGER, minor_faults INTEGER, major_faults INTEGER,
    read_bytes INTEGER, write_bytes INTEGER, read_calls INTEGER, shared_bytes INTEGER,
    fd_limit INTEGER,
    run_delay_ns INTEGER         -- its main thread ready to run, but without a CPU
);
CREATE TABLE sys_samples (       -- the machine (or the cgroup's limits); ratios 0..1 since the last row
    t_ns INTEGER, cpu_ratio REAL, run_cpu_ratio REAL, iowait_ratio REAL, memory_total INTEGER,
    memory_available INTEGER, swap_in_bytes INTEGER, swap_out_bytes INTEGER, swap_used_bytes INTEGER,
    cpu_pressure REAL, memory_pressure REAL, io_pressure REAL, shm_total INTEGER, shm_used INTEGER,
    steal_ratio REAL,            -- taken by the hypervisor for other machines
    others_ratio REAL            -- of all CPUs, also those that the run may not use: other programs' part
);
CREATE TABLE gpu_samples (       -- GPUs of this run only, from NVML
    t_ns INTEGER, gpu TEXT, utilization REAL, memory_used INTEGER, memory_total INTEGER,
    temperature_c INTEGER, temperature_limit_c INTEGER, power_w REAL, power_limit_w REAL,
    sm_clock_mhz INTEGER, throttle TEXT, pcie_tx_bytes_s INTEGER, pcie_rx_bytes_s INTEGER
);
CREATE TABLE memory_samples (    -- torch's allocator, told by the process
    t_ns INTEGER, rank INTEGER, device INTEGER, step INTEGER, allocated INTEGER, reserved INTEGER,
    split   INTEGER,             -- of reserved: free, but in pieces between tensors
    retries INTEGER              -- so far: the cache was emptied because an allocation failed
);
CREATE TABLE lost (              -- what was not seen, and why
    what TEXT,                   -- records, ranks, probes, samples, rows, notes (docs/run-db.md)
    n    INTEGER,
    why  TEXT
);
