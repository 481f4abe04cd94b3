-- Every other step takes 3 ms longer, and there are few of them: the median could be either.
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 44, 0.8, 20, 25, 3.7, 0.5);
INSERT INTO bump(rank, first, every, forward) VALUES (0, 0, 2, 3);
UPDATE loaders SET num_workers = 4, persistent_workers = 1, prefetch_factor = 2;
INSERT INTO sampled(pid, ms, rss_mib) VALUES (100, 500, 400);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.4, 0.35);
