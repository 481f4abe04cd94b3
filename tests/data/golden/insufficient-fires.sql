-- A script without torch.
-- expect: INSUFFICIENT DATA info
-- says: does not use torch
UPDATE processes SET torch = NULL;
