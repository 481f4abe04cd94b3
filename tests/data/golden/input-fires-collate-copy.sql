-- Near miss: torch's own collate copies large samples, which workers overlap.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- action: set_loader num_workers=3,persistent_workers=True
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 36, 6, 5, 0.9, 0.1);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (-1, 'sample', 3200, 0.15, 0),
    (-1, 'fetch', 100, 5, 0),
    (-1, 'collate', 100, 30, 0);
INSERT INTO seen VALUES
    (0, NULL, 'collate', '/x/site-packages/torch/utils/data/_utils/collate.py', 40, 'default_collate', 85, 0, 0, 0);
