-- Near miss: the loader is leat's already, and runs through torch.
-- expect: INPUT-BOUND critical PER_SAMPLE_OVERHEAD
-- predicts: batch_size=None,num_workers=0
-- action: index_batches batch_size=None
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 2.2, 1, 1, 0.9, 0.1);
UPDATE loaders SET batch_size = 256, samples = 25600;
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (-1, 'sample', 25600, 0.006, 0),
    (-1, 'fetch', 100, 1.6, 0),
    (-1, 'collate', 100, 0.3, 0);
UPDATE loaders SET dataset = 'TensorDataset', engine_readable = 1, own = 1;
INSERT INTO seen VALUES
    (0, NULL, 'sample', '/usr/lib/python3/site-packages/torch/utils/data/dataset.py', 206, '__getitem__', 65, 0, 0, 0),
    (1, NULL, 'collate', '/usr/lib/python3/site-packages/torch/utils/data/_utils/collate.py', 275, 'collate', 25, 0, 0, 0),
    (2, NULL, 'collate', 'train.py', 6, '<module>', 10, 0, 0, 0);
