-- The device is full, but not with this run's reserve.
-- expect: HIGH GPU MEM warning
-- expect: COMPUTE-BOUND info
-- action: use_less_device_memory
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO gpu(ms, utilization, used_gib) VALUES (500, 0.9, 78);
INSERT INTO allocated(rank, ms, gib, reserved_gib) VALUES (0, 500, 10, 12);
