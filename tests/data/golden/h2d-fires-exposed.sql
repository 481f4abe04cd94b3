-- Copies delay the stream that computes for 15 % of its time.
-- expect: H2D-BOUND warning
-- action: pin_and_overlap
-- evidence: h2d_time 2.25
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 5, 4, 5, 0.8, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'h2d', 97, 225000000, 225000000, 0), (100, 0, 'forward', 0, 1275000000, 0, 0);
