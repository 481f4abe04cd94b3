-- A worker died with a bus error.
-- expect: SHM FULL critical
-- expect: COMPUTE-BOUND info
-- action: raise_shm
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
INSERT OR REPLACE INTO meta VALUES ('ended', 'failed'), ('exit_status', '1');
UPDATE processes SET exception = 'RuntimeError: DataLoader worker (pid 201) is killed by signal: Bus error. It is possible that dataloader''s workers are out of shared memory.';
