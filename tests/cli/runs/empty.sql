-- A script without torch.
UPDATE processes SET role = 'other', rank = NULL, torch = NULL, signals = NULL;
DELETE FROM loaders;
