-- 9 % outside of the phases.
-- expect: BALANCED info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.2, 4, 4.2, 0.7, 0.9);
