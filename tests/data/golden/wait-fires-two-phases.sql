-- Two named phases and little else: the larger is named, although it is less than half.
-- expect: WAIT-HEAVY critical
-- action: reduce_phase phase=metrics
-- evidence: span_time 2.20
INSERT INTO shape(rank, steps, input, forward, backward, optimizer, other) VALUES
    (0, 100, 0.2, 5, 4, 0.7, 5);
INSERT INTO span_totals VALUES (0, 'metrics', 100, 220000000, 3000000, 220000000),
    (0, 'plots', 100, 180000000, 3000000, 180000000);
