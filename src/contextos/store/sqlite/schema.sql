-- The whole schema, version 3. Every statement is repeatable, so an older file is upgraded by running this script again
-- (after `upgrade_runs.sql`, if its table `runs` has no column `waiting`).
-- Every primary key begins with the tenant, so keys of two tenants never collide.
-- Tables are WITHOUT ROWID, so that INSERT OR REPLACE cannot replace a row by its hidden row number. `journal` is the
-- exception: run ids are random and rows large, so in key order more than half of each page would be empty. There the
-- trigger `journal_rows_stand` protects the row numbers.
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

-- This also refuses INSERT OR REPLACE, whose implicit delete fires no delete trigger.
CREATE TRIGGER IF NOT EXISTS journal_continues BEFORE INSERT ON journal
WHEN NEW.seq IS NOT 1 + coalesce((SELECT max(seq) FROM journal WHERE tenant = NEW.tenant AND run = NEW.run), 0)
BEGIN SELECT RAISE(ABORT, 'a journal entry continues its stream'); END;

CREATE TRIGGER IF NOT EXISTS journal_keeps BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- The only allowed update erases body and salt together.
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
  number INTEGER NOT NULL DEFAULT 0,
  waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting IN (0, 1)),
  PRIMARY KEY (tenant, run)
) STRICT, WITHOUT ROWID;

-- `due` is the only read across tenants, so only this index begins with the time. It is not unique, so no insert can fail
-- on another tenant's row and reveal that it exists.
CREATE INDEX IF NOT EXISTS runs_due ON runs (wake_at_us, tenant, run) WHERE wake_at_us <> 0;

-- `number` is the sequence of a run's first line in the stream `index`, or 0. The index holds only runs that wait for a
-- person.
CREATE INDEX IF NOT EXISTS runs_waiting ON runs (tenant, number) WHERE waiting = 1;

-- The graph. Each `put` is one commit, numbered per tenant. An edge is valid from commit `valid_from` until before `valid_to`.
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

-- In order of edge id, so that a query can read the first edges of a hub and skip the rest.
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

-- The only allowed update withdraws a valid edge once, at a later commit, with evidence.
CREATE TRIGGER IF NOT EXISTS edges_end_only BEFORE UPDATE ON edges
WHEN OLD.valid_to IS NOT NULL OR NEW.valid_to IS NULL
  OR NEW.tenant IS NOT OLD.tenant OR NEW.edge_id IS NOT OLD.edge_id OR NEW.src IS NOT OLD.src
  OR NEW.predicate IS NOT OLD.predicate OR NEW.dst IS NOT OLD.dst OR NEW.evidence_ref IS NOT OLD.evidence_ref
  OR NEW.body IS NOT OLD.body OR NEW.valid_from IS NOT OLD.valid_from
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

