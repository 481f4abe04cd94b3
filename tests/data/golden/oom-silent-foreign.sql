-- The kernel killed a process of another program; this run completed.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
INSERT OR REPLACE INTO meta VALUES ('oom_kills', '1');
