-- The device was busy 25 % of the time, because it waits for input.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- expect: LOW_GPU_UTILIZATION warning
-- also: busy 25 % of the time on average; the step time is INPUT-BOUND.
-- also: Follow the step-time verdict INPUT-BOUND
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 300, 8, 4, 5, 0.6, 0.1);
INSERT INTO gpu(ms, utilization) VALUES (300, 0.25);
