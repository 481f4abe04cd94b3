-- Pinned already: the action is another one.
-- expect: H2D-BOUND warning
-- action: copy_async
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 1.5, 4, 5, 0.3, 0.1);
UPDATE loaders SET pin_memory = 1;
