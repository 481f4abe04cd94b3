-- 60 of 64 MiB.
-- expect: SHM FULL warning
-- expect: COMPUTE-BOUND info
-- action: raise_shm
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu, shm_mib) VALUES (500, 0.5, 0.5, 60);
