-- A run whose folder was asked for with --logs-dir.
INSERT INTO meta VALUES ('logs_dir', '/scratch/my runs');
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 50, 30, 20, 25, 3.7, 0.5);
