-- A line waits in every step, but the host itself works for 14 of 15 ms: without the wait hardly
-- anything would be gained, so the line is not named.
-- expect: WAIT-HEAVY critical
-- action: mark_phases
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 1, 1, 0.4, 0.5, 12);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'other', 97, 1200000000, 1200000000, 0),
    (100, 0, 'forward', 0, 150000000, 0, 0), (100, 0, 'backward', 0, 150000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 50, 'train', 'sync', 100, 50000000, 0, 100);
