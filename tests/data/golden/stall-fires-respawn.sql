-- Every 100 steps worker processes start, in the middle of an epoch, and a batch takes 700 ms.
-- expect: INTERMITTENT STALL warning
-- never: INPUT-BOUND
-- action: keep_workers
-- evidence: stalls_at_worker_start 1
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 400, 0.2, 6, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, input) VALUES (0, 100, 100, 700);
-- The long steps begin after 1.2, 3.1 and 5.0 s.
INSERT INTO processes(pid, ppid, role, rank, worker_id, started_ns, recorded) VALUES
    (201, 100, 'worker', 0, 0, 1500000000, 1), (202, 100, 'worker', 0, 0, 3400000000, 1),
    (203, 100, 'worker', 0, 0, 5300000000, 1);
UPDATE loaders SET num_workers = 1;
