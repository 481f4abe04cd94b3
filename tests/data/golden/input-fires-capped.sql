-- 50 % of the time, but only 10 steps: severity is capped at warning.
-- expect: INPUT-BOUND warning NO_OVERLAP
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 10, 10, 4, 5, 0.6, 0.4);
