-- 5 MiB/s come back from swap.
-- expect: SWAPPING warning
-- expect: COMPUTE-BOUND info
-- action: use_less_host_memory
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu, swap_mib_per_s) VALUES (500, 0.5, 0.5, 5);
