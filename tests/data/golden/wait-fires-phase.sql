-- A phase that the user named takes most of the waiting; the name has a quote.
-- gains: up to 51 %
-- expect: WAIT-HEAVY critical
-- action: reduce_phase phase=the user's metrics
-- evidence: span_time 4.50
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.2, 5, 4, 0.7, 5);
INSERT INTO span_totals VALUES (0, 'the user''s metrics', 100, 450000000, 5000000, 450000000);
