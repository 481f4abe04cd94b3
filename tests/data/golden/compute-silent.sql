-- 89 % compute.
-- expect: BALANCED info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.5, 4, 4.2, 0.7, 0.6);
