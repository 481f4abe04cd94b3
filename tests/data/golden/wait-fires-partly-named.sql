-- A checkpoint takes 2 of 5 ms: named time is not counted as outside of all known phases.
-- expect: WAIT-HEAVY critical
-- action: mark_phases
-- text: 3.00 ms
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.2, 5, 4, 0.7, 5);
INSERT INTO span_totals VALUES (0, 'checkpoint', 4, 200000000, 50000000, 200000000);