-- Artifacts for context slots. An artifact id is unique within its organisation. Its assertions state what it is.
CREATE TABLE IF NOT EXISTS extensions (
  tenant TEXT NOT NULL,
  extension TEXT NOT NULL,
  satisfies TEXT NOT NULL,
  PRIMARY KEY (tenant, extension)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS artifacts (
  tenant TEXT NOT NULL,
  org_id TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  type TEXT NOT NULL,
  title TEXT NOT NULL,
  owner_level TEXT NOT NULL CHECK (owner_level IN ('user', 'team', 'organization', 'workspace')),
  owner_id TEXT NOT NULL,
  visibility TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at_us INTEGER NOT NULL,
  deleted_at_us INTEGER,
  PRIMARY KEY (tenant, org_id, artifact_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS representations (
  tenant TEXT NOT NULL,
  org_id TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  revision INTEGER NOT NULL CHECK (revision > 0),
  revision_id TEXT NOT NULL,
  mime TEXT NOT NULL,
  content TEXT NOT NULL,
  digest TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, org_id, artifact_id, revision),
  UNIQUE (tenant, org_id, artifact_id, revision_id),
  FOREIGN KEY (tenant, org_id, artifact_id) REFERENCES artifacts,
  -- A BEFORE INSERT trigger sees rowid -1 for a row that has none yet, so every stored rowid must be positive.
  CHECK (rowid > 0)
) STRICT;

CREATE TABLE IF NOT EXISTS semantic_assertions (
  tenant TEXT NOT NULL,
  org_id TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  extension TEXT NOT NULL,
  assertion_id TEXT NOT NULL,
  asserted_by TEXT NOT NULL CHECK (asserted_by IN ('user', 'authoring_skill', 'agent', 'matcher')),
  principal_id TEXT NOT NULL,
  confidence REAL NOT NULL,
  visibility TEXT NOT NULL,
  source_scope TEXT NOT NULL,
  own_user TEXT NOT NULL,
  eligibility TEXT NOT NULL CHECK (eligibility IN ('eligible', 'draft', 'archived')),
  asserted_at_us INTEGER NOT NULL,
  archived_at_us INTEGER,
  PRIMARY KEY (tenant, org_id, artifact_id, extension, assertion_id),
  FOREIGN KEY (tenant, org_id, artifact_id) REFERENCES artifacts,
  FOREIGN KEY (tenant, extension) REFERENCES extensions,
  CHECK ((eligibility = 'archived') = (archived_at_us IS NOT NULL)),
  CHECK (eligibility = 'archived' OR (asserted_by = 'matcher') = (eligibility = 'draft'))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS assertions_active ON semantic_assertions (tenant, org_id, artifact_id, extension)
WHERE eligibility <> 'archived';
-- Visibility, scope and owner are copied from the artifact, so that one index serves a slot's query in order.
CREATE INDEX IF NOT EXISTS assertions_seen ON semantic_assertions
  (tenant, org_id, extension, visibility, source_scope, artifact_id) WHERE eligibility = 'eligible';
CREATE INDEX IF NOT EXISTS assertions_owned ON semantic_assertions
  (tenant, org_id, extension, own_user, source_scope, artifact_id) WHERE eligibility = 'eligible';

-- Selections: one header row each, even if nothing was picked, and one row for each ref.
CREATE TABLE IF NOT EXISTS context_selection_acts (
  ordinal INTEGER PRIMARY KEY CHECK (ordinal > 0),
  tenant TEXT NOT NULL,
  org_id TEXT NOT NULL,
  selection_id TEXT NOT NULL,
  parent_run_id TEXT NOT NULL,
  parent_package_name TEXT NOT NULL,
  act_key TEXT NOT NULL,
  slot_id TEXT NOT NULL,
  resolution_mode TEXT NOT NULL CHECK (resolution_mode IN ('override', 'accumulate')),
  selection_mode TEXT NOT NULL CHECK (selection_mode IN ('interactive', 'autonomous')),
  selected_by TEXT NOT NULL CHECK (selected_by IN ('user', 'agent', 'autonomous')),
  principal_id TEXT NOT NULL,
  picked INTEGER NOT NULL CHECK (picked >= 0),
  fingerprint TEXT NOT NULL,
  selected_at_us INTEGER NOT NULL,
  UNIQUE (tenant, org_id, selection_id)
) STRICT;

CREATE INDEX IF NOT EXISTS acts_of_run ON context_selection_acts (tenant, org_id, parent_run_id, ordinal);

CREATE TABLE IF NOT EXISTS run_context_selections (
  tenant TEXT NOT NULL,
  org_id TEXT NOT NULL,
  selection_id TEXT NOT NULL,
  position INTEGER NOT NULL CHECK (position >= 0),
  parent_run_id TEXT NOT NULL,
  parent_package_name TEXT NOT NULL,
  slot_id TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  representation_revision_id TEXT NOT NULL,
  semantic_assertion_id TEXT NOT NULL,
  extension TEXT NOT NULL,
  source_scope TEXT NOT NULL CHECK (source_scope IN ('project', 'user', 'team', 'organization', 'workspace')),
  owner_id TEXT NOT NULL,
  selected_by TEXT NOT NULL CHECK (selected_by IN ('user', 'agent', 'autonomous')),
  selection_mode TEXT NOT NULL CHECK (selection_mode IN ('interactive', 'autonomous')),
  selected_at_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, org_id, selection_id, position),
  FOREIGN KEY (tenant, org_id, selection_id) REFERENCES context_selection_acts (tenant, org_id, selection_id),
  FOREIGN KEY (tenant, org_id, artifact_id, representation_revision_id)
    REFERENCES representations (tenant, org_id, artifact_id, revision_id),
  FOREIGN KEY (tenant, org_id, artifact_id, extension, semantic_assertion_id) REFERENCES semantic_assertions
) STRICT, WITHOUT ROWID;

-- The only allowed update of an artifact marks it as deleted, once.
CREATE TRIGGER IF NOT EXISTS artifacts_end_only BEFORE UPDATE ON artifacts
WHEN OLD.deleted_at_us IS NOT NULL OR NEW.deleted_at_us IS NULL
  OR NEW.tenant IS NOT OLD.tenant OR NEW.org_id IS NOT OLD.org_id OR NEW.artifact_id IS NOT OLD.artifact_id
  OR NEW.type IS NOT OLD.type OR NEW.title IS NOT OLD.title OR NEW.owner_level IS NOT OLD.owner_level
  OR NEW.owner_id IS NOT OLD.owner_id OR NEW.visibility IS NOT OLD.visibility
  OR NEW.created_by IS NOT OLD.created_by OR NEW.created_at_us IS NOT OLD.created_at_us
BEGIN SELECT RAISE(ABORT, 'an artifact stands as it was added'); END;

CREATE TRIGGER IF NOT EXISTS artifacts_keep BEFORE DELETE ON artifacts
BEGIN SELECT RAISE(ABORT, 'artifacts are kept; a tombstone hides one'); END;

CREATE TRIGGER IF NOT EXISTS artifacts_once BEFORE INSERT ON artifacts
WHEN EXISTS (SELECT 1 FROM artifacts
             WHERE tenant = NEW.tenant AND org_id = NEW.org_id AND artifact_id = NEW.artifact_id)
BEGIN SELECT RAISE(ABORT, 'an artifact is added once'); END;

CREATE TRIGGER IF NOT EXISTS representations_stand BEFORE UPDATE ON representations
BEGIN SELECT RAISE(ABORT, 'representations are append-only'); END;

CREATE TRIGGER IF NOT EXISTS representations_keep BEFORE DELETE ON representations
BEGIN SELECT RAISE(ABORT, 'representations are append-only'); END;

-- This also refuses INSERT OR REPLACE, whose implicit delete fires no delete trigger.
CREATE TRIGGER IF NOT EXISTS representations_continue BEFORE INSERT ON representations
WHEN NEW.revision IS NOT 1 + coalesce((SELECT max(revision) FROM representations WHERE tenant = NEW.tenant
       AND org_id = NEW.org_id AND artifact_id = NEW.artifact_id), 0)
  OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM representations WHERE rowid = NEW.rowid))
  OR EXISTS (SELECT 1 FROM representations WHERE tenant = NEW.tenant AND org_id = NEW.org_id
             AND artifact_id = NEW.artifact_id AND revision_id = NEW.revision_id)
