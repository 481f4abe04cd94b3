-- Thermal slowdown all the time: it slows the run, and is the verdict.
-- expect: THROTTLED critical
-- expect: INPUT-BOUND warning NO_OVERLAP
-- action: check_cooling
-- text: thermal
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 1.3, 4, 4, 0.6, 0.1);
INSERT INTO gpu(ms, utilization, throttle) VALUES (500, 0.9, 'power_cap,thermal');
