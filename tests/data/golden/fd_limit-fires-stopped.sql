-- The run ended because of it.
-- expect: FD LIMIT critical
-- expect: COMPUTE-BOUND info
-- action: raise_fd_limit
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
INSERT OR REPLACE INTO meta VALUES ('ended', 'failed'), ('exit_status', '1');
UPDATE processes SET exception = 'OSError: [Errno 24] Too many open files (train.py:20)';
