-- A slow first step in a run of ten is warm-up too.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 10, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, other) VALUES (0, 0, 1000, 300);
