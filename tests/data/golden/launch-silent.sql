-- Pauses between launches that queued work hides; the remaining idle time is 4 %.
-- expect: COMPUTE-BOUND info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 6, 5, 0.8, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'forward', 97, 600000000, 48000000, 300000000),
    (100, 0, 'backward', 0, 600000000, 0, 0);
