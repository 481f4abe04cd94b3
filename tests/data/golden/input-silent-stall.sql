-- One fetch in a hundred takes 300 ms; all others are quick. Not input-bound: a stall.
-- expect: INTERMITTENT STALL warning
-- never: INPUT-BOUND
-- action: inspect_step step=90
-- evidence: stall_period 100
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 400, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, input) VALUES (0, 90, 100, 300);
