-- Two of four ranks run here, so the others are on other nodes: the finding names the node of the late one.
-- expect: COMPUTE STRAGGLER critical rank=3 node=n0
-- action: inspect_rank phase=forward
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 3, 1, 4, 1, 'fetch,backward,optimizer,sync', '2.13', 500);
UPDATE processes SET world_size = 4, signals = 'fetch,backward,optimizer,sync';
UPDATE processes SET rank = 2 WHERE pid = 100;
UPDATE loaders SET rank = 2;
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (101, 0, 3, 'train', 'train.py:12', 0, 100, 100000000);
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (2, 100, 0.2, 10, 50, 1, 0, 0.1),
    (3, 100, 0.2, 40, 20, 1, 0, 0.1);
