-- Rank 1 was delayed once for 3 s: a stall, no straggler.
-- expect: INTERMITTENT STALL warning
-- never: STRAGGLER
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 1, 1, 2, 1, 'fetch,backward,optimizer,sync', '2.13', 500);
UPDATE processes SET world_size = 2, signals = 'fetch,backward,optimizer,sync';
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (101, 0, 1, 'train', 'train.py:12', 0, 100, 100000000);
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 200, 0.1, 10, 30, 1, 0, 0.1),
    (1, 200, 0.1, 10, 30, 1, 0, 0.1);
INSERT INTO bump(rank, first, every, backward) VALUES (0, 120, 1000, 3000);
INSERT INTO bump(rank, first, every, forward) VALUES (1, 120, 1000, 3000);
