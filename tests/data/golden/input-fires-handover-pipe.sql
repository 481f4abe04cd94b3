-- Unpacking and the rest of the step are 89 % of it: the other tenth is the pipe. Workers have pauses.
-- expect: INPUT-BOUND critical SLOW_HANDOVER
-- action: shrink_batches
-- evidence: unpickle_time 37.70
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 44.7, 20.5, 0.33, 0.1, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.001, 0.05);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.4, 0.4);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.6, 0),
    (201, 200, 300, 0.4, 0),
    (202, 200, 300, 0.4, 0);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'fetch', 50, 0.047, 0),
    (0, 'collate', 50, 0.002, 0),
    (1, 'fetch', 50, 0.047, 0),
    (1, 'collate', 50, 0.002, 0),
    (0, 'pickle', 50, 63.8, 150000000),
    (1, 'pickle', 50, 63.8, 150000000),
    (-1, 'unpickle', 100, 37.7, 300000000);
