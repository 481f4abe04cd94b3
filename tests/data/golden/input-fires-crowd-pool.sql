-- Two workers compute in pools of eight threads on two cores. Only their main threads are seen
-- queueing, for 40 % of its time.
-- expect: INPUT-BOUND critical CPU_OVERSUBSCRIBED
-- expect: HIGH CPU info
-- action: limit_threads
-- evidence: worker_threads 11
UPDATE meta SET value = '2' WHERE key = 'cpus';
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.98, 58);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.99, 0.99);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay, threads) VALUES (100, 200, 500, 0.15, 0.2, 5),
    (201, 200, 300, 0.92, 0.4, 11), (202, 200, 300, 0.92, 0.4, 11);
INSERT INTO part(worker, part, n, ms, bytes) VALUES (0, 'fetch', 100, 56, 0), (0, 'collate', 100, 2, 0);
