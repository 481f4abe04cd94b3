-- Input takes 19.9 % of each step: just below the critical threshold.
-- expect: INPUT-BOUND warning NO_OVERLAP
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 1.99, 4, 3.4, 0.6, 0.01);
