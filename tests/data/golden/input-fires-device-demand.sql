-- The host needs 20 ms per step, its GPU 42 ms: two workers are enough for that, where
-- the host alone would take what four make.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- predicts: num_workers=2,persistent_workers=True
-- gains: 138 %
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, sync, other)
    VALUES (0, 200, 80, NULL, 15, 4, 1, NULL, 0);
INSERT INTO part(worker, part, n, ms) VALUES (-1, 'sample', 6400, 2.4), (-1, 'fetch', 200, 78),
    (-1, 'collate', 200, 2);
INSERT INTO seen(id, part, file, line, function, share, blocked) VALUES
    (0, 'sample', 'data.py', 30, '__getitem__', 100, 100);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 500, 500, 0.1, 0);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.04, 0.025);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'input', 197, 11600000000, 11600000000, 0),
    (100, 0, 'forward', 0, 4200000000, 0, 0), (100, 0, 'backward', 0, 4200000000, 0, 0);
