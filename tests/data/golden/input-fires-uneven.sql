-- Worker 1 takes four times as long for a batch as the others, which wait for their turn.
-- expect: INPUT-BOUND critical UNEVEN_WORKERS
-- predicts: worker 1 as fast as the others
-- action: balance_workers worker=1
-- evidence: slowest_worker 80.0
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 99, 15, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 3;
INSERT INTO workers(pid, parent_pid, rank, worker_id, batches, samples, busy_ns, first_ns, last_ns, max_ns) VALUES (201, 100, 0, 0, 33, 1056, 660000000, 0, 2700000000, 22000000),
    (202, 100, 0, 1, 33, 1056, 2640000000, 0, 2700000000, 90000000),
    (203, 100, 0, 2, 33, 1056, 660000000, 0, 2700000000, 22000000);
