-- A full shuffle over tar shards, with all cores busy.
-- expect: INPUT-BOUND critical SLOW_READ
-- expect: HIGH CPU info
-- action: read_neighbours order=window
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = NULL, wait_ns = 1800000000;
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.99, 0.98);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 3.9, 0.05);
INSERT INTO engines(pid, loader, source, ordering, threads, cores, ahead, memory_bytes, batches,
                    samples, bytes, waits, wait_ns, help_ns, order_ns, read_ns, layout_ns, idle_ns)
    VALUES (100, 0, 'tar x.tar: 3200 samples of float32[100]', 'full', 3, 4, 16, 4000000000, 100,
            3200, 1280000, 100, 1790000000, 1700000000, 30000000, 10600000000, 0, 100000000);
