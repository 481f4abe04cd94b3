-- Nothing names it: the action says between which phases it is.
-- gains: up to 51 %
-- expect: WAIT-HEAVY critical
-- action: mark_phases
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.2, 5, 4, 0.7, 5);
