-- Compute takes 96 %, most of it the backward.
-- expect: COMPUTE-BOUND info
-- action: speed_up_phase phase=backward
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
