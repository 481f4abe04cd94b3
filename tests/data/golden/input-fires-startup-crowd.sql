-- The same beside programs that keep most of the cores: how long a start takes depends on them.
-- expect: INPUT-BOUND critical WORKER_STARTUP
-- expect: INTERMITTENT STALL warning
-- expect: HIGH CPU info
-- action: keep_workers num_workers=2,persistent_workers=True
-- gains: none
-- evidence: foreign_cores 3.00
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.2, 6, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, input, flags) VALUES (0, 0, 10, 200, 1);
UPDATE loaders SET num_workers = 2, iterations = 10, first_wait_ns = 2000000000;
INSERT INTO workers(pid, parent_pid, rank, worker_id, batches, samples, busy_ns, first_ns, last_ns, max_ns) VALUES (201, 100, 0, 0, 50, 1600, 200000000, 0, 3000000000, 6000000);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 1.0, 0.25);
