-- The fast one with another batch size.
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 300, 1.6, 40, 50, 3.7, 0.5);
UPDATE loaders SET num_workers = 4, batch_size = 64;
INSERT INTO sampled(pid, ms, rss_mib) VALUES (100, 500, 400);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.4, 0.35);
