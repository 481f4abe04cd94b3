-- 50 % of the time, but only 10 steps: severity is capped at warning.
-- expect: INPUT-BOUND warning NO_OVERLAP
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 10, 10, 4, 5, 0.6, 0.4);
