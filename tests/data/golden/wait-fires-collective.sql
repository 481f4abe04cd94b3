-- The host waits for other ranks for 4 of 15 ms, and the GPU is idle for 3 of them.
-- expect: WAIT-HEAVY critical
-- action: avoid_sync
-- evidence: wait_share 0.20
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 4, 5, 1.9, 4, 0);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'collective', 97, 300000000, 300000000, 100000000),
    (100, 0, 'forward', 0, 600000000, 0, 0), (100, 0, 'backward', 0, 600000000, 0, 0);
