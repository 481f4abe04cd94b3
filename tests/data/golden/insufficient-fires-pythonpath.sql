-- PYTHONPATH was replaced: no process sent records.
-- expect: INSUFFICIENT DATA info
-- action: keep_pythonpath
-- evidence: silent_processes 1
-- text: PYTHONPATH
UPDATE processes SET recorded = 0, torch = NULL, python = NULL;
INSERT INTO lost VALUES ('ranks', 1, 'PYTHONPATH was replaced in process 100 (python3 train.py).');
