-- Eight workers on four cores, which are all busy.
-- expect: INPUT-BOUND critical CPU_OVERSUBSCRIBED
-- expect: HIGH CPU info
-- action: set_loader num_workers=3
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 8;
INSERT INTO workers(pid, parent_pid, rank, worker_id, batches, samples, busy_ns, first_ns, last_ns, max_ns) SELECT 201 + value, 100, 0, value, 12, 400, 2950000000, 0, 3000000000, 250000000 FROM json_each('[0,1,2,3,4,5,6,7]');
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.99, 0.98);
INSERT INTO sampled(pid, ms, rss_mib, cores) SELECT 201 + value, 200, 300, 0.45 FROM json_each('[0,1,2,3,4,5,6,7]');
