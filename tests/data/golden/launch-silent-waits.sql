-- float(loss) five times a step: launches are late because the host has just waited. Without the waits
-- it would work for 9 ms and the GPU for 12, so the GPU would not wait for a launch.
-- expect: WAIT-HEAVY critical
-- at: train.py:50
-- action: avoid_sync at=train.py:50
-- evidence: waits 5
-- evidence: wait_share 0.20
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 4, 4, 0.8, 6, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'launch', 97, 200000000, 200000000, 0), (100, 0, 'sync', 97, 100000000, 100000000, 0),
    (100, 0, 'forward', 0, 600000000, 0, 0), (100, 0, 'backward', 0, 600000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 50, 'train', 'sync', 500, 600000000, 0, 100);
