-- Pinned and non_blocking: the host does not wait, but the stream that computes spends its time in copies
-- for a third of the time. The one line that waits copies next to nothing.
-- expect: H2D-BOUND critical
-- at: train.py:12
-- action: copy_on_stream
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 0.1, 4, 10, 0.7, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'h2d', 97, 500000000, 500000000, 0), (100, 0, 'forward', 0, 1000000000, 0, 0);
INSERT INTO cuda_calls(pid, rank, span, class, n, ns, bytes) VALUES
    (100, 0, 'steps', 'h2d_pinned', 100, 1000000, 26800000000);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 41, 'train', 'h2d_pinned', 100, 1000000, 26800000000, 100),
    (100, 0, 'train.py', 42, 'train', 'h2d_pageable', 100, 90000000, 3280000, 100);
