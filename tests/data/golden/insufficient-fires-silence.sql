-- Nobody spoke: without torch, nobody has anything to say.
-- expect: INSUFFICIENT DATA info
-- says: imported torch
UPDATE processes SET recorded = 0, torch = NULL;
