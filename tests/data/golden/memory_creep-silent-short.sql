-- 4 s of steps are too few to judge.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 400, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu, available_gib) VALUES (500, 0.5, 0.5, 12);
INSERT INTO sampled(pid, ms, rss_mib, rss_mib_per_s) VALUES (100, 100, 500, 100);
