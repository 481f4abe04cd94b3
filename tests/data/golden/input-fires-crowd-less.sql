-- Near miss: five workers on four cores make 1.5 threads per core; the cause is the sample.
-- expect: INPUT-BOUND critical SLOW_SAMPLE
-- expect: HIGH CPU info
-- action: speed_up_sample
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 5, prefetch_factor = 2;
INSERT INTO worker_set VALUES (5, 0.98, 140);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.98, 0.98);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.25, 0.1),
    (201, 200, 300, 0.74, 0.2),
    (202, 200, 300, 0.74, 0.2),
    (203, 200, 300, 0.74, 0.2),
    (204, 200, 300, 0.74, 0.2),
    (205, 200, 300, 0.74, 0.2);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 640, 4.3, 0),
    (0, 'fetch', 20, 138, 0),
    (0, 'collate', 20, 2, 0),
    (1, 'sample', 640, 4.3, 0),
    (1, 'fetch', 20, 138, 0),
    (1, 'collate', 20, 2, 0),
    (2, 'sample', 640, 4.3, 0),
    (2, 'fetch', 20, 138, 0),
    (2, 'collate', 20, 2, 0),
    (3, 'sample', 640, 4.3, 0),
    (3, 'fetch', 20, 138, 0),
    (3, 'collate', 20, 2, 0),
    (4, 'sample', 640, 4.3, 0),
    (4, 'fetch', 20, 138, 0),
    (4, 'collate', 20, 2, 0);
