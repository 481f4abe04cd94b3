-- Near miss: samples of 60 us do some work each, which workers overlap.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 16, 3, 3, 0.9, 0.1);
UPDATE loaders SET batch_size = 256, samples = 25600;
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (-1, 'sample', 25600, 0.06, 0),
    (-1, 'fetch', 100, 15.4, 0),
    (-1, 'collate', 100, 0.3, 0);
