-- A script that trains twice, one process after the other: the second is shown as rank 1, but is no
-- rank of the run, however much slower it is.
-- expect: COMPUTE-BOUND info
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 1, NULL, 1, 1, 'fetch,backward,optimizer', '2.13', 500);
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 10, 90, 1, NULL, 0.1),
    (1, 100, 200, 10, 30, 1, NULL, 0.1);
