-- Near miss: quick samples, but they come from files.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 2.2, 1, 1, 0.9, 0.1);
UPDATE loaders SET batch_size = 256, samples = 25600;
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (-1, 'sample', 25600, 0.006, 0),
    (-1, 'fetch', 100, 1.6, 0),
    (-1, 'collate', 100, 0.3, 0);
INSERT INTO seen VALUES
    (0, NULL, 'sample', 'train.py', 20, '__getitem__', 90, 30, 0, 0);
