-- Near miss: reads are 30 % of it, the rest sleeps, and cores are free for workers.
-- expect: INPUT-BOUND critical TOO_FEW_WORKERS
-- action: set_loader num_workers=5,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.97, 58);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.2, 0.2);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.4, 0),
    (201, 200, 300, 0.15, 0),
    (202, 200, 300, 0.15, 0);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 1600, 1.8, 0),
    (0, 'fetch', 50, 56, 0),
    (0, 'collate', 50, 2, 0),
    (1, 'sample', 1600, 1.8, 0),
    (1, 'fetch', 50, 56, 0),
    (1, 'collate', 50, 2, 0);
INSERT INTO seen VALUES
    (0, NULL, 'sample', 'train.py', 21, '__getitem__', 100, 30, 5, 60);
