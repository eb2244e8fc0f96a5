-- The whole schema, version 7. Every statement is repeatable, because two processes can make one new file.
-- Every primary key begins with the tenant, so keys of two tenants never collide.
-- Small tables are WITHOUT ROWID, so that INSERT OR REPLACE cannot replace a row by its hidden row number. Tables of large
-- rows are not, because in the order of their keys more than half of each page would be empty. There a trigger refuses a
-- row number that is taken.
BEGIN IMMEDIATE;

-- The entries of runs: one row for each commit (docs/adr/0032-a-commit-is-one-row.md). `seq` is that of the last of
-- `entries` entries, `head` its hash. `marks` has 2 bytes an entry and `salts` 16. `erased` names the erased entries with their
-- digests. An empty `dictionary` means that `body` is not compressed.
CREATE TABLE IF NOT EXISTS segments (
  tenant TEXT NOT NULL,
  run TEXT NOT NULL CHECK (run NOT IN ('index', 'control')),
  seq INTEGER NOT NULL,
  entries INTEGER NOT NULL CHECK (entries > 0),
  v INTEGER NOT NULL,
  format INTEGER NOT NULL,
  dictionary BLOB NOT NULL,
  head BLOB NOT NULL CHECK (length(head) = 32),
  marks BLOB NOT NULL CHECK (length(marks) = 2 * entries),
  salts BLOB NOT NULL CHECK (length(salts) = 16 * entries),
  body BLOB NOT NULL,
  erased TEXT NOT NULL,
  PRIMARY KEY (tenant, run, seq)
) STRICT;

