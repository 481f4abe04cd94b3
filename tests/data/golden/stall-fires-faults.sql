-- Slow steps come with major page faults: the page cache missed.
-- expect: INTERMITTENT STALL warning
-- action: cache_data
-- evidence: stalls_at_page_faults 1
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 400, 0.2, 4, 5, 0.7, 0.1);
INSERT INTO bump(rank, first, every, forward) VALUES (0, 60, 130, 500);
INSERT INTO proc_samples(t_ns, pid, major_faults) VALUES (500000000, 100, 0), (700000000, 100, 300),
    (2000000000, 100, 300), (2600000000, 100, 800), (3800000000, 100, 800), (4600000000, 100, 1200), (5000000000, 100, 1200);
