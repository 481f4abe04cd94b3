-- The same on four cores, of which two are free: another thread, or two.
-- expect: INPUT-BOUND critical TOO_FEW_THREADS
-- predicts: num_threads=3
-- action: set_loader num_threads=3
-- evidence: engine_threads 1
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = NULL, wait_ns = 1800000000;
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.5, 0.5);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 1.95, 0.01);
INSERT INTO engines(pid, loader, source, ordering, threads, cores, ahead, memory_bytes, batches,
                    samples, bytes, waits, wait_ns, help_ns, order_ns, read_ns, layout_ns, idle_ns)
    VALUES (100, 0, 'npy x.npy: 3200 samples of float32[100]', 'full', 1, 4, 16, 4000000000, 100,
            3200, 1280000, 100, 1790000000, 1700000000, 30000000, 4570000000, 0, 50000000);
