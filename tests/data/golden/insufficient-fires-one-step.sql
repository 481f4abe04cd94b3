-- One slow step is not enough for a verdict.
-- expect: INSUFFICIENT DATA info
-- action: run_longer
-- evidence: kept_steps 1
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1, 400, 4, 5, 0.7, 0.1);
