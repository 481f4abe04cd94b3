-- Every 50 steps a checkpoint of 400 ms.
-- gains: up to 82 %
-- expect: WAIT-HEAVY critical
-- expect: INTERMITTENT STALL warning
-- action: save_less_often
-- also: save_less_often
-- evidence: stalls_at_checkpoint
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 400, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, other, flags) VALUES (0, 49, 50, 400, 4);
INSERT INTO span_totals VALUES (0, 'checkpoint', 8, 3200000000, 400000000, 3200000000);
