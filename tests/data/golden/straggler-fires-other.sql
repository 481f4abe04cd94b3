-- Rank 0 writes logs that the others wait for: no phase that has its own label.
-- expect: STRAGGLER critical rank=0
-- action: reduce_phase phase=other
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 1, 1, 2, 1, 'fetch,backward,optimizer,sync', '2.13', 500);
UPDATE processes SET world_size = 2, signals = 'fetch,backward,optimizer,sync';
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (101, 0, 1, 'train', 'train.py:12', 0, 100, 100000000);
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.2, 10, 10, 1, 0, 20),
    (1, 100, 0.2, 10, 29.9, 1, 0, 0.1);
