-- Memory rises, is flat for the middle third and rises once more: an allocator, not a leak.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu, available_gib) VALUES (500, 0.5, 0.5, 12);
INSERT INTO proc_samples(t_ns, pid, rss_bytes, shared_bytes)
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 49)
SELECT i * 200000000, 100,
       (500 + 20 * min(i, 16) + 7 * max(0, min(i, 46) - 33) + i % 3) * 1048576, 1048576 FROM n;
