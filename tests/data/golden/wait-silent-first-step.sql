-- One 300 ms first step among 30 healthy ones is warm-up.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 31, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, other) VALUES (0, 0, 1000, 300);
