-- No process sent records, because none imported torch.
-- expect: INSUFFICIENT DATA info
-- action: run_training
-- evidence: reporting_processes 0
UPDATE processes SET recorded = 0, torch = NULL;
