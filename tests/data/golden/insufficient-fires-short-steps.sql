-- Steps of 20 us against a cost of 3 us.
-- expect: INSUFFICIENT DATA info
-- action: lengthen_steps
-- evidence: leat_cost 0.003
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 200, 0.008, 0.006, 0.004, 0.002, 0);
