-- 20 steps, the slowest twice as long as the rest: it holds 10 % of the time, which is no stall.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 23, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, forward) VALUES (0, 12, 1000, 10);
