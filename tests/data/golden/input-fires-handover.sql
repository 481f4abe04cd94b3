-- Batches are ready, but the training takes 11 ms to unpack each: the workers are idle half of
-- the time.
-- expect: INPUT-BOUND critical SLOW_HANDOVER
-- predicts: batches of a few tensors
-- action: shrink_batches
-- evidence: unpickle_time 11.00
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 12, 5, 4, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.4, 18);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.4, 0.4);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.4, 0),
    (201, 200, 300, 0.4, 0),
    (202, 200, 300, 0.4, 0);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 1600, 0.5, 0),
    (0, 'fetch', 50, 17, 0),
    (0, 'collate', 50, 1, 0),
    (1, 'sample', 1600, 0.5, 0),
    (1, 'fetch', 50, 17, 0),
    (1, 'collate', 50, 1, 0),
    (0, 'pickle', 50, 9, 40000000),
    (1, 'pickle', 50, 9, 40000000),
    (-1, 'unpickle', 100, 11, 80000000);
