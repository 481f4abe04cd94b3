-- Near miss: the first batches of epochs are 45 % of the wait; the workers are busy.
-- expect: INPUT-BOUND critical TOO_FEW_WORKERS
-- action: set_loader num_workers=3,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 10, 6, 5, 0.9, 0.1);
INSERT INTO bump(rank, first, every, input, flags) VALUES (0, 0, 10, 80, 1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2, iterations = 10, first_wait_ns = 900000000;
INSERT INTO worker_set VALUES (2, 0.95, 40);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.3, 0.3);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.4, 0),
    (201, 200, 300, 0.1, 0),
    (202, 200, 300, 0.1, 0);
