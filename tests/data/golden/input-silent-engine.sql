-- leat's own loader with batches ready: its threads rest, and nothing is said of them.
-- expect: COMPUTE-BOUND info
-- never: INPUT-BOUND
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 12, 14, 3.8, 0.1);
UPDATE loaders SET num_workers = NULL, wait_ns = 10000000;
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.4, 0.4);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 1.5, 0.01);
INSERT INTO engines(pid, loader, source, ordering, threads, cores, ahead, memory_bytes, batches,
                    samples, bytes, waits, wait_ns, help_ns, order_ns, read_ns, layout_ns, idle_ns)
    VALUES (100, 0, 'npy x.npy: 3200 samples of float32[100]', 'full', 3, 4, 16, 4000000000, 100,
            3200, 1280000, 1, 2000000, 1000000, 3000000, 457000000, 0, 8000000000);
