-- No workers, and a collate_fn that takes nearly all of the time to make a batch: workers would only multiply
-- it.
-- expect: INPUT-BOUND critical SLOW_COLLATE
-- at: train.py:40
-- action: speed_up_collate
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 36, 6, 5, 0.9, 0.1);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (-1, 'sample', 3200, 0.15, 0),
    (-1, 'fetch', 100, 5, 0),
    (-1, 'collate', 100, 30, 0);
INSERT INTO seen VALUES
    (0, NULL, 'collate', 'train.py', 40, 'collate', 85, 0, 0, 0);
