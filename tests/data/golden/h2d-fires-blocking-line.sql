-- Pinned batches, but .to("cuda") without non_blocking=True; the copies delay the stream.
-- expect: H2D-BOUND critical
-- at: train.py:41
-- gains: 67 %
-- action: copy_on_stream
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 13, 0.8, 0.8, 0.2, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'h2d', 97, 600000000, 600000000, 0), (100, 0, 'forward', 0, 900000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 41, 'train', 'h2d_pinned', 100, 1000000, 13400000000, 100),
    (100, 0, 'train.py', 41, 'train', 'sync', 100, 1200000000, 0, 100);
