-- The run uses 15.6 of 16 GiB of the host.
-- expect: HIGH PRESSURE critical
-- expect: HIGH RAM critical
-- expect: COMPUTE-BOUND info
-- action: use_less_host_memory
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO machine(ms, cpu, run_cpu, available_gib) VALUES (500, 0.5, 0.5, 0.2);
INSERT INTO sampled(pid, ms, rss_mib) VALUES (100, 500, 15980);
