-- Copies take 5 % of the time.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 0.5, 4, 5, 0.4, 0);
