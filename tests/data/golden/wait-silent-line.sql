-- loss.item() in every step; the GPU stands idle for 3 % of the time because of it: no verdict.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 2, 3, 0.8, 9, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'sync', 97, 45000000, 45000000, 855000000),
    (100, 0, 'forward', 0, 600000000, 0, 0), (100, 0, 'backward', 0, 855000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 50, 'train', 'sync', 100, 900000000, 0, 100);
