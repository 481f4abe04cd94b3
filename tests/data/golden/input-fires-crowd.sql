-- Eight workers wait for four cores: as much time ready without a core as running on one.
-- expect: INPUT-BOUND critical CPU_OVERSUBSCRIBED
-- expect: HIGH CPU info
-- action: set_loader num_workers=4
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 8, prefetch_factor = 2;
INSERT INTO worker_set VALUES (8, 0.98, 230);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.99, 0.99);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.3, 0.3),
    (201, 200, 300, 0.46, 0.5),
    (202, 200, 300, 0.46, 0.5),
    (203, 200, 300, 0.46, 0.5),
    (204, 200, 300, 0.46, 0.5),
    (205, 200, 300, 0.46, 0.5),
    (206, 200, 300, 0.46, 0.5),
    (207, 200, 300, 0.46, 0.5),
    (208, 200, 300, 0.46, 0.5);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 384, 7, 0),
    (0, 'fetch', 12, 225, 0),
    (0, 'collate', 12, 5, 0),
    (1, 'sample', 384, 7, 0),
    (1, 'fetch', 12, 225, 0),
    (1, 'collate', 12, 5, 0),
    (2, 'sample', 384, 7, 0),
    (2, 'fetch', 12, 225, 0),
    (2, 'collate', 12, 5, 0),
    (3, 'sample', 384, 7, 0),
    (3, 'fetch', 12, 225, 0),
    (3, 'collate', 12, 5, 0),
    (4, 'sample', 384, 7, 0),
    (4, 'fetch', 12, 225, 0),
    (4, 'collate', 12, 5, 0),
    (5, 'sample', 384, 7, 0),
    (5, 'fetch', 12, 225, 0),
    (5, 'collate', 12, 5, 0),
    (6, 'sample', 384, 7, 0),
    (6, 'fetch', 12, 225, 0),
    (6, 'collate', 12, 5, 0),
    (7, 'sample', 384, 7, 0),
    (7, 'fetch', 12, 225, 0),
    (7, 'collate', 12, 5, 0);
