-- One step of 40 takes 300 ms: the slowest 1 % of a short run is one step.
-- expect: INTERMITTENT STALL warning
-- never: WAIT-HEAVY
-- action: inspect_step step=20
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 40, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, other) VALUES (0, 20, 1000, 300);
