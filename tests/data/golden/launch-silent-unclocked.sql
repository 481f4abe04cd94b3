-- A clock that measured four steps is not enough.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 6, 5, 0.8, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'forward', 4, 48000000, 40000000, 0);
