-- A run on a GPU with all cores full.
-- expect: HIGH CPU warning
-- expect: COMPUTE-BOUND info
-- action: free_cores
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO gpu(ms, utilization) VALUES (500, 0.9);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.97, 0.9);
