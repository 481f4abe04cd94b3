-- Training on the CPU: normal.
-- expect: COMPUTE-BOUND info
-- expect: HIGH CPU info
-- action: speed_up_phase phase=backward
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.97, 0.9);
