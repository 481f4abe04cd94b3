-- Kernels that are too small for their launches: no pause is long, but samples find the GPU idle.
-- gains: up to 150 %
-- expect: LAUNCH-BOUND critical
-- action: launch_fewer_kernels
-- evidence: gpu_idle_in_compute 0.60
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 6, 5, 0.8, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'forward', 97, 280000000, 40000000, 0), (100, 0, 'launch', 600, 680000000, 680000000, 0),
    (100, 0, 'backward', 0, 240000000, 0, 0);
