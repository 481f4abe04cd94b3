-- Compile steps are counted and left out, wherever they are.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO bump(rank, first, every, forward, flags) VALUES (0, 0, 80, 4000, 2);
