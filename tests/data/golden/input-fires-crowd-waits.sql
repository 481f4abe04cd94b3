-- Eight workers on two cores slow the training, which takes their batches late: they are not
-- busy all the time, and unpacking is slow, but the crowd is why.
-- expect: INPUT-BOUND critical CPU_OVERSUBSCRIBED
-- expect: HIGH CPU info
-- action: set_loader num_workers=1
UPDATE meta SET value = '2' WHERE key = 'cpus';
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 53, 12, 8, 0.9, 0.1);
UPDATE loaders SET num_workers = 8, prefetch_factor = 2;
INSERT INTO worker_set VALUES (8, 0.7, 400);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.99, 0.97);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay)
SELECT 201 + value, 200, 300, 0.2, 0.5 FROM json_each('[0,1,2,3,4,5,6,7]');
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.3, 0.5);
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (0, 'fetch', 100, 395, 0), (0, 'collate', 100, 5, 0), (-1, 'unpickle', 100, 50, 60000);
