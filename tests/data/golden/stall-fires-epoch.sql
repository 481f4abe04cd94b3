-- Four epochs; each starts with 700 ms of waiting.
-- expect: INTERMITTENT STALL warning
-- never: INPUT-BOUND
-- action: keep_workers
-- evidence: stalls_at_epoch_start 1
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 428, 0.2, 6, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, input, flags) VALUES (0, 0, 107, 700, 1);
UPDATE loaders SET num_workers = 1, iterations = 4;
