-- Adds the columns `number` and `waiting` to a file of schema 1 or 2. Every run that has not ended is marked as waiting. That
-- is safe: the mark is only an index, its readers fold each run, and the next commit of a run sets it correctly.
BEGIN IMMEDIATE;

ALTER TABLE runs ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting IN (0, 1));

UPDATE runs SET number = line.seq, waiting = line.ended = 0
FROM (
  SELECT tenant, key AS run, min(seq) AS seq, max(kind = 'run.closed') AS ended
  FROM journal WHERE run = 'index' GROUP BY tenant, key
) AS line
WHERE line.tenant = runs.tenant AND line.run = runs.run;

COMMIT;
