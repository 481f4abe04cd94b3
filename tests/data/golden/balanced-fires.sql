-- Input 6 %, waiting 6 %: no phase takes too much.
-- expect: BALANCED info
-- action: nothing
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.6, 4, 4.1, 0.7, 0.6);
