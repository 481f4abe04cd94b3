-- loss.item() in every step and then a line of log: without the wait the log would be made while the
-- GPU works, and the step would take 12 ms.
-- expect: WAIT-HEAVY critical
-- at: train.py:50
-- gains: 25 %
-- action: avoid_sync at=train.py:50
-- evidence: waits 1
-- evidence: wait_share 0.20
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 2, 3, 0.9, 6, 3);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'other', 97, 290000000, 290000000, 0), (100, 0, 'sync', 97, 10000000, 10000000, 0),
    (100, 0, 'forward', 0, 600000000, 0, 0), (100, 0, 'backward', 0, 600000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 50, 'train', 'd2h_pinned', 100, 1000000, 400, 100),
    (100, 0, 'train.py', 50, 'train', 'sync', 100, 600000000, 0, 100);