BEGIN SELECT RAISE(ABORT, 'a revision continues its artifact'); END;

-- The only allowed update of an assertion archives it, once. A draft never becomes eligible.
CREATE TRIGGER IF NOT EXISTS assertions_end_only BEFORE UPDATE ON semantic_assertions
WHEN OLD.eligibility = 'archived' OR NEW.eligibility <> 'archived'
  OR NEW.tenant IS NOT OLD.tenant OR NEW.org_id IS NOT OLD.org_id OR NEW.artifact_id IS NOT OLD.artifact_id
  OR NEW.extension IS NOT OLD.extension OR NEW.assertion_id IS NOT OLD.assertion_id
  OR NEW.asserted_by IS NOT OLD.asserted_by OR NEW.principal_id IS NOT OLD.principal_id
  OR NEW.confidence IS NOT OLD.confidence OR NEW.asserted_at_us IS NOT OLD.asserted_at_us
  OR NEW.visibility IS NOT OLD.visibility OR NEW.source_scope IS NOT OLD.source_scope OR NEW.own_user IS NOT OLD.own_user
BEGIN SELECT RAISE(ABORT, 'an assertion is never rewritten; assert anew'); END;

CREATE TRIGGER IF NOT EXISTS assertions_keep BEFORE DELETE ON semantic_assertions
BEGIN SELECT RAISE(ABORT, 'assertions are kept; archive one'); END;

