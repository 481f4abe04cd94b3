-- Host memory grows by 20 MiB/s: 200 MiB in the run, and the memory is not nearly full.
-- expect: MEMORY CREEP warning
-- expect: COMPUTE-BOUND info
-- action: drop_references
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu, available_gib, total_gib) VALUES (500, 0.5, 0.5, 200, 256);
INSERT INTO sampled(pid, ms, rss_mib, rss_mib_per_s) VALUES (100, 500, 500, 20);
