-- Threads that are idle for a third of the time, and a training that sometimes waits: batches take
-- unequally long, and the budget lets no more of them be made ahead.
-- expect: INPUT-BOUND critical TOO_FEW_AHEAD
-- action: raise_budget
-- evidence: threads_busy 0.67
-- evidence: requests_not_ready 0.60
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = NULL, wait_ns = 1800000000;
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.5, 0.5);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 1.95, 0.01);
INSERT INTO engines(pid, loader, source, ordering, threads, cores, ahead, memory_bytes, batches,
                    samples, bytes, waits, wait_ns, help_ns, order_ns, read_ns, layout_ns, idle_ns)
    VALUES (100, 0, 'tar x.tar: 3200 samples', 'window', 2, 4, 2, 400000000, 100, 3200, 10000000000,
            60, 1790000000, 0, 30000000, 3970000000, 0, 2000000000);
