-- Pinned and non_blocking; once, on the same line, a library copies a few pageable bytes, and now and then
-- it waits for an event.
-- expect: H2D-BOUND critical
-- action: copy_on_stream
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 0.1, 4, 10, 0.7, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'h2d', 97, 500000000, 500000000, 0), (100, 0, 'forward', 0, 1000000000, 0, 0);
INSERT INTO cuda_calls(pid, rank, span, class, n, ns, bytes) VALUES
    (100, 0, 'steps', 'h2d_pinned', 100, 1000000, 26800000000);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 41, 'train', 'h2d_pinned', 100, 1000000, 26800000000, 100),
    (100, 0, 'train.py', 41, 'train', 'h2d_pageable', 2, 20180, 52, 1),
    (100, 0, 'train.py', 41, 'train', 'event_sync', 88, 590767174, 0, 11);
