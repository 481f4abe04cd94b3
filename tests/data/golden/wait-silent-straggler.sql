-- Rank 0 waits in its all-reduce, but for rank 1: the straggler is the verdict, and the only one.
-- expect: COMPUTE STRAGGLER critical rank=1
-- never: WAIT-HEAVY
-- action: inspect_rank phase=backward
-- evidence: phase_time 50.0
-- evidence: median_rank_time 10.0
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 1, 1, 2, 1, 'fetch,backward,optimizer,sync', '2.13', 500);
UPDATE processes SET world_size = 2, signals = 'fetch,backward,optimizer,sync';
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (101, 0, 1, 'train', 'train.py:12', 0, 100, 100000000);
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.2, 10, 10, 0.7, 40.3, 0.1),
    (1, 100, 0.2, 10, 50, 0.7, 0.3, 0.1);