CREATE TRIGGER IF NOT EXISTS assertions_once BEFORE INSERT ON semantic_assertions
WHEN EXISTS (SELECT 1 FROM semantic_assertions WHERE tenant = NEW.tenant AND org_id = NEW.org_id
             AND artifact_id = NEW.artifact_id AND extension = NEW.extension
             AND (assertion_id = NEW.assertion_id OR eligibility <> 'archived' AND NEW.eligibility <> 'archived'))
BEGIN SELECT RAISE(ABORT, 'one assertion of an extension is active'); END;

CREATE TRIGGER IF NOT EXISTS acts_stand BEFORE UPDATE ON context_selection_acts
BEGIN SELECT RAISE(ABORT, 'selections are append-only; write a new one'); END;

CREATE TRIGGER IF NOT EXISTS acts_keep BEFORE DELETE ON context_selection_acts
BEGIN SELECT RAISE(ABORT, 'selections are append-only; write a new one'); END;

CREATE TRIGGER IF NOT EXISTS selections_stand BEFORE UPDATE ON run_context_selections
BEGIN SELECT RAISE(ABORT, 'selections are append-only; write a new one'); END;

CREATE TRIGGER IF NOT EXISTS selections_keep BEFORE DELETE ON run_context_selections
BEGIN SELECT RAISE(ABORT, 'selections are append-only; write a new one'); END;

CREATE TRIGGER IF NOT EXISTS acts_once BEFORE INSERT ON context_selection_acts
WHEN (NEW.ordinal > 0 AND EXISTS (SELECT 1 FROM context_selection_acts WHERE ordinal = NEW.ordinal))
  OR EXISTS (SELECT 1 FROM context_selection_acts
             WHERE tenant = NEW.tenant AND org_id = NEW.org_id AND selection_id = NEW.selection_id)
BEGIN SELECT RAISE(ABORT, 'an act of selection is recorded once'); END;

CREATE TRIGGER IF NOT EXISTS selections_once BEFORE INSERT ON run_context_selections
WHEN EXISTS (SELECT 1 FROM run_context_selections WHERE tenant = NEW.tenant AND org_id = NEW.org_id
             AND selection_id = NEW.selection_id AND position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'a ref is recorded once in an act'); END;

-- Refuses a ref that is not coherent at this moment, for every writer and even with foreign keys off.
CREATE TRIGGER IF NOT EXISTS selections_coherent BEFORE INSERT ON run_context_selections
WHEN NOT EXISTS (SELECT 1 FROM context_selection_acts
                 WHERE tenant = NEW.tenant AND org_id = NEW.org_id AND selection_id = NEW.selection_id)
  OR NOT EXISTS (SELECT 1 FROM artifacts
                 WHERE tenant = NEW.tenant AND org_id = NEW.org_id AND artifact_id = NEW.artifact_id
                   AND type = 'artifact' AND deleted_at_us IS NULL AND owner_id = NEW.owner_id
                   AND NEW.source_scope = CASE WHEN visibility LIKE 'project:%' THEN 'project'
                     WHEN visibility LIKE 'team:%' THEN 'team' WHEN visibility = 'org' THEN 'organization'
                     WHEN visibility = 'workspace' THEN 'workspace' ELSE owner_level END)
  OR NOT EXISTS (SELECT 1 FROM representations
                 WHERE tenant = NEW.tenant AND org_id = NEW.org_id AND artifact_id = NEW.artifact_id
                   AND revision_id = NEW.representation_revision_id)
  OR NOT EXISTS (SELECT 1 FROM semantic_assertions
                 WHERE tenant = NEW.tenant AND org_id = NEW.org_id AND artifact_id = NEW.artifact_id
                   AND extension = NEW.extension AND assertion_id = NEW.semantic_assertion_id
                   AND eligibility = 'eligible')
BEGIN SELECT RAISE(ABORT, 'a ref that is not coherent is not recorded'); END;

PRAGMA application_id = 1668577336;
PRAGMA user_version = 3;
COMMIT;
