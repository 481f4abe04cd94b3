-- A tenth of the lost time was spent without a CPU: the script still causes the stall.
-- expect: INTERMITTENT STALL warning
-- action: inspect_step step=60
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 400, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, forward) VALUES (0, 60, 130, 500);
INSERT INTO proc_samples(t_ns, pid, run_delay_ns) VALUES (500000000, 100, 0), (1100000000, 100, 50000000),
    (2200000000, 100, 50000000), (3100000000, 100, 100000000), (3900000000, 100, 100000000),
    (4700000000, 100, 150000000), (5000000000, 100, 150000000);
