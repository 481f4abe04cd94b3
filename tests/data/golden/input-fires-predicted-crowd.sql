-- The same where the training computes too: five processes on four cores, and whether a worker finds a
-- core or shares that of the training, which wakes it, is not known.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- action: set_loader num_workers=4,persistent_workers=True
-- gains: none
-- evidence: foreign_cores 0.08
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, sync, other)
    VALUES (0, 200, 80, NULL, 15, 4, 1, NULL, 0);
INSERT INTO part(worker, part, n, ms) VALUES (-1, 'sample', 6400, 2.4), (-1, 'fetch', 200, 78),
    (-1, 'collate', 200, 2);
INSERT INTO seen(id, part, file, line, function, share) VALUES
    (0, 'sample', 'data.py', 30, '__getitem__', 100);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 500, 500, 1, 0);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.27, 0.25);