CREATE TRIGGER IF NOT EXISTS segments_row_numbers BEFORE INSERT ON segments
WHEN NEW.rowid > 0 AND EXISTS (SELECT 1 FROM segments WHERE rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- This also refuses INSERT OR REPLACE, whose implicit delete fires no delete trigger.
CREATE TRIGGER IF NOT EXISTS segments_continue BEFORE INSERT ON segments
WHEN NEW.erased <> '' OR NEW.seq - NEW.entries IS NOT
  coalesce((SELECT max(seq) FROM segments WHERE tenant = NEW.tenant AND run = NEW.run), 0)
BEGIN SELECT RAISE(ABORT, 'a journal entry must continue its stream'); END;

CREATE TRIGGER IF NOT EXISTS segments_keep BEFORE DELETE ON segments
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- The only allowed update erases one entry, once `control` says so: it empties the salt of this entry and no other, and
-- adds the entry with its digest to `erased`. SQL cannot look into `body`; each read compares it with the salts and the
-- head, which stand.
CREATE TRIGGER IF NOT EXISTS segments_erase_only BEFORE UPDATE ON segments
WHEN NEW.rowid IS NOT OLD.rowid OR NEW.tenant IS NOT OLD.tenant OR NEW.run IS NOT OLD.run OR NEW.seq IS NOT OLD.seq
  OR NEW.entries IS NOT OLD.entries OR NEW.v IS NOT OLD.v OR NEW.format IS NOT OLD.format
  OR NEW.dictionary IS NOT OLD.dictionary OR NEW.head IS NOT OLD.head OR NEW.marks IS NOT OLD.marks OR NOT EXISTS (
    SELECT 1 FROM (SELECT CAST(added AS INTEGER) AS erased_seq, added FROM (
      SELECT substr(NEW.erased, length(OLD.erased) + 1) AS added))
    WHERE substr(NEW.erased, 1, length(OLD.erased)) IS OLD.erased
      AND added GLOB erased_seq || ':*' AND length(added) = length(erased_seq) + 66 AND substr(added, -1) = ' '
      AND instr(' ' || OLD.erased, ' ' || erased_seq || ':') = 0
      AND erased_seq BETWEEN OLD.seq - OLD.entries + 1 AND OLD.seq
      AND length(NEW.salts) = length(OLD.salts)
      AND substr(NEW.salts, 1, 16 * (erased_seq - OLD.seq + OLD.entries - 1))
        IS substr(OLD.salts, 1, 16 * (erased_seq - OLD.seq + OLD.entries - 1))
      AND substr(NEW.salts, 16 * (erased_seq - OLD.seq + OLD.entries - 1) + 1, 16) IS zeroblob(16)
      AND substr(NEW.salts, 16 * (erased_seq - OLD.seq + OLD.entries) + 1)
        IS substr(OLD.salts, 16 * (erased_seq - OLD.seq + OLD.entries) + 1)
      AND EXISTS (SELECT 1 FROM journal WHERE tenant = OLD.tenant AND run = 'control'
                  AND kind = 'entry.erased' AND key = OLD.run || '/' || erased_seq))
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- The lines of a tenant's two own streams, one row each, because they are found by key and by time. Never erased.
CREATE TABLE IF NOT EXISTS journal (
  tenant TEXT NOT NULL,
  run TEXT NOT NULL CHECK (run IN ('index', 'control')),
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
  PRIMARY KEY (tenant, run, seq)
) STRICT;

CREATE TRIGGER IF NOT EXISTS journal_row_numbers BEFORE INSERT ON journal
WHEN NEW.rowid > 0 AND EXISTS (SELECT 1 FROM journal WHERE rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- This also refuses INSERT OR REPLACE, whose implicit delete fires no delete trigger.
CREATE TRIGGER IF NOT EXISTS journal_continues BEFORE INSERT ON journal
WHEN NEW.seq IS NOT 1 + coalesce((SELECT max(seq) FROM journal WHERE tenant = NEW.tenant AND run = NEW.run), 0)
BEGIN SELECT RAISE(ABORT, 'a journal entry must continue its stream'); END;

CREATE TRIGGER IF NOT EXISTS journal_keeps BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

CREATE TRIGGER IF NOT EXISTS journal_append_only BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- The lines about one run, and the control entry of one erasure.
CREATE INDEX IF NOT EXISTS journal_lines ON journal (tenant, run, key, seq);
-- The latest recorded time.
CREATE INDEX IF NOT EXISTS journal_times ON journal (tenant, at_us);

-- The signed heads, in a table of their own: who cuts the end of a run has to cut here, too.
CREATE TABLE IF NOT EXISTS heads (
  tenant TEXT NOT NULL,
  stream TEXT NOT NULL,
  seq INTEGER NOT NULL,
  kid TEXT NOT NULL,
  hash BLOB NOT NULL,
  sig BLOB NOT NULL,
  PRIMARY KEY (tenant, stream, seq, kid)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS heads_once BEFORE INSERT ON heads
WHEN EXISTS (SELECT 1 FROM heads
             WHERE tenant = NEW.tenant AND stream = NEW.stream AND seq = NEW.seq AND kid = NEW.kid)
BEGIN SELECT RAISE(ABORT, 'a key signs each head once'); END;

CREATE TRIGGER IF NOT EXISTS heads_keep BEFORE DELETE ON heads
BEGIN SELECT RAISE(ABORT, 'signed heads are append-only'); END;

CREATE TRIGGER IF NOT EXISTS heads_append_only BEFORE UPDATE ON heads
BEGIN SELECT RAISE(ABORT, 'signed heads are append-only'); END;

CREATE TABLE IF NOT EXISTS documents (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (tenant, collection, key)
) STRICT;

CREATE TRIGGER IF NOT EXISTS documents_row_numbers BEFORE INSERT ON documents
WHEN NEW.rowid > 0 AND EXISTS (SELECT 1 FROM documents WHERE rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'documents are kept'); END;

CREATE TRIGGER IF NOT EXISTS documents_keep BEFORE DELETE ON documents
BEGIN SELECT RAISE(ABORT, 'documents are kept'); END;

-- This also refuses INSERT OR REPLACE, whose implicit delete fires no delete trigger.
CREATE TRIGGER IF NOT EXISTS documents_once BEFORE INSERT ON documents
WHEN EXISTS (SELECT 1 FROM documents
             WHERE tenant = NEW.tenant AND collection = NEW.collection AND key = NEW.key)
BEGIN SELECT RAISE(IGNORE); END;

-- A document is only replaced by its next version, and these collections are written once.
CREATE TRIGGER IF NOT EXISTS documents_step BEFORE UPDATE ON documents
WHEN NEW.rowid IS NOT OLD.rowid OR NEW.version IS NOT OLD.version + 1 OR NEW.tenant IS NOT OLD.tenant
  OR NEW.collection IS NOT OLD.collection
  OR NEW.key IS NOT OLD.key OR OLD.collection IN ('artifacts', 'cancels', 'counted_effects', 'denials', 'pins', 'requests')
BEGIN SELECT RAISE(ABORT, 'a document is replaced by its next version'); END;

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

CREATE TRIGGER IF NOT EXISTS runs_keep BEFORE DELETE ON runs
BEGIN SELECT RAISE(ABORT, 'runs are kept'); END;

CREATE TRIGGER IF NOT EXISTS runs_stand BEFORE UPDATE ON runs
WHEN NEW.tenant IS NOT OLD.tenant OR NEW.run IS NOT OLD.run OR (OLD.number <> 0 AND NEW.number IS NOT OLD.number)
BEGIN SELECT RAISE(ABORT, 'a run keeps its number'); END;

-- The terms by which a search finds a run (docs/adr/0078-runs-are-found-by-terms.md). `number` is that of the run. They
-- prove nothing, and `verify` compares them with the entries of the run.
CREATE TABLE IF NOT EXISTS run_terms (
  tenant TEXT NOT NULL,
  term INTEGER NOT NULL,
  number INTEGER NOT NULL CHECK (number > 0),
  began_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, term, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS run_terms_of ON run_terms (tenant, number);

-- The graph. Each `put` is one commit, numbered per tenant. An edge is valid from commit `valid_from` until before `valid_to`.
CREATE TABLE IF NOT EXISTS graph_commits (
  tenant TEXT NOT NULL,
  head INTEGER NOT NULL,
  PRIMARY KEY (tenant)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS commits_keep BEFORE DELETE ON graph_commits
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

CREATE TRIGGER IF NOT EXISTS commits_step BEFORE UPDATE ON graph_commits
WHEN NEW.tenant IS NOT OLD.tenant OR NEW.head IS NOT OLD.head + 1
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

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
CREATE INDEX IF NOT EXISTS edges_step ON edges (tenant, src, predicate, edge_id, valid_from, valid_to);
-- Few edges have ended, and a read asks for those around each subject.
CREATE INDEX IF NOT EXISTS edges_ended ON edges (tenant, src, edge_id, predicate, valid_to) WHERE valid_to IS NOT NULL;

CREATE TRIGGER IF NOT EXISTS nodes_append_only BEFORE UPDATE ON nodes
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

CREATE TRIGGER IF NOT EXISTS nodes_keep BEFORE DELETE ON nodes
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

CREATE TRIGGER IF NOT EXISTS nodes_once BEFORE INSERT ON nodes
WHEN EXISTS (SELECT 1 FROM nodes WHERE tenant = NEW.tenant AND ceid = NEW.ceid AND commit_no = NEW.commit_no)
BEGIN SELECT RAISE(ABORT, 'a commit can append a node once'); END;

CREATE TRIGGER IF NOT EXISTS edges_keep BEFORE DELETE ON edges
BEGIN SELECT RAISE(ABORT, 'the graph is append-only'); END;

CREATE TRIGGER IF NOT EXISTS edges_once BEFORE INSERT ON edges
WHEN EXISTS (SELECT 1 FROM edges WHERE tenant = NEW.tenant AND edge_id = NEW.edge_id)
BEGIN SELECT RAISE(ABORT, 'an edge can be appended once'); END;

-- A snapshot of the past takes no new edge.
CREATE TRIGGER IF NOT EXISTS edges_begin_now BEFORE INSERT ON edges
WHEN NEW.valid_to IS NOT NULL OR NEW.valid_from IS NOT (SELECT head FROM graph_commits WHERE tenant = NEW.tenant)
BEGIN SELECT RAISE(ABORT, 'an edge begins with the newest commit'); END;

-- The only allowed update withdraws a valid edge once, at the newest commit, with evidence.
CREATE TRIGGER IF NOT EXISTS edges_end_only BEFORE UPDATE ON edges
WHEN OLD.valid_to IS NOT NULL OR NEW.valid_to IS NULL
  OR NEW.valid_to IS NOT (SELECT head FROM graph_commits WHERE tenant = NEW.tenant)
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

CREATE INDEX IF NOT EXISTS acts_of_run ON context_selection_acts (tenant, parent_run_id, ordinal);

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
BEGIN SELECT RAISE(ABORT, 'an artifact cannot change'); END;

CREATE TRIGGER IF NOT EXISTS artifacts_keep BEFORE DELETE ON artifacts
BEGIN SELECT RAISE(ABORT, 'artifacts cannot be deleted; add a tombstone'); END;

CREATE TRIGGER IF NOT EXISTS artifacts_once BEFORE INSERT ON artifacts
WHEN EXISTS (SELECT 1 FROM artifacts
             WHERE tenant = NEW.tenant AND org_id = NEW.org_id AND artifact_id = NEW.artifact_id)
BEGIN SELECT RAISE(ABORT, 'an artifact is added once'); END;

CREATE TRIGGER IF NOT EXISTS representations_append_only BEFORE UPDATE ON representations
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
BEGIN SELECT RAISE(ABORT, 'a revision must continue its artifact'); END;

-- The only allowed update of an assertion archives it, once. A draft never becomes eligible.
CREATE TRIGGER IF NOT EXISTS assertions_end_only BEFORE UPDATE ON semantic_assertions
WHEN OLD.eligibility = 'archived' OR NEW.eligibility <> 'archived'
  OR NEW.tenant IS NOT OLD.tenant OR NEW.org_id IS NOT OLD.org_id OR NEW.artifact_id IS NOT OLD.artifact_id
  OR NEW.extension IS NOT OLD.extension OR NEW.assertion_id IS NOT OLD.assertion_id
  OR NEW.asserted_by IS NOT OLD.asserted_by OR NEW.principal_id IS NOT OLD.principal_id
  OR NEW.confidence IS NOT OLD.confidence OR NEW.asserted_at_us IS NOT OLD.asserted_at_us
  OR NEW.visibility IS NOT OLD.visibility OR NEW.source_scope IS NOT OLD.source_scope OR NEW.own_user IS NOT OLD.own_user
BEGIN SELECT RAISE(ABORT, 'an assertion cannot change; add a new one'); END;

CREATE TRIGGER IF NOT EXISTS assertions_keep BEFORE DELETE ON semantic_assertions
BEGIN SELECT RAISE(ABORT, 'assertions cannot be deleted; archive one'); END;

CREATE TRIGGER IF NOT EXISTS assertions_once BEFORE INSERT ON semantic_assertions
WHEN EXISTS (SELECT 1 FROM semantic_assertions WHERE tenant = NEW.tenant AND org_id = NEW.org_id
             AND artifact_id = NEW.artifact_id AND extension = NEW.extension
             AND (assertion_id = NEW.assertion_id OR eligibility <> 'archived' AND NEW.eligibility <> 'archived'))
BEGIN SELECT RAISE(ABORT, 'only one assertion of an extension can be active'); END;

CREATE TRIGGER IF NOT EXISTS acts_append_only BEFORE UPDATE ON context_selection_acts
BEGIN SELECT RAISE(ABORT, 'selections are append-only; write a new one'); END;

CREATE TRIGGER IF NOT EXISTS acts_keep BEFORE DELETE ON context_selection_acts
BEGIN SELECT RAISE(ABORT, 'selections are append-only; write a new one'); END;

CREATE TRIGGER IF NOT EXISTS selections_append_only BEFORE UPDATE ON run_context_selections
BEGIN SELECT RAISE(ABORT, 'selections are append-only; write a new one'); END;

CREATE TRIGGER IF NOT EXISTS selections_keep BEFORE DELETE ON run_context_selections
BEGIN SELECT RAISE(ABORT, 'selections are append-only; write a new one'); END;

CREATE TRIGGER IF NOT EXISTS acts_once BEFORE INSERT ON context_selection_acts
WHEN (NEW.ordinal > 0 AND EXISTS (SELECT 1 FROM context_selection_acts WHERE ordinal = NEW.ordinal))
  OR EXISTS (SELECT 1 FROM context_selection_acts
             WHERE tenant = NEW.tenant AND org_id = NEW.org_id AND selection_id = NEW.selection_id)
BEGIN SELECT RAISE(ABORT, 'a selection cannot be recorded twice'); END;

CREATE TRIGGER IF NOT EXISTS selections_once BEFORE INSERT ON run_context_selections
WHEN EXISTS (SELECT 1 FROM run_context_selections WHERE tenant = NEW.tenant AND org_id = NEW.org_id
             AND selection_id = NEW.selection_id AND position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'a selection has each ref once'); END;

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
BEGIN SELECT RAISE(ABORT, 'a ref that is not coherent cannot be recorded'); END;

-- The audit of a governed run takes only an act that is in the journal of this run. An act is a segment of its own that
-- is not compressed: a line of JSON with kind, key, time, author and size, and then the body. The body is canonical JSON,
-- and no value of an act can hold a quotation mark. JSON functions are not used: `trusted_schema` is off.
CREATE TRIGGER IF NOT EXISTS acts_of_runs BEFORE INSERT ON context_selection_acts
WHEN NEW.parent_run_id GLOB 'run_[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
  AND NOT EXISTS (SELECT 1 FROM (SELECT substr(plain, instr(plain, char(10)) + 1) AS said FROM (
                    SELECT CAST(body AS TEXT) AS plain FROM segments
                    WHERE tenant = NEW.tenant AND run = NEW.parent_run_id AND entries = 1 AND dictionary = x'')
                  WHERE instr(plain, '[["slot.selected","' || NEW.act_key || '",') = 1)
                  WHERE instr(said, '{"answer":{"act":{"origin":{"act_key":"' || NEW.act_key
                      || '","org_id":"' || NEW.org_id || '","parent_package_name":"' || NEW.parent_package_name
                      || '","parent_run_id":"' || NEW.parent_run_id || '","principal_id":"' || NEW.principal_id
                      || '"},"refs":[') = 1
                    AND instr(said, '],"resolution_mode":"' || NEW.resolution_mode
                      || '","selected_at_us":' || NEW.selected_at_us || ',"selected_by":"' || NEW.selected_by
                      || '","selection_id":"' || NEW.selection_id || '","selection_mode":"' || NEW.selection_mode
                      || '","slot_id":"' || NEW.slot_id || '"}},"request_digest":"') > 0
                    AND length(said) - length(replace(said, '{"artifactId":', '')) = 14 * NEW.picked)
BEGIN SELECT RAISE(ABORT, 'the journal of the run does not hold this act'); END;

-- A ref is one of its act, at its place: of the header row, and in a governed run also of the journal.
CREATE TRIGGER IF NOT EXISTS selections_of_act BEFORE INSERT ON run_context_selections
WHEN NOT EXISTS (SELECT 1 FROM context_selection_acts AS h
                 WHERE h.tenant = NEW.tenant AND h.org_id = NEW.org_id AND h.selection_id = NEW.selection_id
                   AND NEW.position < h.picked AND h.parent_run_id = NEW.parent_run_id
                   AND h.parent_package_name = NEW.parent_package_name AND h.slot_id = NEW.slot_id
                   AND h.selected_by = NEW.selected_by AND h.selection_mode = NEW.selection_mode
                   AND h.selected_at_us = NEW.selected_at_us)
  OR NEW.parent_run_id GLOB 'run_[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
  AND NOT EXISTS (SELECT 1 FROM (SELECT substr(said, 1, instr(said, '{"artifactId":"'
                                   || NEW.artifact_id || '","extension":"' || NEW.extension || '","ownerId":"'
                                   || NEW.owner_id || '","representationRevisionId":"'
                                   || NEW.representation_revision_id || '","semanticAssertionId":"'
                                   || NEW.semantic_assertion_id || '","sourceScope":"' || NEW.source_scope || '"}')
                                   + 13) AS upto
                    FROM (SELECT substr(plain, instr(plain, char(10)) + 1) AS said FROM (
                            SELECT CAST(body AS TEXT) AS plain FROM segments
                            WHERE tenant = NEW.tenant AND run = NEW.parent_run_id AND entries = 1 AND dictionary = x'')
                          WHERE instr(plain, '[["slot.selected","') = 1)
                    WHERE instr(said, '","selection_id":"' || NEW.selection_id || '"') > 0)
                  WHERE length(upto) - length(replace(upto, '{"artifactId":', '')) = 14 * (NEW.position + 1))
BEGIN SELECT RAISE(ABORT, 'a ref that contradicts its act cannot be recorded'); END;

PRAGMA application_id = 1668577336;
PRAGMA user_version = 7;
COMMIT;
