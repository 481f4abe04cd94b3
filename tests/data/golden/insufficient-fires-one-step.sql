-- One slow step is too little for any verdict.
-- expect: INSUFFICIENT DATA info
-- says: Only 1 of 1 steps
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1, 400, 4, 5, 0.7, 0.1);
