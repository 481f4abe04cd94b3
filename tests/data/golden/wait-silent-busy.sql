-- loss.item() in every step: the host waits for a GPU that is at work.
-- expect: COMPUTE-BOUND info
-- action: speed_up_phase phase=backward
-- evidence: gpu_busy 0.98
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 100, 0.1, 2, 3, 0.8, 9, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'sync', 97, 30000000, 30000000, 870000000),
    (100, 0, 'forward', 0, 600000000, 0, 0), (100, 0, 'backward', 0, 870000000, 0, 0);
