-- Two training loaders: the first has workers and is hardly waited for, the second feeds the steps.
-- expect: INPUT-BOUND critical NO_OVERLAP
-- at: train.py:20
-- action: set_loader num_workers=2,persistent_workers=True
-- evidence: wait_per_batch 8.00
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 8, 4, 5, 0.6, 0.4);
UPDATE loaders SET num_workers = 4, wait_ns = 1000000;
INSERT INTO loaders(pid, loader, rank, use, dataset, location, batch_size, num_workers, pin_memory,
                    persistent_workers, iterable, iterations, batches, samples, wait_ns,
                    first_wait_ns, background_ns)
    VALUES (100, 1, 0, 'train', 'Images', 'train.py:20', 32, 0, 0, 0, 0, 1, 100, 3200, 800000000,
            8000000, 0);
