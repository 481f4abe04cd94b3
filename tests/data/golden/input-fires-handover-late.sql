-- Near miss: as input-fires-collate-late, but the workers are idle half of the time: the hand-over of
-- few bytes is slow by itself.
-- expect: INPUT-BOUND critical SLOW_HANDOVER
-- action: use_fewer_tensors
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 20.5, 15, 7, 0.4, 0.1);
UPDATE loaders SET num_workers = 2, prefetch_factor = 2;
INSERT INTO worker_set VALUES (2, 0.5, 80);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.6, 0.6);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.2, 0.05),
    (201, 200, 300, 0.8, 0.05), (202, 200, 300, 0.8, 0.05);
INSERT INTO part(worker, part, n, ms, bytes) VALUES (0, 'fetch', 100, 7, 0), (0, 'collate', 100, 72, 0),
    (0, 'pickle', 100, 2, 60000), (-1, 'unpickle', 100, 17.5, 60000);
