-- leat's own loader with one thread on two cores: it reads all the time, the training helps, and no
-- core is free.
-- expect: INPUT-BOUND critical SLOW_READ
-- expect: HIGH CPU info
-- at: train.py:12
-- action: read_neighbours order=quasi
-- evidence: threads_busy 0.98
-- evidence: engine_threads 1
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE meta SET value = '2' WHERE key = 'cpus';
UPDATE loaders SET num_workers = NULL, wait_ns = 1800000000;
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.98, 0.95);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 1.9, 0.05);
INSERT INTO engines(pid, loader, source, ordering, threads, cores, ahead, memory_bytes, batches,
                    samples, bytes, waits, wait_ns, help_ns, order_ns, read_ns, layout_ns, idle_ns)
    VALUES (100, 0, 'npy x.npy: 3200 samples of float32[100]', 'full', 1, 2, 16, 4000000000, 100,
            3200, 1280000, 100, 1790000000, 1700000000, 30000000, 4570000000, 0, 50000000);
