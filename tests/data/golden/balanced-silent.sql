-- Nothing fired, but the input could not be seen: not balanced.
-- expect: INSUFFICIENT DATA info
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0, 4, 4.1, 0.7, 0.6);
UPDATE processes SET signals = 'backward,optimizer', missing = 'fetch: no _BaseDataLoaderIter';
