-- The whole schema, version 1. The tenant leads every primary key, so no key of one tenant can collide with another's.
-- WITHOUT ROWID, so that no hidden row number leads INSERT OR REPLACE to another row; but for `journal`, whose rows are
-- large: in key order, at random run ids, more than half of its pages would be empty. There a trigger stands instead.
BEGIN IMMEDIATE;

CREATE TABLE IF NOT EXISTS journal (
  tenant TEXT NOT NULL,
  run TEXT NOT NULL,
  seq INTEGER NOT NULL,
  v INTEGER NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  "by" TEXT NOT NULL,
  body_digest TEXT NOT NULL,
  prev_hash TEXT NOT NULL,
  hash TEXT NOT NULL,
  salt BLOB,
  body BLOB,
  PRIMARY KEY (tenant, run, seq),
  CHECK ((salt IS NULL) = (body IS NULL))
) STRICT;

CREATE TRIGGER IF NOT EXISTS journal_rows_stand BEFORE INSERT ON journal
WHEN NEW.rowid > 0 AND EXISTS (SELECT 1 FROM journal WHERE rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- Also what refuses INSERT OR REPLACE, whose hidden delete fires no delete trigger.
CREATE TRIGGER IF NOT EXISTS journal_continues BEFORE INSERT ON journal
WHEN NEW.seq IS NOT 1 + coalesce((SELECT max(seq) FROM journal WHERE tenant = NEW.tenant AND run = NEW.run), 0)
BEGIN SELECT RAISE(ABORT, 'a journal entry continues its stream'); END;

CREATE TRIGGER IF NOT EXISTS journal_keeps BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- The one change: body and salt are forgotten together, and nothing else moves.
CREATE TRIGGER IF NOT EXISTS journal_erases_only BEFORE UPDATE ON journal
WHEN NEW.body IS NOT NULL OR NEW.salt IS NOT NULL OR NEW.rowid IS NOT OLD.rowid
  OR NEW.tenant IS NOT OLD.tenant OR NEW.run IS NOT OLD.run OR NEW.seq IS NOT OLD.seq OR NEW.v IS NOT OLD.v
  OR NEW.kind IS NOT OLD.kind OR NEW.key IS NOT OLD.key OR NEW.at_us IS NOT OLD.at_us OR NEW."by" IS NOT OLD."by"
  OR NEW.body_digest IS NOT OLD.body_digest OR NEW.prev_hash IS NOT OLD.prev_hash OR NEW.hash IS NOT OLD.hash
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

CREATE TABLE IF NOT EXISTS heads (
  tenant TEXT NOT NULL,
  stream TEXT NOT NULL,
  seq INTEGER NOT NULL,
  kid TEXT NOT NULL,
  hash TEXT NOT NULL,
  sig TEXT NOT NULL,
  PRIMARY KEY (tenant, stream, seq, kid)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS heads_once BEFORE INSERT ON heads
WHEN EXISTS (SELECT 1 FROM heads
             WHERE tenant = NEW.tenant AND stream = NEW.stream AND seq = NEW.seq AND kid = NEW.kid)
BEGIN SELECT RAISE(ABORT, 'a head is signed once by a key'); END;

CREATE TRIGGER IF NOT EXISTS heads_keep BEFORE DELETE ON heads
BEGIN SELECT RAISE(ABORT, 'signed heads are append-only'); END;

CREATE TRIGGER IF NOT EXISTS heads_stand BEFORE UPDATE ON heads
BEGIN SELECT RAISE(ABORT, 'signed heads are append-only'); END;

CREATE TABLE IF NOT EXISTS documents (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (tenant, collection, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS runs (
  tenant TEXT NOT NULL,
  run TEXT NOT NULL,
  wake_at_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, run)
) STRICT, WITHOUT ROWID;

-- `due` is the only read across tenants, so this one index is led by time; it is not unique and tells nobody anything.
CREATE INDEX IF NOT EXISTS runs_due ON runs (wake_at_us, tenant, run) WHERE wake_at_us <> 0;

-- The graph. One commit number per `put`, counted per tenant; a row is valid from its commit until `valid_to`.
CREATE TABLE IF NOT EXISTS graph_commits (
  tenant TEXT NOT NULL,
  head INTEGER NOT NULL,
  PRIMARY KEY (tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS nodes (
  tenant TEXT NOT NULL,
  ceid TEXT NOT NULL,
  commit_no INTEGER NOT NULL,
  type TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (tenant, ceid, commit_no)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS edges (
  tenant TEXT NOT NULL,
  edge_id TEXT NOT NULL,
  src TEXT NOT NULL,
  predicate TEXT NOT NULL,
  dst TEXT NOT NULL,
  evidence_ref TEXT NOT NULL CHECK (evidence_ref <> ''),
  body BLOB NOT NULL,
  valid_from INTEGER NOT NULL,
  valid_to INTEGER,
  withdrawn_ref TEXT CHECK (withdrawn_ref <> ''),
  PRIMARY KEY (tenant, edge_id),
  CHECK (valid_to IS NULL OR valid_to > valid_from),
  CHECK ((valid_to IS NULL) = (withdrawn_ref IS NULL))
) STRICT, WITHOUT ROWID;

-- In order of edge id, so that the first edges of a hub are read and the rest of it is not.
CREATE INDEX IF NOT EXISTS edges_out ON edges (tenant, src, edge_id, valid_from, valid_to);
CREATE INDEX IF NOT EXISTS edges_in ON edges (tenant, dst, edge_id, valid_from, valid_to);

CREATE TRIGGER IF NOT EXISTS nodes_stand BEFORE UPDATE ON nodes
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

CREATE TRIGGER IF NOT EXISTS nodes_keep BEFORE DELETE ON nodes
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

CREATE TRIGGER IF NOT EXISTS nodes_once BEFORE INSERT ON nodes
WHEN EXISTS (SELECT 1 FROM nodes WHERE tenant = NEW.tenant AND ceid = NEW.ceid AND commit_no = NEW.commit_no)
BEGIN SELECT RAISE(ABORT, 'a node is appended once per commit'); END;

CREATE TRIGGER IF NOT EXISTS edges_keep BEFORE DELETE ON edges
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

CREATE TRIGGER IF NOT EXISTS edges_once BEFORE INSERT ON edges
WHEN EXISTS (SELECT 1 FROM edges WHERE tenant = NEW.tenant AND edge_id = NEW.edge_id)
BEGIN SELECT RAISE(ABORT, 'an edge is appended once'); END;

-- The one change: an edge that is valid is withdrawn at a later commit, once, and by what evidence.
CREATE TRIGGER IF NOT EXISTS edges_end_only BEFORE UPDATE ON edges
WHEN OLD.valid_to IS NOT NULL OR NEW.valid_to IS NULL
  OR NEW.tenant IS NOT OLD.tenant OR NEW.edge_id IS NOT OLD.edge_id OR NEW.src IS NOT OLD.src
  OR NEW.predicate IS NOT OLD.predicate OR NEW.dst IS NOT OLD.dst OR NEW.evidence_ref IS NOT OLD.evidence_ref
  OR NEW.body IS NOT OLD.body OR NEW.valid_from IS NOT OLD.valid_from
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

PRAGMA application_id = 1668577336;
PRAGMA user_version = 1;
COMMIT;
