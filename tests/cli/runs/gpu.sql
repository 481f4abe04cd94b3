-- A GPU that waits for copies of pageable memory; every line of the report that needs a GPU.
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 13, 0.8, 0.8, 0.2, 0.1);
INSERT INTO gpu_clock(pid, rank, phase, n, device_ns, idle_ns, hidden_ns) VALUES
    (100, 0, 'input', 97, 50000000, 50000000, 60000000),
    (100, 0, 'h2d', 97, 600000000, 600000000, 0), (100, 0, 'forward', 0, 850000000, 20000000, 0);
INSERT INTO cuda_calls(pid, rank, span, class, n, ns, bytes) VALUES
    (100, 0, 'steps', 'launch', 10100, 50000000, 0), (100, 0, 'steps', 'sync', 400, 200000000, 0),
    (100, 0, 'steps', 'h2d_pageable', 200, 1200000000, 13400000000),
    (100, 0, 'steps', 'alloc', 100, 9000000, 1000000);
INSERT INTO cuda_lines(pid, rank, file, line, function, class, n, ns, bytes, steps) VALUES
    (100, 0, 'train.py', 41, 'train', 'h2d_pageable', 100, 1200000000, 13400000000, 100),
    (100, 0, 'train.py', 44, 'train', 'h2d_pinned', 100, 300000000, 1000000000, 100),
    (100, 0, 'train.py', 57, 'train', 'sync', 100, 40000000, 0, 100);
INSERT INTO gpu_samples(t_ns, gpu, utilization, memory_used, memory_total, temperature_c,
                        temperature_limit_c, power_w, power_limit_w, sm_clock_mhz, throttle,
                        pcie_tx_bytes_s, pcie_rx_bytes_s) VALUES
    (1000000000, 'GPU-1', 0.6, 10737418240, 85899345920, 60, 90, 300, 700, 1400, 'power_cap',
     1048576, 1073741824);
