-- Two workers, busy all the time, waiting for storage: 60 ms per batch before 12 ms of work.
-- expect: INPUT-BOUND critical TOO_FEW_WORKERS
-- predicts: num_workers=5,persistent_workers=True
-- action: set_loader num_workers=5,persistent_workers=True
-- evidence: workers_needed 5
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO workers(pid, parent_pid, rank, worker_id, batches, samples, busy_ns, first_ns, last_ns, max_ns) VALUES (201, 100, 0, 0, 50, 1600, 2900000000, 0, 3010000000, 61000000),
    (202, 100, 0, 1, 50, 1600, 2900000000, 0, 3010000000, 61000000);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.3, 0.3);
INSERT INTO sampled(pid, ms, rss_mib, cores) VALUES (100, 200, 500, 0.4), (201, 200, 300, 0.02), (202, 200, 300, 0.02);
