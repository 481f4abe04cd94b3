-- Two kept steps are enough for a capped verdict.
-- expect: INPUT-BOUND warning NO_OVERLAP
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 2, 40, 4, 5, 0.7, 0.1);
