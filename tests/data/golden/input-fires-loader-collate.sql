-- Near miss: the script's own collate_fn makes the batches.
-- expect: INPUT-BOUND critical SLOW_COLLATE
-- at: train.py:40
-- predicts: collate_fn at no cost
-- action: speed_up_collate
-- evidence: collate_time 30.00
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 8, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.96, 40);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.5, 0.5);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.4, 0),
    (201, 200, 300, 0.95, 0),
    (202, 200, 300, 0.95, 0);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 1600, 0.3, 0),
    (0, 'fetch', 50, 10, 0),
    (0, 'collate', 50, 30, 0),
    (1, 'sample', 1600, 0.3, 0),
    (1, 'fetch', 50, 10, 0),
    (1, 'collate', 50, 30, 0);
INSERT INTO seen VALUES
    (0, NULL, 'collate', 'train.py', 40, 'collate', 74, 0, 0, 0),
    (1, 0, 'collate', '/usr/lib/python3/site-packages/torch/functional.py', 7, 'stack', 30, 0, 0, 0),
    (2, NULL, 'sample', 'train.py', 20, '__getitem__', 25, 0, 0, 0);
UPDATE loaders SET dataset = 'TensorDataset', engine_readable = 0;
