-- Two workers compute in many threads each, on two cores: they wait for each other.
-- expect: INPUT-BOUND critical CPU_OVERSUBSCRIBED
-- expect: HIGH CPU info
-- action: limit_threads
UPDATE meta SET value = '2' WHERE key = 'cpus';
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.98, 58);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.99, 0.99);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.15, 0.3),
    (201, 200, 300, 0.92, 0.85),
    (202, 200, 300, 0.92, 0.85);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 1600, 1.8, 0),
    (0, 'fetch', 50, 56, 0),
    (0, 'collate', 50, 2, 0),
    (1, 'sample', 1600, 1.8, 0),
    (1, 'fetch', 50, 56, 0),
    (1, 'collate', 50, 2, 0);
