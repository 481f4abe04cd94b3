-- Near miss: the batch size is only an upper limit of the sampler; the training received less.
-- expect: INPUT-BOUND critical PER_SAMPLE_OVERHEAD
-- predicts: batch_size=None,num_workers=0
-- action: index_batches batch_size=None
-- evidence: sample_time 0.0060
-- evidence: samples_per_batch 200
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 2.2, 1, 1, 0.9, 0.1);
UPDATE loaders SET batch_size = 256, iterations = 4, samples = 20000;
INSERT INTO part(worker, part, n, ms, bytes) VALUES
    (-1, 'sample', 25600, 0.006, 0),
    (-1, 'fetch', 100, 1.6, 0),
    (-1, 'collate', 100, 0.3, 0);
