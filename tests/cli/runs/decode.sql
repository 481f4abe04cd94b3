-- Four workers decode images on four cores, all of them full: every figure of the input path.
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 300, 18, 6, 5, 0.9, 0.1);
UPDATE loaders SET num_workers = 4, prefetch_factor = 2, persistent_workers = 1;
INSERT INTO worker_set VALUES (4, 0.97, 116);
INSERT INTO machine(ms, cpu, run_cpu) VALUES (200, 0.97, 0.97);
INSERT INTO sampled(pid, ms, rss_mib, cores, delay) VALUES (100, 200, 500, 0.35, 0.05),
    (201, 200, 300, 0.9, 0.05), (202, 200, 300, 0.9, 0.05), (203, 200, 300, 0.9, 0.05),
    (204, 200, 300, 0.9, 0.05);
INSERT INTO part(worker, part, n, ms, bytes)
SELECT w.value, p.value ->> 0, p.value ->> 1, p.value ->> 2, p.value ->> 3
FROM json_each('[0,1,2,3]') AS w, json_each('[["sample",2400,3.57,0],["fetch",75,114.2,0],
    ["collate",75,1.8,0],["pickle",75,0.21,48000],["idle",75,2.9,0]]') AS p;
INSERT INTO part(worker, part, n, ms, bytes) VALUES (-1, 'unpickle', 300, 0.7, 192000);
INSERT INTO input_ready SELECT 100, 0, -1, p.value ->> 0, p.value ->> 1
FROM json_each('[[0,276],[1,15],[2,6],[3,3]]') AS p;
-- 3.44, 3.58 and 4.1 ms; 112 and 119 ms; 1.79 ms; 0.21 ms
INSERT INTO input_hist SELECT 100, 0, w.value, p.value ->> 0, p.value ->> 1, p.value ->> 2
FROM json_each('[0,1,2,3]') AS w, json_each('[["sample",563,1000],["sample",566,1300],
    ["sample",574,100],["fetch",726,60],["fetch",729,15],["collate",535,75],
    ["pickle",435,75]]') AS p;
INSERT INTO seen VALUES
    (0, NULL, 'sample', 'train.py', 33, '__getitem__', 82, 2, 76, 0),
    (1, 0, 'sample', '/venv/lib/python3.12/site-packages/PIL/ImageFile.py', 390, 'load', 76, 0, 76, 0),
    (2, NULL, 'sample', 'train.py', 35, '__getitem__', 15, 0, 0, 0),
    (3, NULL, 'collate', '/venv/lib/python3.12/site-packages/torch/utils/data/_utils/collate.py', 272,
     'collate_tensor_fn', 3, 0, 0, 0);
