-- An exception after 40 steps.
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 40, 0.8, 20, 25, 3.7, 0.5);
UPDATE meta SET value = 'failed' WHERE key = 'ended';
UPDATE meta SET value = '1' WHERE key = 'exit_status';
UPDATE processes SET exception = 'ValueError: Expected input batch_size (32) to match target batch_size (31). (train.py:88)';
INSERT INTO lost VALUES ('probes', 1, 'NVML was not found: no GPU figures. Install the NVIDIA driver.');
INSERT INTO sampled(pid, ms, rss_mib) VALUES (100, 500, 400);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.4, 0.35);
