-- The host waits 5 of 15 ms for batches; for 2.25 ms of them the GPU is idle.
-- expect: INPUT-BOUND warning NO_OVERLAP
-- gains: 18 %
-- action: set_loader num_workers=2,persistent_workers=True
-- evidence: input_time 2.25
-- evidence: step_time 15.00
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 5, 4, 5, 0.8, 0.2);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'input', 97, 225000000, 225000000, 260000000),
    (100, 0, 'forward', 0, 600000000, 0, 0), (100, 0, 'backward', 0, 675000000, 0, 0);
