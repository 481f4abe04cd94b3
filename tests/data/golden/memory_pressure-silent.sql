-- 70 of 80 GiB allocated, the rest in reserve: a full device that is no danger.
-- expect: COMPUTE-BOUND info
-- expect: HIGH GPU MEM info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO gpu(ms, utilization, used_gib) VALUES (500, 0.9, 79);
INSERT INTO allocated(rank, ms, gib, reserved_gib) VALUES (0, 500, 70, 78);
