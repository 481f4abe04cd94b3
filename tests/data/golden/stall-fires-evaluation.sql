-- Every 100 steps an evaluation, after which the training's caches are cold: 500 ms for a batch.
-- expect: INTERMITTENT STALL warning
-- never: INPUT-BOUND
-- action: evaluate_less_often
-- evidence: stalls_after_evaluation 1
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 400, 0.2, 6, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, input, flags) VALUES (0, 100, 100, 500, 8);
