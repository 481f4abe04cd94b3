-- The slow steps had no CPU: half of their time was stolen, half was spent waiting for a CPU. A remark,
-- never the verdict.
-- expect: COMPUTE-BOUND info
-- expect: INTERMITTENT STALL info
-- action: speed_up_phase phase=forward
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 400, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, forward) VALUES (0, 60, 130, 500);
INSERT INTO proc_samples(t_ns, pid, run_delay_ns) VALUES (500000000, 100, 0), (1100000000, 100, 200000000),
    (2200000000, 100, 200000000), (3100000000, 100, 400000000), (3900000000, 100, 400000000),
    (4700000000, 100, 600000000), (5000000000, 100, 600000000);
INSERT INTO sys_samples(t_ns, steal_ratio) VALUES (500000000, 0), (1100000000, 0.1), (2200000000, 0),
    (3100000000, 0.06), (3900000000, 0), (4700000000, 0.06), (5000000000, 0);
