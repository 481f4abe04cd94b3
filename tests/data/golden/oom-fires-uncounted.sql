-- No counter, but SIGKILL with no memory left.
-- expect: OOM KILL critical
-- expect: HIGH RAM critical
-- expect: COMPUTE-BOUND info
-- action: use_less_host_memory
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
DELETE FROM meta WHERE key = 'oom_kills';
INSERT OR REPLACE INTO meta VALUES ('ended', 'killed'), ('signal', '9');
INSERT INTO machine(ms, cpu, run_cpu, available_gib) VALUES (200, 0.5, 0.5, 0.3);
