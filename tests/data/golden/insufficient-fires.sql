-- A script without torch.
-- expect: INSUFFICIENT DATA info
-- action: run_training
-- evidence: torch_processes 0
UPDATE processes SET torch = NULL;
