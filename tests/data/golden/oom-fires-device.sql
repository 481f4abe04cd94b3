-- torch found no room on the device.
-- expect: OOM KILL critical rank=0
-- expect: COMPUTE-BOUND info
-- action: use_less_device_memory
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.3, 4, 5, 0.6, 0.1);
INSERT OR REPLACE INTO meta VALUES ('ended', 'failed'), ('exit_status', '1');
UPDATE processes SET exception = 'OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (train.py:20)';
