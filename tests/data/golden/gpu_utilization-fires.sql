-- The device was busy 25 % of the time, because it waits for input.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- expect: LOW_GPU_UTILIZATION warning
-- action: set_loader num_workers=2,persistent_workers=True
-- also: follow_verdict verdict=INPUT-BOUND
-- evidence: utilization 0.25
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 300, 8, 4, 5, 0.6, 0.1);
INSERT INTO gpu(ms, utilization) VALUES (300, 0.25);
