-- Collectives that every rank waits for equally.
-- expect: WAIT-HEAVY critical
-- action: reduce_phase phase=all_reduce
-- evidence: span_time 4.90
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, recorded, signals, torch, record_cost_ns)
    VALUES (101, 1, 'main', 1, 1, 2, 1, 'fetch,backward,optimizer,sync', '2.13', 500);
UPDATE processes SET world_size = 2, signals = 'fetch,backward,optimizer,sync';
INSERT INTO loaders(pid, loader, rank, use, location, num_workers, batches, wait_ns)
    VALUES (101, 0, 1, 'train', 'train.py:12', 0, 100, 100000000);
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.2, 5, 4, 0.7, 5, 0.1),
    (1, 100, 0.2, 5, 4, 0.7, 5, 0.1);
INSERT INTO span_totals VALUES (0, 'all_reduce', 400, 490000000, 2000000, 0), (1, 'all_reduce', 400, 490000000, 2000000, 0);
