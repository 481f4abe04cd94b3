-- An evaluation takes 400 ms every 100 steps; its time belongs to no step, so the run is healthy.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO bump(rank, first, every, flags) VALUES (0, 100, 100, 8);
INSERT INTO span_totals VALUES (0, 'eval', 2, 800000000, 400000000, 0);
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (100, 1, 0, 'eval', 'train.py:14', 0, 2, 800000000);
