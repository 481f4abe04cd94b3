-- Nobody spoke, and nobody knows why.
-- expect: INSUFFICIENT DATA info
-- says: No Python process
UPDATE processes SET recorded = 0, torch = NULL;
