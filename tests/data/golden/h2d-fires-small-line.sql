-- 200 small copies a step, each waited for: what the GPU then stands idle is because of copies, but
-- for the one wait in 201 that is a loss.item().
-- expect: H2D-BOUND critical
-- at: train.py:41
-- gains: 66 %
-- action: merge_copies
-- evidence: copies 200
-- evidence: h2d_time 5.97
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 7, 3, 3, 1.7, 0.1, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'sync', 19500, 600000000, 600000000, 0), (100, 0, 'forward', 0, 900000000, 0, 0);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 41, 'train', 'h2d_pageable', 20000, 300000000, 1760000, 100),
    (100, 0, 'train.py', 41, 'train', 'sync', 20000, 300000000, 0, 100),
    (100, 0, 'train.py', 50, 'train', 'sync', 100, 1000000, 0, 100);
