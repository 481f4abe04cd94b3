-- Rank 0 reads slowly; rank 1 waits for it in the backward, where DDP reduces.
-- gains: up to 991 %
-- expect: INPUT STRAGGLER critical NO_OVERLAP rank=0 node=n0
-- never: INPUT-BOUND
-- action: set_loader num_workers=3,persistent_workers=True
-- evidence: phase_time 254.5
-- evidence: median_rank_time 3.8
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 1, 1, 2, 1, 'fetch,backward,optimizer,sync', '2.13', 500);
UPDATE processes SET world_size = 2, signals = 'fetch,backward,optimizer,sync';
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (101, 0, 1, 'train', 'train.py:12', 0, 100, 100000000);
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 254.5, 10, 10, 1, 0, 0.5),
    (1, 100, 3.8, 10, 260.7, 1, 0, 0.5);
