-- One step of 98 takes 370 ms more; of them the clock of the GPU tells nothing.
-- expect: INTERMITTENT STALL warning
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 101, 0.1, 3, 22.5, 0.3, 0.2);
INSERT INTO bump(rank, first, every, forward) VALUES (0, 100, 1000, 370);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'forward', 0, 500000000, 0, 600000000), (100, 0, 'backward', 0, 1980000000, 0, 280000000);
