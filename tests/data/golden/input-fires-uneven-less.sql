-- Near miss: the slowest worker takes 1.9 times as long as the usual one.
-- expect: INPUT-BOUND critical TOO_FEW_WORKERS
-- action: set_loader num_workers=4,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 15, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 3, prefetch_factor = 2;
INSERT INTO worker_set VALUES (3, 0.95, 25);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.3, 0.3);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.4, 0),
    (201, 200, 300, 0.1, 0),
    (202, 200, 300, 0.1, 0),
    (203, 200, 300, 0.1, 0);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'fetch', 33, 20, 0),
    (1, 'fetch', 33, 20, 0),
    (2, 'fetch', 33, 38, 0);
