-- Workers that are neither busy nor uneven: no cause, but the finding says what is known.
-- expect: INPUT-BOUND critical
-- action: inspect_loader
-- evidence: workers_busy 0.50
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 2;
INSERT INTO workers(pid, parent_pid, rank, worker_id, batches, samples, busy_ns, first_ns, last_ns, max_ns) VALUES (201, 100, 0, 0, 50, 1600, 1500000000, 0, 3000000000, 31000000),
    (202, 100, 0, 1, 50, 1600, 1500000000, 0, 3000000000, 31000000);
