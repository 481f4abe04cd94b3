-- Near miss: unpacking few bytes takes long because the one worker, always busy, answers late.
-- expect: INPUT-BOUND critical TOO_FEW_WORKERS
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 12, 5, 4, 0.9, 0.1);
UPDATE loaders SET num_workers = 1, prefetch_factor = 2;
INSERT INTO worker_set VALUES (1, 0.98, 21);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.4, 0.4);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.4, 0),
    (201, 200, 300, 0.95, 0);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'fetch', 100, 20, 0), (0, 'collate', 100, 1, 0), (0, 'pickle', 100, 0.3, 60000),
    (-1, 'unpickle', 100, 11, 60000);
