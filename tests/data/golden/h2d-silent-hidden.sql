-- The host is blocked in copies for a third of the step, but they are no part of the stream that computes.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 5, 4, 5, 0.8, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'h2d', 97, 15000000, 15000000, 0), (100, 0, 'forward', 0, 1440000000, 0, 0);
