-- Two workers, blocked in reads for 80 % of making a batch.
-- expect: INPUT-BOUND critical SLOW_STORAGE
-- at: train.py:21
-- predicts: reads at no cost
-- action: move_data num_workers=4
-- evidence: read_share 0.80
-- evidence: storage_rate 40.0
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.97, 60);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.2, 0.2);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay, reads_per_s, read_mb_per_s) VALUES (100, 200, 500, 0.4, 0, NULL, NULL),
    (201, 200, 300, 0.15, 0, 100, 20),
    (202, 200, 300, 0.15, 0, 100, 20);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 1600, 1.8, 0),
    (0, 'fetch', 50, 58, 0),
    (0, 'collate', 50, 2, 0),
    (1, 'sample', 1600, 1.8, 0),
    (1, 'fetch', 50, 58, 0),
    (1, 'collate', 50, 2, 0);
INSERT INTO seen VALUES
    (0, NULL, 'sample', 'train.py', 21, '__getitem__', 95, 80, 5, 0),
    (1, NULL, 'collate', 'train.py', 40, 'collate', 5, 0, 0, 0);
