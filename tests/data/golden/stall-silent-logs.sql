-- The same, by a line that does nothing else: the loss is read every 25 steps.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 101, 0.1, 3, 22.5, 0.3, 0.2);
INSERT INTO bump(rank, first, every, forward) VALUES (0, 25, 25, 370);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 33, '<module>', 'sync', 4, 1480000000, 0, 4);
