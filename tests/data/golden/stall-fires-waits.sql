-- One step of 98 takes 370 ms more. The waits for the GPU are in every step, and short.
-- expect: INTERMITTENT STALL warning
-- action: inspect_step step=100
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 101, 0.1, 3, 22.5, 0.3, 0.2);
INSERT INTO bump(rank, first, every, other) VALUES (0, 100, 1000, 370);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 27, '<module>', 'event_sync', 101, 590767174, 0, 101);
