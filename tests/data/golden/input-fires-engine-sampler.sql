-- A sampler of the user's draws indices in Python: the engine waits for them.
-- expect: INPUT-BOUND critical SLOW_SAMPLER
-- predicts: indices at no cost
-- action: shuffle_in_leat shuffle=True
-- evidence: wait_outside_engine 0.95
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = NULL, wait_ns = 1800000000;
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.3, 0.3);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 1, 0.01);
INSERT INTO engines(pid, loader, source, ordering, threads, cores, ahead, memory_bytes, batches,
                    samples, bytes, waits, wait_ns, help_ns, order_ns, read_ns, layout_ns, idle_ns)
    VALUES (100, 0, 'memory: 3200 samples of float32[100]', 'given', 3, 4, 16, 4000000000, 100,
            3200, 1280000, 100, 90000000, 80000000, 3000000, 100000000, 0, 8000000000);
