-- Input takes 10.1 % of each step: just above the threshold.
-- expect: INPUT-BOUND warning NO_OVERLAP
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 1.01, 4, 4.4, 0.58, 0.01);
