-- Nobody spoke: without torch, nobody has anything to say.
-- expect: INSUFFICIENT DATA info
-- action: run_training
-- evidence: reporting_processes 0
UPDATE processes SET recorded = 0, torch = NULL;
