-- 900 of 1024 files.
-- expect: FD LIMIT warning
-- expect: COMPUTE-BOUND info
-- action: raise_fd_limit
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 1000, 0.3, 4, 5, 0.6, 0.1);
INSERT INTO sampled(pid, ms, rss_mib, fds) VALUES (100, 500, 500, 900);
