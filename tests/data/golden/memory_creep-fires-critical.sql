-- The same with 1 GiB left: full after some 5 000 steps, and the verdict of the run.
-- expect: MEMORY CREEP critical
-- expect: INPUT-BOUND warning NO_OVERLAP
-- action: drop_references
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 1.3, 4, 4, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu, available_gib, total_gib) VALUES (500, 0.5, 0.5, 1.5, 16);
INSERT INTO sampled(pid, ms, rss_mib, rss_mib_per_s) VALUES (100, 500, 500, 20);
