-- Near miss: collate takes less than the samples, and cores are free for workers.
-- expect: INPUT-BOUND critical TOO_FEW_WORKERS
-- action: set_loader num_workers=3,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 8, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.96, 40);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.5, 0.5);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.4, 0),
    (201, 200, 300, 0.95, 0),
    (202, 200, 300, 0.95, 0);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 1600, 0.8, 0),
    (0, 'fetch', 50, 26, 0),
    (0, 'collate', 50, 14, 0),
    (1, 'sample', 1600, 0.8, 0),
    (1, 'fetch', 50, 26, 0),
    (1, 'collate', 50, 14, 0);
