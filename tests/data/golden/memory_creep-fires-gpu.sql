-- Memory allocated on the device grows.
-- expect: MEMORY CREEP warning
-- expect: COMPUTE-BOUND info
-- action: drop_references device=0
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO gpu(ms, utilization) VALUES (500, 0.9);
INSERT INTO allocated(rank, ms, gib, gib_per_s) VALUES (0, 500, 2, 0.02);
