-- Four workers decode on four cores, which are all busy: the cause is the line.
-- expect: INPUT-BOUND critical SLOW_SAMPLE
-- expect: HIGH CPU info
-- at: train.py:33
-- predicts: train.py:33 at no cost
-- action: decode_less
-- evidence: sample_decode_share 0.80
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 4, prefetch_factor = 2;
INSERT INTO worker_set VALUES (4, 0.97, 110);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.97, 0.97);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.35, 0.05),
    (201, 200, 300, 0.9, 0.05),
    (202, 200, 300, 0.9, 0.05),
    (203, 200, 300, 0.9, 0.05),
    (204, 200, 300, 0.9, 0.05);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'sample', 800, 3.4, 0),
    (0, 'fetch', 25, 108, 0),
    (0, 'collate', 25, 2, 0),
    (1, 'sample', 800, 3.4, 0),
    (1, 'fetch', 25, 108, 0),
    (1, 'collate', 25, 2, 0),
    (2, 'sample', 800, 3.4, 0),
    (2, 'fetch', 25, 108, 0),
    (2, 'collate', 25, 2, 0),
    (3, 'sample', 800, 3.4, 0),
    (3, 'fetch', 25, 108, 0),
    (3, 'collate', 25, 2, 0);
INSERT INTO seen VALUES
    (0, NULL, 'sample', 'train.py', 33, '__getitem__', 85, 2, 80, 0),
    (1, 0, 'sample', '/x/site-packages/PIL/ImageFile.py', 300, 'load', 80, 0, 80, 0),
    (2, NULL, 'sample', 'train.py', 35, '__getitem__', 15, 0, 0, 0);
