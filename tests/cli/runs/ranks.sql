-- Two ranks; the second one waits for its own input, and the first for the second.
INSERT INTO processes(pid, ppid, role, rank, local_rank, world_size, comm, started_ns, recorded,
                      signals, python, torch, lost_records, record_cost_ns)
    VALUES (101, 1, 'main', 1, 1, 2, 'python3', 0, 1, 'fetch,backward,optimizer,sync', '3.12',
            '2.13', 0, 500);
UPDATE processes SET world_size = 2, signals = 'fetch,backward,optimizer,sync' WHERE pid = 100;
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, sync, other) VALUES
    (0, 300, 1, 20, 25, 3.7, 19, 0.5), (1, 300, 20, 20, 25, 3.7, 0, 0.5);
INSERT INTO sampled(pid, ms, rss_mib) VALUES (100, 500, 400);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (500, 0.4, 0.35);
