-- A loop without a DataLoader: the advice says how to see the time of its batches.
-- expect: COMPUTE-BOUND info
-- action: speed_up_phase phase=backward,loader=none
DELETE FROM loaders;
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
