-- The kernel killed a worker, and the training failed because of it.
-- expect: OOM KILL critical
-- expect: COMPUTE-BOUND info
-- action: use_less_host_memory
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
INSERT OR REPLACE INTO meta VALUES ('ended', 'failed'), ('exit_status', '1'), ('oom_kills', '1');
UPDATE processes SET exception = 'RuntimeError: DataLoader worker (pid 201) is killed by signal: Killed. (train.py:20)';
