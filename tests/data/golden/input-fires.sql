-- A loader without workers: 8 of 18 ms a step are spent waiting for it.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- never: WAIT-HEAVY
-- at: train.py:12
-- predicts: num_workers=2,persistent_workers=True
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 8, 4, 5, 0.6, 0.4);
