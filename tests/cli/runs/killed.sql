-- Killed from outside, with compile steps, an evaluation and a checkpoint before that.
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.8, 20, 25, 3.7, 0.5);
INSERT INTO bump(rank, first, every, last, forward, flags) VALUES (0, 4, 1, 5, 2000, 2);
INSERT INTO bump(rank, first, every, other, flags) VALUES (0, 50, 50, 300, 4);
INSERT INTO span_totals VALUES (0, 'checkpoint', 3, 900000000, 310000000, 900000000),
    (0, 'eval', 2, 2500000000, 1300000000, 0);
UPDATE meta SET value = 'killed' WHERE key = 'ended';
DELETE FROM meta WHERE key = 'exit_status';
INSERT INTO meta VALUES ('signal', '9');
INSERT INTO sampled(pid, ms, rss_mib) VALUES (100, 500, 400);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.4, 0.35);
