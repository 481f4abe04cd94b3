-- Rank 0 reads slowly, and the others wait in the forward, for the buffers that it broadcasts.
-- expect: INPUT STRAGGLER critical NO_OVERLAP rank=0
-- action: set_loader num_workers=2,persistent_workers=True
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 1, 1, 2, 1, 'fetch,backward,optimizer,sync', '2.13', 500);
UPDATE processes SET world_size = 2, signals = 'fetch,backward,optimizer,sync';
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (101, 0, 1, 'train', 'train.py:12', 0, 100, 100000000);
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 40, 10, 10, 1, 0, 0.1),
    (1, 100, 0.2, 49.8, 10, 1, 0, 0.1);
