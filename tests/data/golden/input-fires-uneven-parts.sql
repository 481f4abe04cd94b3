-- Worker 2 is slow by the parts, which are summed over short epochs; each process made too few
-- batches.
-- expect: INPUT-BOUND critical UNEVEN_WORKERS
-- action: balance_workers worker=2
-- evidence: slowest_worker 80.0
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 15, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 3, prefetch_factor = 2;
INSERT INTO worker_set VALUES (3, 0.5, 600);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'fetch', 33, 19, 0),
    (1, 'fetch', 33, 19, 0),
    (2, 'fetch', 33, 78, 0),
    (0, 'collate', 33, 1, 0),
    (1, 'collate', 33, 1, 0),
    (2, 'collate', 33, 2, 0);
