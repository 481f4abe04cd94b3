-- Choosing the samples, a few bytes each, takes longer than reading them, and no core is free.
-- expect: INPUT-BOUND critical SLOW_ORDER
-- expect: HIGH CPU info
-- predicts: order at no cost
-- action: order_cheaply
-- evidence: engine_order_time 71.0
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = NULL, wait_ns = 1800000000;
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.99, 0.98);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 3.9, 0.05);
INSERT INTO engines(pid, loader, source, ordering, threads, cores, ahead, memory_bytes, batches,
                    samples, bytes, waits, wait_ns, help_ns, order_ns, read_ns, layout_ns, idle_ns)
    VALUES (100, 0, 'memory: 3200 samples', 'full', 3, 4, 16, 4000000000, 100, 3200, 12800,
            100, 1790000000, 1700000000, 7100000000, 3000000000, 500000000, 100000000);
