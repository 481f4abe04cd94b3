-- 50 %.
-- expect: COMPUTE-BOUND info
-- expect: MODERATE_GPU_UTILIZATION info
-- action: speed_up_phase phase=backward
-- also: follow_verdict verdict=COMPUTE-BOUND
-- evidence: utilization 0.50
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 300, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO gpu(ms, utilization) VALUES (300, 0.5);
