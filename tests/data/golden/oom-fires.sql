-- The kernel killed the training.
-- expect: OOM KILL critical
-- expect: INPUT-BOUND critical NO_OVERLAP
-- action: use_less_host_memory
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 300, 8, 4, 5, 0.6, 0.1);
INSERT OR REPLACE INTO meta VALUES ('ended', 'killed'), ('signal', '9'), ('exit_status', '137'), ('oom_kills', '1');
