-- A pageable copy in every step that takes 4 % of the GPU's time: no verdict.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 13, 0.8, 0.8, 0.2, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'h2d', 97, 60000000, 60000000, 0), (100, 0, 'forward', 0, 1440000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 41, 'train', 'h2d_pageable', 100, 1200000000, 1340000000, 100);
