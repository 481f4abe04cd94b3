-- A DataLoader worker grows: copy-on-write of Python objects.
-- expect: MEMORY CREEP warning
-- expect: COMPUTE-BOUND info
-- action: store_in_arrays
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu, available_gib, total_gib) VALUES (500, 0.5, 0.5, 200, 256);
UPDATE loaders SET num_workers = 1;
INSERT INTO workers(pid, parent_pid, rank, worker_id, batches, samples, busy_ns, first_ns, last_ns, max_ns) VALUES (201, 100, 0, 0, 1000, 32000, 2000000000, 0, 9900000000, 6000000);
INSERT INTO sampled(pid, ms, rss_mib, rss_mib_per_s) VALUES (201, 500, 300, 12);
