-- A loader without workers: most of the step waits for it.
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 300, 254.5, 20, 25, 3.7, 0.5);
INSERT INTO sampled(pid, ms, rss_mib) VALUES (100, 500, 400);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.4, 0.35);
