-- Small pinned batches, each copy waited for: the copy is fast, but the GPU is idle after it.
-- expect: H2D-BOUND warning
-- at: train.py:41
-- gains: 14 %
-- action: copy_async
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 7, 3, 3, 1.8, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'h2d', 97, 20000000, 20000000, 0), (100, 0, 'sync', 97, 180000000, 180000000, 0),
    (100, 0, 'forward', 0, 1300000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 41, 'train', 'h2d_pinned', 100, 1000000, 100000000, 100),
    (100, 0, 'train.py', 41, 'train', 'sync', 100, 600000000, 0, 100);
