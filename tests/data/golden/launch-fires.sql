-- A Python loop in the forward: the GPU is idle for a quarter of the time.
-- gains: up to 33 %
-- expect: LAUNCH-BOUND critical
-- action: reduce_python phase=forward
-- evidence: gpu_idle_in_compute 0.25
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 6, 5, 0.8, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'forward', 97, 600000000, 280000000, 0),
    (100, 0, 'optimizer', 97, 100000000, 20000000, 0), (100, 0, 'backward', 0, 500000000, 0, 0);
