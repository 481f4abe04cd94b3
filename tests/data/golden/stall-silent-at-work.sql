-- The host runs ahead of the GPU, and in eleven steps a library waits for it, once for 370 ms: all that time
-- the GPU is at work.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 101, 0.1, 3, 22.5, 0.3, 0.2);
INSERT INTO bump(rank, first, every, forward) VALUES (0, 100, 1000, 370);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 27, '<module>', 'h2d_pinned', 101, 2108737, 211812352, 101),
    (100, 0, 'train.py', 27, '<module>', 'event_sync', 88, 590767174, 0, 11);
