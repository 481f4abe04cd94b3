-- A wait in every step, but without it the host would still work for 14 ms, and the GPU for 4: the
-- kernels are too small.
-- expect: LAUNCH-BOUND critical
-- action: launch_fewer_kernels
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 6, 7, 0.8, 1, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'launch', 97, 1000000000, 1000000000, 0), (100, 0, 'sync', 97, 100000000, 100000000, 0),
    (100, 0, 'forward', 0, 200000000, 0, 0), (100, 0, 'backward', 0, 200000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 50, 'train', 'sync', 100, 100000000, 0, 100);
