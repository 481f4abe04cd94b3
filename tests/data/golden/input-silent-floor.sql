-- Input is 15 % of a step of 40 us, but less than ten times leat's own cost: no verdict rests on it.
-- expect: BALANCED info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.006, 0.02, 0.012, 0.002, 0);
UPDATE processes SET record_cost_ns = 500;
