-- Input takes 9.9 % of each step: just below the threshold.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.99, 4, 4.4, 0.6, 0.01);
