-- 87 C of 90 C, all the time.
-- expect: HIGH GPU TEMP warning
-- expect: COMPUTE-BOUND info
-- action: check_cooling
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO gpu(ms, utilization, temperature) VALUES (500, 0.9, 87);
