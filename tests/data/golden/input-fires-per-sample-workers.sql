-- The same with workers, which only add the hand-over.
-- expect: INPUT-BOUND critical PER_SAMPLE_OVERHEAD
-- action: index_batches batch_size=None
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 2.2, 1, 1, 0.9, 0.1);
UPDATE loaders SET batch_size = 256, samples = 25600;
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.5, 1.9);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 12800, 0.006, 0),
    (0, 'fetch', 50, 1.6, 0),
    (0, 'collate', 50, 0.3, 0),
    (1, 'sample', 12800, 0.006, 0),
    (1, 'fetch', 50, 1.6, 0),
    (1, 'collate', 50, 0.3, 0),
    (-1, 'unpickle', 100, 1.8, 60000);
