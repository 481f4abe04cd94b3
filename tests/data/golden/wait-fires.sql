-- A checkpoint after every third step.
-- expect: WAIT-HEAVY critical
-- never: INTERMITTENT STALL
-- action: save_less_often
-- evidence: span_time 19.9
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 120, 0.2, 10, 2, 0.7, 0.1);
INSERT INTO bump(rank, first, every, other, flags) VALUES (0, 2, 3, 60, 4);
INSERT INTO span_totals VALUES (0, 'checkpoint', 40, 2400000000, 61000000, 2390000000);
