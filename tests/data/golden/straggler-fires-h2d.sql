-- Rank 1 copies slowly.
-- expect: H2D STRAGGLER critical rank=1
-- action: pin_and_overlap phase=h2d
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 1, 1, 2, 1, 'fetch,backward,optimizer,sync', '2.13', 500);
UPDATE processes SET world_size = 2, signals = 'fetch,backward,optimizer,sync';
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (101, 0, 1, 'train', 'train.py:12', 0, 100, 100000000);
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.2, 1, 10, 40, 1, 0, 0.1),
    (1, 100, 0.2, 21, 10, 20, 1, 0, 0.1);
