-- Reads are 40 % of what sampling saw, but the workers spent a third of their time without a core,
-- which is no part of making a batch: 60 % of the rest.
-- expect: INPUT-BOUND critical SLOW_STORAGE
-- expect: HIGH CPU info
-- action: move_data num_workers=4
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.97, 60);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.97, 0.2);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.3, 0.1),
    (201, 200, 300, 0.3, 0.32), (202, 200, 300, 0.3, 0.32);
INSERT INTO part(worker, part, n, ms, bytes) VALUES (0, 'fetch', 100, 58, 0), (0, 'collate', 100, 2, 0);
INSERT INTO seen VALUES (0, NULL, 'sample', 'train.py', 21, '__getitem__', 100, 40, 5, 0);
