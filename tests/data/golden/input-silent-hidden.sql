-- The host waits 5 of 15 ms for batches, but the GPU has work queued: the wait is hidden.
-- expect: COMPUTE-BOUND info
-- action: speed_up_phase phase=backward
-- evidence: gpu_busy 0.99
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 5, 4, 5, 0.8, 0.2);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'input', 97, 10000000, 10000000, 475000000),
    (100, 0, 'forward', 0, 600000000, 0, 0), (100, 0, 'backward', 0, 845000000, 0, 0);
