-- Pageable copies take 5 of 15 ms.
-- expect: H2D-BOUND critical
-- action: pin_and_overlap
INSERT INTO shape(rank, steps, input, h2d, forward, backward, optimizer, other) VALUES
    (0, 100, 0.1, 5, 4, 5, 0.8, 0.1);
