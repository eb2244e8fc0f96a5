-- Schema 0001. Every key begins with the tenant, so keys of two tenants never collide. Every table has row-level security
-- that applies to its owner, too. Names sort by code point ("C"), as they do in SQLite and Python.
-- A statement ends at a `;` that is followed by an empty line.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'contextos_app') THEN
    CREATE ROLE contextos_app NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
  END IF;
  -- In addition to `contextos_app`, for the process that erases bodies.
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'contextos_eraser') THEN
    CREATE ROLE contextos_eraser NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
  END IF;
END $$;

-- The entries of runs: one row for each commit (docs/adr/0032-a-commit-is-one-row.md). `seq` is that of the last of
-- `entries` entries, `head` its hash. `marks` has 2 bytes an entry and `salts` 16. `erased` names the erased entries with
-- their digests. An empty `dictionary` means that `body` is not compressed.
CREATE TABLE contextos.segments (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  run text COLLATE "C" NOT NULL CHECK (run NOT IN ('index', 'control')),
  seq bigint NOT NULL,
  entries integer NOT NULL CHECK (entries > 0 AND entries <= seq),
  v integer NOT NULL,
  format integer NOT NULL,
  dictionary bytea NOT NULL,
  head bytea NOT NULL CHECK (octet_length(head) = 32),
  marks bytea NOT NULL CHECK (octet_length(marks) = 2 * entries),
  salts bytea NOT NULL CHECK (octet_length(salts) = 16 * entries),
  body bytea NOT NULL,
  erased text NOT NULL,
  PRIMARY KEY (tenant, run, seq)
) WITH (toast_tuple_target = 8160);

-- Of two segments that begin at one entry the second is refused, also while neither sees the other.
CREATE UNIQUE INDEX segments_begin ON contextos.segments (tenant, run, (seq - entries));

-- A compressed body is not compressed again, and lies in the row itself if it fits a page.
ALTER TABLE contextos.segments ALTER COLUMN body SET STORAGE EXTERNAL;

-- The lines of a tenant's two own streams, one row each, because they are found by key and by time. Never erased.
CREATE TABLE contextos.journal (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  run text COLLATE "C" NOT NULL CHECK (run IN ('index', 'control')),
  seq bigint NOT NULL CHECK (seq > 0),
  v integer NOT NULL,
  kind text NOT NULL,
  key text NOT NULL,
  at_us bigint NOT NULL,
  by text NOT NULL,
  body_digest text NOT NULL,
  prev_hash text NOT NULL,
  hash text NOT NULL,
  salt bytea,
  body bytea,
  PRIMARY KEY (tenant, run, seq)
);

-- The lines about one run, and the control entry of one erasure.
CREATE INDEX journal_lines ON contextos.journal (tenant, run, key, seq);

-- The latest recorded time.
CREATE INDEX journal_times ON contextos.journal (tenant, at_us);

-- The signed heads, in a table of their own: who cuts the end of a run has to cut here, too.
CREATE TABLE contextos.heads (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  stream text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  kid text COLLATE "C" NOT NULL,
  hash bytea NOT NULL,
  sig bytea NOT NULL,
  PRIMARY KEY (tenant, stream, seq, kid)
);

CREATE TABLE contextos.documents (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  collection text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (tenant, collection, key)
) WITH (fillfactor = 80);

CREATE TABLE contextos.runs (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  run text COLLATE "C" NOT NULL,
  wake_at_us bigint NOT NULL,
  number bigint NOT NULL DEFAULT 0,
  waiting boolean NOT NULL DEFAULT false,
  worker text COLLATE "C",
  claim_at_us bigint,
  PRIMARY KEY (tenant, run)
);

-- `due` is the only read across tenants, so only this index begins with the time. It is not unique, so no insert can fail
-- on another tenant's row and reveal that it exists.
CREATE INDEX runs_due ON contextos.runs (wake_at_us, tenant, run) WHERE wake_at_us <> 0;

-- `number` is the sequence of a run's first line in the stream `index`, or 0. The index holds only runs that wait for a
-- person.
CREATE INDEX runs_waiting ON contextos.runs (tenant, number) WHERE waiting;

-- A run with a `worker` is claimed: that worker drives it next. An unclaimed run with a wake time can be claimed from then, or
-- from `claim_at_us` if that is set: a worker postponed the run, or lost it. A claim is a hint and no lease.
CREATE INDEX runs_claimable ON contextos.runs (coalesce(claim_at_us, wake_at_us), tenant, run)
  WHERE worker IS NULL AND wake_at_us <> 0;

CREATE INDEX runs_claimable_of ON contextos.runs (tenant, coalesce(claim_at_us, wake_at_us), run)
  WHERE worker IS NULL AND wake_at_us <> 0;

CREATE INDEX runs_claimed ON contextos.runs (worker, tenant) WHERE worker IS NOT NULL;

-- The terms by which a search finds a run (docs/adr/0078-runs-are-found-by-terms.md). `number` is that of the run. They
-- prove nothing, and `verify` compares them with the entries of the run.
CREATE TABLE contextos.run_terms (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  term bigint NOT NULL,
  number bigint NOT NULL CHECK (number > 0),
  began_us bigint NOT NULL,
  PRIMARY KEY (tenant, term, number)
);

CREATE INDEX run_terms_of ON contextos.run_terms (tenant, number);

-- The worker processes, and until when each counts as alive by the server's clock. Only `claim_runs` reads and writes it.
CREATE TABLE contextos.workers (
  worker text COLLATE "C" NOT NULL CHECK (worker <> ''),
  alive_until_us bigint NOT NULL,
  PRIMARY KEY (worker)
) WITH (fillfactor = 80);

-- When the latest drives of a tenant began, if their rate is limited. Only `claim_runs` reads and writes it.
CREATE TABLE contextos.drive_rates (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  started_us bigint[] NOT NULL,
  PRIMARY KEY (tenant)
) WITH (fillfactor = 80);

CREATE TABLE contextos.graph_commits (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  head bigint NOT NULL,
  PRIMARY KEY (tenant)
) WITH (fillfactor = 80);

CREATE TABLE contextos.nodes (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  ceid text COLLATE "C" NOT NULL,
  commit_no bigint NOT NULL,
  type text NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (tenant, ceid, commit_no)
);

CREATE TABLE contextos.edges (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  edge_id text COLLATE "C" NOT NULL,
  src text COLLATE "C" NOT NULL,
  predicate text NOT NULL,
  dst text COLLATE "C" NOT NULL,
  evidence_ref text NOT NULL CHECK (evidence_ref <> ''),
  body bytea NOT NULL,
  valid_from bigint NOT NULL,
  valid_to bigint,
  withdrawn_ref text CHECK (withdrawn_ref <> ''),
  PRIMARY KEY (tenant, edge_id),
  CHECK (valid_to > valid_from),
  CHECK ((valid_to IS NULL) = (withdrawn_ref IS NULL))
);

-- In order of edge id, so that a query can read the first edges of a hub and skip the rest.
CREATE INDEX edges_out ON contextos.edges (tenant, src, edge_id);

CREATE INDEX edges_in ON contextos.edges (tenant, dst, edge_id);

CREATE INDEX edges_step ON contextos.edges (tenant, src, predicate, edge_id);

-- Few edges have ended, and a read asks for those around each subject.
CREATE INDEX edges_ended ON contextos.edges (tenant, src, edge_id) WHERE valid_to IS NOT NULL;

-- After a commit the setting is '' and not NULL, so '' must not count as a tenant.
DO $$
DECLARE
  name text;
  mine constant text := 'tenant = nullif(current_setting(''contextos.tenant'', true), '''')';
BEGIN
  FOREACH name IN ARRAY ARRAY['segments', 'journal', 'heads', 'documents', 'runs', 'run_terms', 'drive_rates', 'graph_commits', 'nodes',
    'edges'] LOOP
    EXECUTE format('ALTER TABLE contextos.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE contextos.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY tenant ON contextos.%I USING (%s) WITH CHECK (%s)', name, mine, mine);
  END LOOP;
END $$;

-- Only for the functions `due` and `claim_runs`, which run as the owner. The policy applies to no other role.
DO $$
DECLARE
  name text;
BEGIN
  ALTER TABLE contextos.workers ENABLE ROW LEVEL SECURITY;
  ALTER TABLE contextos.workers FORCE ROW LEVEL SECURITY;
  FOREACH name IN ARRAY ARRAY['drive_rates', 'runs', 'workers'] LOOP
    EXECUTE format('CREATE POLICY sweep ON contextos.%I TO CURRENT_USER USING (true) WITH CHECK (true)', name);
  END LOOP;
END $$;

CREATE FUNCTION contextos.append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;

DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['segments', 'journal', 'heads', 'nodes', 'edges'] LOOP
    EXECUTE format('CREATE TRIGGER keeps BEFORE DELETE OR TRUNCATE ON contextos.%I'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION contextos.append_only()', name);
  END LOOP;
  FOREACH name IN ARRAY ARRAY['journal', 'heads', 'nodes'] LOOP
    EXECUTE format('CREATE TRIGGER stands BEFORE UPDATE ON contextos.%I'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION contextos.append_only()', name);
  END LOOP;
END $$;

-- The conditions are in the functions and not in the triggers, so that a start can compare their text.
-- The only allowed update erases one entry, once `control` says so: it empties the salt of this entry and no other, and
-- adds the entry with its digest to `erased`. SQL cannot look into `body`; each read compares it with the salts and the
-- head, which stand.
CREATE FUNCTION contextos.erases_only() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  added constant text := substr(NEW.erased, length(OLD.erased) + 1);
  erased_seq bigint;
  at integer;
BEGIN
  IF added ~ '^[1-9][0-9]{0,17}:[0-9a-f]{64} $' THEN
    erased_seq := split_part(added, ':', 1)::bigint;
    at := 16 * (erased_seq - OLD.seq + OLD.entries - 1);
  END IF;
  IF erased_seq IS NULL OR erased_seq NOT BETWEEN OLD.seq - OLD.entries + 1 AND OLD.seq
    OR NOT starts_with(NEW.erased, OLD.erased) OR position(' ' || erased_seq || ':' IN ' ' || OLD.erased) > 0
    OR NEW.salts IS DISTINCT FROM overlay(OLD.salts PLACING decode(repeat('00', 16), 'hex') FROM at + 1)
    OR (NEW.tenant, NEW.run, NEW.seq, NEW.entries, NEW.v, NEW.format, NEW.dictionary, NEW.head, NEW.marks)
    IS DISTINCT FROM
    (OLD.tenant, OLD.run, OLD.seq, OLD.entries, OLD.v, OLD.format, OLD.dictionary, OLD.head, OLD.marks)
    OR NOT EXISTS (SELECT FROM contextos.journal AS j WHERE j.tenant = OLD.tenant AND j.run = 'control'
                   AND j.kind = 'entry.erased' AND j.key = OLD.run || '/' || erased_seq)
  THEN
    RAISE EXCEPTION 'journal is append-only' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER erases_only BEFORE UPDATE ON contextos.segments FOR EACH ROW EXECUTE FUNCTION contextos.erases_only();

-- A segment begins behind the last entry of its run, so that no two hold the same entry and none is left out. A writer
-- with the lock of the run fails here only if the run has changed.
CREATE FUNCTION contextos.segment_continues() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.erased <> '' OR NEW.seq - NEW.entries IS DISTINCT FROM coalesce((
    SELECT s.seq FROM contextos.segments AS s
    WHERE s.tenant = NEW.tenant AND s.run = NEW.run ORDER BY s.seq DESC LIMIT 1), 0)
  THEN
    RAISE EXCEPTION 'a journal entry continues its stream' USING ERRCODE = 'exclusion_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER continues BEFORE INSERT ON contextos.segments
FOR EACH ROW EXECUTE FUNCTION contextos.segment_continues();

-- A snapshot of the past takes no new edge: an edge begins with the commit that this transaction makes.
CREATE FUNCTION contextos.edge_begins_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.valid_to IS NOT NULL OR NOT EXISTS (
    SELECT FROM contextos.graph_commits AS g
    WHERE g.tenant = NEW.tenant AND g.head = NEW.valid_from AND g.xmin = pg_current_xact_id()::xid)
  THEN
    RAISE EXCEPTION 'an edge begins with the newest commit' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER begins_now BEFORE INSERT ON contextos.edges FOR EACH ROW EXECUTE FUNCTION contextos.edge_begins_now();

-- The only allowed update withdraws a valid edge once, at the newest commit, with evidence.
CREATE FUNCTION contextos.edge_ends_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.valid_to IS NOT NULL OR NEW.valid_to IS NULL
    OR NEW.valid_to IS DISTINCT FROM (SELECT head FROM contextos.graph_commits WHERE tenant = NEW.tenant)
    OR (NEW.tenant, NEW.edge_id, NEW.src, NEW.predicate, NEW.dst, NEW.evidence_ref, NEW.body, NEW.valid_from)
    IS DISTINCT FROM
    (OLD.tenant, OLD.edge_id, OLD.src, OLD.predicate, OLD.dst, OLD.evidence_ref, OLD.body, OLD.valid_from)
  THEN
    RAISE EXCEPTION 'edges is append-only' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER ends_only BEFORE UPDATE ON contextos.edges FOR EACH ROW EXECUTE FUNCTION contextos.edge_ends_only();

-- A document is only replaced by its next version, and these collections are written once.
CREATE FUNCTION contextos.next_version_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.version <> OLD.version + 1
    OR (NEW.tenant, NEW.collection, NEW.key) IS DISTINCT FROM (OLD.tenant, OLD.collection, OLD.key)
    OR OLD.collection IN ('artifacts', 'cancels', 'counted_effects', 'denials', 'pins', 'requests')
  THEN
    RAISE EXCEPTION 'a document is replaced by its next version' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER steps_only BEFORE UPDATE ON contextos.documents
FOR EACH ROW EXECUTE FUNCTION contextos.next_version_only();

CREATE FUNCTION contextos.keeps_number() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.tenant, NEW.run) IS DISTINCT FROM (OLD.tenant, OLD.run) OR (OLD.number <> 0 AND NEW.number <> OLD.number) THEN
    RAISE EXCEPTION 'a run keeps its number' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  -- A commit that moves the wake time ends every postponement of the run.
  IF NEW.wake_at_us <> OLD.wake_at_us THEN
    NEW.claim_at_us := NULL;
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER steps_only BEFORE UPDATE ON contextos.runs FOR EACH ROW EXECUTE FUNCTION contextos.keeps_number();

-- The head of a graph is locked by an update that does not change it.
CREATE FUNCTION contextos.next_commit_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.tenant <> OLD.tenant OR NEW.head NOT IN (OLD.head, OLD.head + 1) THEN
    RAISE EXCEPTION 'graph_commits is append-only' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER steps_only BEFORE UPDATE ON contextos.graph_commits
FOR EACH ROW EXECUTE FUNCTION contextos.next_commit_only();

-- The parts of a batch, as rows. The first segment of a batch follows the stored head `prev`, the others follow each other.
CREATE TYPE contextos.segment AS (
  is_first boolean, prev bytea, run text, seq bigint, entries integer, v integer, format integer, dictionary bytea,
  head bytea, marks bytea, salts bytea, body bytea
);

CREATE TYPE contextos.write AS (
  collection text, key text, expect bigint, body bytea, not_after_us bigint, not_before_us bigint
);

-- The changes of a batch to its run. NULL keeps a value. Without a change of its terms `began_us` is NULL.
CREATE TYPE contextos.run_change AS (
  run text, wake_at_us bigint, waiting boolean, began_us bigint, added bigint[], removed bigint[]
);

CREATE TYPE contextos.index_line AS (run text, number bigint);

CREATE TYPE contextos.signature AS (run text, kid text, sig bytea);

-- An entry whose sequence and `prev_hash` are found by the insert. The header parts are the hashed text before, between and
-- after these two values.
CREATE TYPE contextos.draft AS (
  run text, genesis text, kind text, key text, at_us bigint, by_whom text, body_digest text, header_1 text, header_2 text,
  header_3 text, body bytea, salt bytea, v integer, numbers_run boolean
);

-- Appends a line to a shared stream, whose lock the caller holds, and returns its sequence.
CREATE FUNCTION contextos.append_line(p_tenant text, d contextos.draft) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  head_seq bigint;
  head_hash text;
BEGIN
  SELECT seq, hash INTO head_seq, head_hash FROM contextos.journal
  WHERE tenant = p_tenant AND run = d.run ORDER BY seq DESC LIMIT 1;
  IF NOT FOUND THEN
    head_seq := 0;
    head_hash := d.genesis;
  END IF;
  INSERT INTO contextos.journal
    (tenant, run, seq, kind, key, at_us, by, body_digest, prev_hash, hash, body, salt, v)
  VALUES (p_tenant, d.run, head_seq + 1, d.kind, d.key, d.at_us, d.by_whom, d.body_digest,
          head_hash, 'sha256:' || encode(sha256(convert_to(
            d.header_1 || head_hash || d.header_2 || head_seq + 1 || d.header_3, 'UTF8')), 'hex'),
          d.body, d.salt, d.v)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'a shared stream was written without its lock' USING ERRCODE = 'serialization_failure';
  END IF;
  RETURN head_seq + 1;
END $$;

-- Writes batches of one tenant, all or none: the inner block is a savepoint. Returns NULL if they were written, otherwise
-- the conflict: `collection/key`, or a run whose sequence or hash has changed, or '' if there is no entry to sign. A write
-- before or after its time is `@`, the server's clock, a space and `collection/key`. A call contains a run at most once.
-- The locks are those of the whole transaction. All writers take them in the same order, so there is no deadlock. They are
-- taken outside the savepoint, because its rollback would release them. They also serialize checks for absent rows, which
-- row locks cannot. An element of `p_locks` is twice the lock key, plus one if the lock is exclusive and not shared. A wait
-- for any lock that is longer than `p_patience` fails.
-- Every statement uses one generic plan with index scans. Planning takes longer than a commit of a few entries, and a plan
-- made while a table is small would still scan it when it is large.
CREATE FUNCTION contextos.commit_batches(
  p_tenant text, p_now_us bigint, p_patience text, p_locks bigint[], p_segments contextos.segment[],
  p_writes contextos.write[], p_runs contextos.run_change[], p_signatures contextos.signature[], p_drafts contextos.draft[]
) RETURNS text LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  what text;
  done bigint;
  w contextos.write;
  s contextos.signature;
  d contextos.draft;
  found_version bigint;
  head_seq bigint;
  head_hash text;
  head_digest bytea;
  now_us bigint;
  lines contextos.index_line[] := '{}';
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true), set_config('lock_timeout', p_patience, true);
  IF cardinality(p_locks) > 0 THEN
    PERFORM CASE WHEN l & 1 = 1 THEN pg_advisory_xact_lock(l >> 1) ELSE pg_advisory_xact_lock_shared(l >> 1) END
    FROM unnest(p_locks) AS l;
  END IF;
  now_us := coalesce(p_now_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
  BEGIN
    IF cardinality(p_segments) > 0 THEN
      what := p_segments[1].run;
      -- Scalar comparisons, because EXISTS can be planned as a scan of the whole table.
      INSERT INTO contextos.segments
        (tenant, run, seq, entries, v, format, dictionary, head, marks, salts, body, erased)
      SELECT p_tenant, e.run, e.seq, e.entries, e.v, e.format, e.dictionary, e.head, e.marks, e.salts, e.body, ''
      FROM unnest(p_segments) AS e
      WHERE NOT e.is_first OR (e.seq - e.entries, e.prev) = (
        SELECT coalesce(max(g.seq), 0), CASE WHEN max(g.seq) > 0 THEN (
          SELECT h.head FROM contextos.segments AS h
          WHERE h.tenant = p_tenant AND h.run = e.run AND h.seq = e.seq - e.entries) ELSE e.prev END
        FROM contextos.segments AS g WHERE g.tenant = p_tenant AND g.run = e.run);
      GET DIAGNOSTICS done = ROW_COUNT;
      IF done <> cardinality(p_segments) THEN
        RAISE EXCEPTION 'the stream changed' USING ERRCODE = 'ZX001';
      END IF;
    END IF;
    FOREACH w IN ARRAY p_writes LOOP
      what := w.collection || '/' || w.key;
      IF now_us > w.not_after_us OR now_us < w.not_before_us THEN
        what := '@' || now_us || ' ' || what;
        RAISE EXCEPTION 'the deadline has passed or is not reached' USING ERRCODE = 'ZX001';
      END IF;
      IF w.body IS NULL THEN
        SELECT version INTO found_version FROM contextos.documents
        WHERE tenant = p_tenant AND collection = w.collection AND key = w.key;
        IF coalesce(found_version, 0) <> w.expect THEN
          RAISE EXCEPTION 'the document changed' USING ERRCODE = 'ZX001';
        END IF;
        CONTINUE;
      ELSIF w.expect = 0 THEN
        INSERT INTO contextos.documents (tenant, collection, key, version, body)
        VALUES (p_tenant, w.collection, w.key, 1, w.body) ON CONFLICT DO NOTHING;
      ELSE
        UPDATE contextos.documents SET version = version + 1, body = w.body
        WHERE tenant = p_tenant AND collection = w.collection AND key = w.key AND version = w.expect;
      END IF;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'the document changed' USING ERRCODE = 'ZX001';
      END IF;
    END LOOP;
    FOREACH s IN ARRAY p_signatures LOOP
      what := '';
      SELECT g.seq, g.head INTO head_seq, head_digest
      FROM contextos.segments AS g WHERE g.tenant = p_tenant AND g.run = s.run ORDER BY g.seq DESC LIMIT 1;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'the stream has no entry to sign' USING ERRCODE = 'ZX001';
      END IF;
      INSERT INTO contextos.heads (tenant, stream, seq, kid, hash, sig)
      VALUES (p_tenant, s.run, head_seq, s.kid, head_digest, s.sig) ON CONFLICT DO NOTHING;
    END LOOP;
    FOREACH d IN ARRAY p_drafts LOOP
      head_seq := contextos.append_line(p_tenant, d);
      IF d.numbers_run THEN
        lines := lines || (d.key, head_seq)::contextos.index_line;
      END IF;
    END LOOP;
    IF cardinality(p_runs) > 0 THEN
      INSERT INTO contextos.runs (tenant, run, wake_at_us, number, waiting)
      SELECT p_tenant, r.run, coalesce(r.wake_at_us, old.wake_at_us, 0), coalesce(nullif(old.number, 0), (
          SELECT min(l.number) FROM unnest(lines) AS l WHERE l.run = r.run), 0), coalesce(r.waiting, old.waiting, false)
      FROM unnest(p_runs) AS r LEFT JOIN contextos.runs AS old ON old.tenant = p_tenant AND old.run = r.run
      ON CONFLICT (tenant, run) DO UPDATE
      SET wake_at_us = excluded.wake_at_us, number = excluded.number, waiting = excluded.waiting;
      IF EXISTS (SELECT FROM unnest(p_runs) AS r WHERE r.wake_at_us BETWEEN 1 AND now_us + 5000000) THEN
        PERFORM pg_notify('contextos_due', '');
      END IF;
    END IF;
    IF EXISTS (SELECT FROM unnest(p_runs) AS r WHERE r.began_us IS NOT NULL) THEN
      SELECT min(r.run) INTO what FROM unnest(p_runs) AS r
      JOIN contextos.runs AS n ON n.tenant = p_tenant AND n.run = r.run WHERE r.began_us IS NOT NULL AND n.number = 0;
      IF what IS NOT NULL THEN
        RAISE EXCEPTION 'the index does not name the run' USING ERRCODE = 'ZX001';
      END IF;
      DELETE FROM contextos.run_terms AS t
      USING unnest(p_runs) AS r, contextos.runs AS n, unnest(r.removed) AS gone
      WHERE n.tenant = p_tenant AND n.run = r.run AND t.tenant = p_tenant AND t.term = gone AND t.number = n.number;
      INSERT INTO contextos.run_terms (tenant, term, number, began_us)
      SELECT p_tenant, made, n.number, r.began_us FROM unnest(p_runs) AS r
      JOIN contextos.runs AS n ON n.tenant = p_tenant AND n.run = r.run CROSS JOIN unnest(r.added) AS made
      ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
  EXCEPTION
    WHEN SQLSTATE 'ZX001' OR unique_violation OR exclusion_violation THEN
      RETURN what;
  END;
END $$;

-- Reads are functions, so that setting the tenant and reading take one round trip.
-- Returns the lines of a shared stream behind the line `p_after`.
CREATE FUNCTION contextos.read_stream(p_tenant text, p_run text, p_after bigint, p_limit bigint)
RETURNS TABLE (
  tenant text, run text, seq bigint, kind text, key text, at_us bigint, by text, body_digest text, prev_hash text,
  hash text, body bytea, salt bytea, v integer
) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN QUERY
    SELECT j.tenant, j.run, j.seq, j.kind, j.key, j.at_us, j.by, j.body_digest, j.prev_hash, j.hash, j.body, j.salt, j.v
    FROM contextos.journal AS j WHERE j.tenant = p_tenant AND j.run = p_run AND j.seq > p_after
    ORDER BY j.seq LIMIT p_limit;
END $$;

-- Returns the segments of a run that hold entries behind the entry `p_after`, each with the head before it.
CREATE FUNCTION contextos.read_segments(p_tenant text, p_run text, p_after bigint, p_limit bigint)
RETURNS TABLE (
  before bytea, seq bigint, entries integer, v integer, format integer, dictionary bytea, head bytea, marks bytea,
  salts bytea, body bytea, erased text
) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN QUERY
    SELECT (SELECT b.head FROM contextos.segments AS b
            WHERE b.tenant = p_tenant AND b.run = p_run AND b.seq = s.seq - s.entries),
      s.seq, s.entries, s.v, s.format, s.dictionary, s.head, s.marks, s.salts, s.body, s.erased
    FROM contextos.segments AS s WHERE s.tenant = p_tenant AND s.run = p_run AND s.seq > p_after
    ORDER BY s.seq LIMIT p_limit;
END $$;

-- Returns what is stored about a run as of one moment, because it is one statement: its first `p_limit` segments and the
-- number of its last entry, its signed heads, the lines of the index about it, and its lease.
CREATE FUNCTION contextos.read_run(p_tenant text, p_run text, p_limit bigint)
RETURNS TABLE (
  length bigint, segments contextos.segments[], heads contextos.heads[], lines contextos.journal[], lease_version bigint,
  lease bytea
) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN QUERY SELECT
    (SELECT max(s.seq) FROM contextos.segments AS s WHERE s.tenant = p_tenant AND s.run = p_run),
    ARRAY(SELECT s FROM contextos.segments AS s WHERE s.tenant = p_tenant AND s.run = p_run ORDER BY s.seq LIMIT p_limit),
    ARRAY(SELECT h FROM contextos.heads AS h WHERE h.tenant = p_tenant AND h.stream = p_run ORDER BY h.seq, h.kid),
    ARRAY(SELECT j FROM contextos.journal AS j
          WHERE j.tenant = p_tenant AND j.run = 'index' AND j.key = p_run ORDER BY j.seq),
    d.version, d.body
  FROM (SELECT p_run AS key) AS asked
  LEFT JOIN contextos.documents AS d ON d.tenant = p_tenant AND d.collection = 'leases' AND d.key = asked.key;
END $$;

-- Returns the latest time on record in the shared streams of a tenant, or 0.
CREATE FUNCTION contextos.latest_us(p_tenant text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN coalesce((SELECT j.at_us FROM contextos.journal AS j WHERE j.tenant = p_tenant ORDER BY j.at_us DESC LIMIT 1), 0);
END $$;

-- Returns the lines of a shared stream with one key, in order.
CREATE FUNCTION contextos.read_lines(p_tenant text, p_stream text, p_keys text[])
RETURNS TABLE (
  tenant text, run text, seq bigint, kind text, key text, at_us bigint, by text, body_digest text, prev_hash text,
  hash text, body bytea, salt bytea, v integer
) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN QUERY
    SELECT j.tenant, j.run, j.seq, j.kind, j.key, j.at_us, j.by, j.body_digest, j.prev_hash, j.hash, j.body, j.salt, j.v
    FROM contextos.journal AS j
    WHERE j.tenant = p_tenant AND j.run = p_stream AND j.key = ANY (p_keys)
    ORDER BY j.seq;
END $$;

CREATE FUNCTION contextos.read_document(p_tenant text, p_collection text, p_key text)
RETURNS TABLE (collection text, key text, version bigint, body bytea) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN QUERY SELECT d.collection, d.key, d.version, d.body FROM contextos.documents AS d
    WHERE d.tenant = p_tenant AND d.collection = p_collection AND d.key = p_key;
END $$;

-- Returns the documents with keys from `p_from` that are greater than `p_after` and less than `p_until` (NULL: no bound).
CREATE FUNCTION contextos.scan_documents(
  p_tenant text, p_collection text, p_from text, p_after text, p_until text, p_limit bigint
) RETURNS TABLE (collection text, key text, version bigint, body bytea) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  IF p_until IS NULL THEN
    RETURN QUERY SELECT d.collection, d.key, d.version, d.body FROM contextos.documents AS d
      WHERE d.tenant = p_tenant AND d.collection = p_collection AND d.key >= p_from AND d.key > p_after
      ORDER BY d.key LIMIT p_limit;
  ELSE
    RETURN QUERY SELECT d.collection, d.key, d.version, d.body FROM contextos.documents AS d
      WHERE d.tenant = p_tenant AND d.collection = p_collection AND d.key >= p_from AND d.key > p_after
        AND d.key < p_until
      ORDER BY d.key LIMIT p_limit;
  END IF;
END $$;

CREATE FUNCTION contextos.waiting_runs(p_tenant text, p_newest bigint, p_limit bigint)
RETURNS TABLE (number bigint, run text) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN QUERY SELECT r.number, r.run FROM contextos.runs AS r
    WHERE r.tenant = p_tenant AND r.waiting AND r.number BETWEEN 1 AND p_newest ORDER BY r.number DESC LIMIT p_limit;
END $$;

-- Returns the number of the newest commit, or 0 for an empty graph.
CREATE FUNCTION contextos.graph_head(p_tenant text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN coalesce((SELECT head FROM contextos.graph_commits WHERE tenant = p_tenant), 0);
END $$;

-- Returns the first `p_limit` edges of each frontier node as of commit `p_at`, in order of id. Both indexes are in that
-- order, so reading a hub costs as much as the limit, not as much as the hub has edges.
CREATE FUNCTION contextos.graph_hop(p_tenant text, p_at bigint, p_limit bigint, p_frontier text[])
RETURNS TABLE (node text, edge_id text, src text, dst text, body bytea, valid_from bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true);
  RETURN QUERY
    SELECT frontier.node, found.edge_id, found.src, found.dst, found.body, found.valid_from FROM unnest(p_frontier) AS frontier (node)
    CROSS JOIN LATERAL (SELECT * FROM (
      (SELECT edge_id, src, dst, body, valid_from FROM contextos.edges
       WHERE tenant = p_tenant AND src = frontier.node
         AND valid_from <= p_at AND (valid_to IS NULL OR valid_to > p_at) ORDER BY edge_id LIMIT p_limit)
      UNION ALL
      (SELECT edge_id, src, dst, body, valid_from FROM contextos.edges
       WHERE tenant = p_tenant AND dst = frontier.node AND src <> dst
         AND valid_from <= p_at AND (valid_to IS NULL OR valid_to > p_at) ORDER BY edge_id LIMIT p_limit)
    ) AS both_ends ORDER BY edge_id LIMIT p_limit) AS found
    ORDER BY frontier.node, found.edge_id;
END $$;

-- The only read across tenants. Returns tenant and id of runs with a wake time, and nothing of their content.
CREATE FUNCTION contextos.due(p_before_us bigint, p_limit bigint, p_skip bigint) RETURNS TABLE (tenant text, run text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT r.tenant, r.run FROM contextos.runs AS r WHERE r.wake_at_us <> 0 AND r.wake_at_us <= p_before_us
  ORDER BY r.wake_at_us, r.tenant, r.run LIMIT p_limit OFFSET p_skip
$$;

-- One exchange of a worker with the store, across tenants: its sign of life, the runs that it gives back, and the runs that
-- it takes. Returns the server's time; the runs taken; those given back whose row was locked (still claimed: give them back
-- again); the workers that are dead; and the time from which another run can be claimed, or NULL.
-- `p_runs` are given back: until their wake time, or for `p_delays_us` if that is not NULL and nobody woke them meanwhile. The claims of a dead worker are
-- given back for it. On a new connection, `p_held_runs` are all runs that the worker has (otherwise NULL), and its other claims
-- are given back. At most `p_free` runs are taken, earliest first, the tenants with the fewest claims in turns, and none
-- if the clock of the worker (`p_now_us`) is off by more than `p_margin_us`. A tenant has at most `p_per_tenant` claims
-- of this worker and `p_in_all` of all workers, and at most `p_rate` claims of it begin within `p_period_us` (0: no bound).
-- A backlog longer than the first page is also read by tenant, 64 tenants behind `p_after` at a time, so that no tenant
-- hides another. `next_after` continues there ('': all were seen), at once if the worker has room for more.
-- Row locks are skipped and never awaited. Claims are hints, so their commits need no sync.
CREATE FUNCTION contextos.claim_runs(
  p_worker text, p_now_us bigint, p_alive_us bigint, p_margin_us bigint, p_tenants text[], p_runs text[],
  p_delays_us bigint[], p_held_tenants text[], p_held_runs text[], p_free bigint, p_per_tenant bigint, p_in_all bigint,
  p_rate bigint, p_period_us bigint, p_after text
) RETURNS TABLE (
  server_us bigint, taken_tenants text[], taken_runs text[], kept_tenants text[], kept_runs text[], dead text[],
  next_in_us bigint, next_after text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  at_us bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  due_us bigint := least(at_us, p_now_us);
  page CONSTANT bigint := 128;
  lost text[];
  next_us bigint;
  tenants text[] := '{}';
  runs text[] := '{}';
  seen text := p_after;
  is_more boolean := false;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  INSERT INTO contextos.workers AS w (worker, alive_until_us) VALUES (p_worker, at_us + p_alive_us)
  ON CONFLICT (worker) DO UPDATE SET alive_until_us = excluded.alive_until_us
  WHERE w.alive_until_us < at_us + p_alive_us * 2 / 3 OR p_alive_us = 0;
  IF cardinality(p_runs) > 0 THEN
    WITH given AS (
      SELECT * FROM unnest(p_tenants, p_runs, p_delays_us) AS g (tenant, run, delay_us)
    ), locked AS (
      SELECT r.tenant, r.run, g.delay_us FROM given AS g JOIN contextos.runs AS r ON r.tenant = g.tenant AND r.run = g.run
      WHERE r.worker = p_worker FOR UPDATE OF r SKIP LOCKED
    )
    UPDATE contextos.runs AS r SET worker = NULL,
      claim_at_us = CASE WHEN r.claim_at_us IS NOT NULL OR r.wake_at_us > at_us THEN at_us + l.delay_us END
    FROM locked AS l WHERE r.tenant = l.tenant AND r.run = l.run;
    SELECT array_agg(r.tenant), array_agg(r.run) INTO kept_tenants, kept_runs
    FROM unnest(p_tenants, p_runs) AS g (tenant, run) JOIN contextos.runs AS r ON r.tenant = g.tenant AND r.run = g.run
    WHERE r.worker = p_worker;
  END IF;
  IF p_held_runs IS NOT NULL THEN
    WITH stray AS (
      SELECT r.tenant, r.run FROM contextos.runs AS r WHERE r.worker = p_worker AND NOT EXISTS (
        SELECT FROM unnest(p_held_tenants, p_held_runs) AS h (tenant, run) WHERE h.tenant = r.tenant AND h.run = r.run)
      FOR UPDATE
    )
    UPDATE contextos.runs AS r SET worker = NULL FROM stray AS s WHERE r.tenant = s.tenant AND r.run = s.run;
  END IF;
  SELECT array_agg(w.worker) INTO lost FROM contextos.workers AS w WHERE w.alive_until_us <= at_us AND w.worker <> p_worker;
  IF lost IS NOT NULL THEN
    WITH orphan AS (
      SELECT r.tenant, r.run FROM contextos.runs AS r WHERE r.worker = ANY (lost) FOR UPDATE SKIP LOCKED
    )
    UPDATE contextos.runs AS r
    SET worker = NULL, claim_at_us = least(coalesce(r.claim_at_us, r.wake_at_us), due_us)
    FROM orphan AS o WHERE r.tenant = o.tenant AND r.run = o.run;
    -- A lease is over by then, whatever its time to live.
    DELETE FROM contextos.workers AS w WHERE w.alive_until_us < at_us - 172800000000
      AND NOT EXISTS (SELECT FROM contextos.runs AS r WHERE r.worker = w.worker);
  END IF;
  IF p_free > 0 AND abs(p_now_us - at_us) <= p_margin_us THEN
    -- One worker counts and takes at a time.
    PERFORM pg_advisory_xact_lock(hashtextextended('contextos claims', 0));
    WITH RECURSIVE first_page AS MATERIALIZED (
      SELECT r.tenant, r.run, coalesce(r.claim_at_us, r.wake_at_us) AS since_us FROM contextos.runs AS r
      WHERE r.worker IS NULL AND r.wake_at_us <> 0 AND coalesce(r.claim_at_us, r.wake_at_us) <= due_us
      ORDER BY coalesce(r.claim_at_us, r.wake_at_us), r.tenant, r.run LIMIT page
    ), turn (tenant, number) AS (
      SELECT p_after COLLATE "C", 0 WHERE (SELECT count(*) FROM first_page) = page
      UNION ALL
      SELECT (SELECT r.tenant FROM contextos.runs AS r WHERE r.worker IS NULL AND r.wake_at_us <> 0 AND r.tenant > turn.tenant
              ORDER BY r.tenant LIMIT 1), turn.number + 1
      FROM turn WHERE turn.tenant IS NOT NULL AND turn.number < 64
    ), candidate AS (
      SELECT * FROM first_page
      UNION
      SELECT found.* FROM turn CROSS JOIN LATERAL (
        SELECT r.tenant, r.run, coalesce(r.claim_at_us, r.wake_at_us) AS since_us FROM contextos.runs AS r
        WHERE r.worker IS NULL AND r.wake_at_us <> 0 AND r.tenant = turn.tenant
          AND coalesce(r.claim_at_us, r.wake_at_us) <= due_us
        ORDER BY coalesce(r.claim_at_us, r.wake_at_us), r.run LIMIT p_free
      ) AS found
    ), busy AS (
      SELECT r.tenant, count(*) AS in_all, count(*) FILTER (WHERE r.worker = p_worker) AS mine
      FROM contextos.runs AS r WHERE r.worker IS NOT NULL GROUP BY r.tenant
    ), ranked AS (
      SELECT c.tenant, c.run, c.since_us, coalesce(b.in_all, 0) AS in_all, coalesce(b.mine, 0) AS mine, (
          SELECT count(*) FROM contextos.drive_rates AS d, unnest(d.started_us) AS s
          WHERE p_rate > 0 AND d.tenant = c.tenant AND s > at_us - p_period_us) AS started,
        row_number() OVER (PARTITION BY c.tenant ORDER BY c.since_us, c.run) AS place
      FROM candidate AS c LEFT JOIN busy AS b ON b.tenant = c.tenant
    ), chosen AS (
      SELECT r.tenant, r.run FROM ranked AS k JOIN contextos.runs AS r ON r.tenant = k.tenant AND r.run = k.run
      WHERE r.worker IS NULL AND k.mine + k.place <= p_per_tenant AND (p_in_all = 0 OR k.in_all + k.place <= p_in_all)
        AND (p_rate = 0 OR k.started + k.place <= p_rate)
      ORDER BY k.in_all + k.place, k.since_us, k.tenant LIMIT p_free FOR UPDATE OF r SKIP LOCKED
    ), taken AS (
      UPDATE contextos.runs AS r SET worker = p_worker, claim_at_us = at_us FROM chosen AS c WHERE r.tenant = c.tenant AND r.run = c.run
      RETURNING r.tenant, r.run
    )
    SELECT coalesce(array_agg(t.tenant), '{}'), coalesce(array_agg(t.run), '{}'),
      coalesce((SELECT last.tenant FROM turn AS last ORDER BY last.number DESC LIMIT 1), '')
    INTO tenants, runs, seen FROM taken AS t;
    is_more := seen <> '' AND cardinality(runs) < p_free;
    IF p_rate > 0 THEN
      INSERT INTO contextos.drive_rates AS d (tenant, started_us)
      SELECT t, array_agg(at_us) FROM unnest(tenants) AS t GROUP BY t
      ON CONFLICT (tenant) DO UPDATE SET started_us = (
        SELECT array_agg(s) FROM unnest(d.started_us || excluded.started_us) AS s WHERE s > at_us - p_period_us);
    END IF;
  END IF;
  SELECT min(coming_us) INTO next_us FROM (
    (SELECT coalesce(r.claim_at_us, r.wake_at_us) AS coming_us FROM contextos.runs AS r
     WHERE r.worker IS NULL AND r.wake_at_us <> 0 AND coalesce(r.claim_at_us, r.wake_at_us) > due_us
     ORDER BY coalesce(r.claim_at_us, r.wake_at_us) LIMIT 1)
    UNION ALL
    SELECT d.started_us[1] + p_period_us FROM contextos.drive_rates AS d
    WHERE p_rate > 0 AND d.started_us[1] > at_us - p_period_us) AS coming;
  RETURN QUERY SELECT at_us, tenants, runs, coalesce(kept_tenants, '{}'), coalesce(kept_runs, '{}'), coalesce(lost, '{}'),
    CASE WHEN is_more THEN 0 ELSE next_us - due_us END, seen;
END $$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA contextos FROM PUBLIC;

GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA contextos TO contextos_app;

-- Appends the control entry of an erasure and stores the segment without the entry that it names, in one transaction.
-- `p_old` is the stored body that the new one was made from; returns false if the segment has changed since. Runs as the
-- owner, because no other role can update segments.
CREATE FUNCTION contextos.erase_entry(
  p_tenant text, p_lock bigint, p_run text, p_seq bigint, p_last bigint, p_old bytea, p_salts bytea, p_body bytea,
  p_erased text, d contextos.draft
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('contextos.tenant', p_tenant, true), pg_advisory_xact_lock(p_lock);
  PERFORM FROM contextos.segments AS s
  WHERE s.tenant = p_tenant AND s.run = p_run AND s.seq = p_last AND s.body = p_old FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF d.run <> 'control' OR d.kind <> 'entry.erased' OR d.key <> p_run || '/' || p_seq
    OR p_erased !~ ('(^| )' || p_seq || ':[0-9a-f]{64} $')
  THEN
    RAISE EXCEPTION 'an erasure is recorded' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  PERFORM contextos.append_line(p_tenant, d);
  UPDATE contextos.segments AS s SET salts = p_salts, body = p_body, erased = p_erased
  WHERE s.tenant = p_tenant AND s.run = p_run AND s.seq = p_last;
  RETURN true;
END $$;

REVOKE EXECUTE ON FUNCTION contextos.erase_entry FROM PUBLIC;

GRANT EXECUTE ON FUNCTION contextos.erase_entry TO contextos_eraser;

GRANT USAGE ON SCHEMA contextos TO contextos_app;

GRANT SELECT ON contextos.schema_version TO contextos_app;

GRANT SELECT, INSERT ON contextos.segments, contextos.journal TO contextos_app;

GRANT SELECT, INSERT ON contextos.heads, contextos.nodes TO contextos_app;

GRANT SELECT, INSERT, UPDATE (version, body) ON contextos.documents TO contextos_app;

GRANT SELECT, INSERT, UPDATE (wake_at_us, number, waiting) ON contextos.runs TO contextos_app;

GRANT SELECT, INSERT, DELETE ON contextos.run_terms TO contextos_app;

GRANT SELECT, INSERT, UPDATE (head) ON contextos.graph_commits TO contextos_app;

GRANT SELECT, INSERT, UPDATE (valid_to, withdrawn_ref) ON contextos.edges TO contextos_app;

-- Artifacts for context slots, and the selections of them.
-- An artifact id is unique within its organisation. The assertions of an artifact state what it is.
CREATE TABLE contextos.extensions (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  extension text COLLATE "C" NOT NULL,
  satisfies text NOT NULL,
  PRIMARY KEY (tenant, extension)
);

CREATE TABLE contextos.artifacts (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  org_id text COLLATE "C" NOT NULL,
  artifact_id text COLLATE "C" NOT NULL,
  type text NOT NULL,
  title text NOT NULL,
  owner_level text NOT NULL CHECK (owner_level IN ('user', 'team', 'organization', 'workspace')),
  owner_id text COLLATE "C" NOT NULL,
  visibility text COLLATE "C" NOT NULL,
  created_by text NOT NULL,
  created_at_us bigint NOT NULL,
  deleted_at_us bigint,
  PRIMARY KEY (tenant, org_id, artifact_id)
);

CREATE TABLE contextos.representations (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  org_id text COLLATE "C" NOT NULL,
  artifact_id text COLLATE "C" NOT NULL,
  revision bigint NOT NULL CHECK (revision > 0),
  revision_id text COLLATE "C" NOT NULL,
  mime text NOT NULL,
  content text NOT NULL,
  digest text NOT NULL,
  created_by text NOT NULL,
  created_at_us bigint NOT NULL,
  PRIMARY KEY (tenant, org_id, artifact_id, revision),
  UNIQUE (tenant, org_id, artifact_id, revision_id),
  FOREIGN KEY (tenant, org_id, artifact_id) REFERENCES contextos.artifacts
);

CREATE TABLE contextos.semantic_assertions (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  org_id text COLLATE "C" NOT NULL,
  artifact_id text COLLATE "C" NOT NULL,
  extension text COLLATE "C" NOT NULL,
  assertion_id text COLLATE "C" NOT NULL,
  asserted_by text NOT NULL CHECK (asserted_by IN ('user', 'authoring_skill', 'agent', 'matcher')),
  principal_id text NOT NULL,
  confidence double precision NOT NULL,
  visibility text COLLATE "C" NOT NULL,
  source_scope text NOT NULL,
  own_user text COLLATE "C" NOT NULL,
  eligibility text NOT NULL CHECK (eligibility IN ('eligible', 'draft', 'archived')),
  asserted_at_us bigint NOT NULL,
  archived_at_us bigint,
  PRIMARY KEY (tenant, org_id, artifact_id, extension, assertion_id),
  FOREIGN KEY (tenant, org_id, artifact_id) REFERENCES contextos.artifacts,
  FOREIGN KEY (tenant, extension) REFERENCES contextos.extensions,
  CHECK ((eligibility = 'archived') = (archived_at_us IS NOT NULL)),
  CHECK (eligibility = 'archived' OR (asserted_by = 'matcher') = (eligibility = 'draft'))
);

CREATE UNIQUE INDEX assertions_active ON contextos.semantic_assertions (tenant, org_id, artifact_id, extension)
WHERE eligibility <> 'archived';

-- Visibility, scope and owner are copied from the artifact, so that one index serves a slot's query in order.
CREATE INDEX assertions_seen ON contextos.semantic_assertions
  (tenant, org_id, extension, visibility, source_scope, artifact_id) WHERE eligibility = 'eligible';

CREATE INDEX assertions_owned ON contextos.semantic_assertions
  (tenant, org_id, extension, own_user, source_scope, artifact_id) WHERE eligibility = 'eligible';

-- Selections: one header row each, even if nothing was picked, and one row for each ref.
CREATE TABLE contextos.context_selection_acts (
  ordinal bigint GENERATED ALWAYS AS IDENTITY CHECK (ordinal > 0),
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  org_id text COLLATE "C" NOT NULL,
  selection_id text COLLATE "C" NOT NULL,
  parent_run_id text COLLATE "C" NOT NULL,
  parent_package_name text NOT NULL,
  act_key text NOT NULL,
  slot_id text NOT NULL,
  resolution_mode text NOT NULL CHECK (resolution_mode IN ('override', 'accumulate')),
  selection_mode text NOT NULL CHECK (selection_mode IN ('interactive', 'autonomous')),
  selected_by text NOT NULL CHECK (selected_by IN ('user', 'agent', 'autonomous')),
  principal_id text NOT NULL,
  picked bigint NOT NULL CHECK (picked >= 0),
  fingerprint text NOT NULL,
  selected_at_us bigint NOT NULL,
  PRIMARY KEY (tenant, org_id, selection_id)
);

CREATE INDEX acts_of_run ON contextos.context_selection_acts (tenant, parent_run_id, ordinal);

CREATE TABLE contextos.run_context_selections (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  org_id text COLLATE "C" NOT NULL,
  selection_id text COLLATE "C" NOT NULL,
  position bigint NOT NULL CHECK (position >= 0),
  parent_run_id text COLLATE "C" NOT NULL,
  parent_package_name text NOT NULL,
  slot_id text NOT NULL,
  artifact_id text COLLATE "C" NOT NULL,
  representation_revision_id text COLLATE "C" NOT NULL,
  semantic_assertion_id text COLLATE "C" NOT NULL,
  extension text COLLATE "C" NOT NULL,
  source_scope text NOT NULL CHECK (source_scope IN ('project', 'user', 'team', 'organization', 'workspace')),
  owner_id text COLLATE "C" NOT NULL,
  selected_by text NOT NULL CHECK (selected_by IN ('user', 'agent', 'autonomous')),
  selection_mode text NOT NULL CHECK (selection_mode IN ('interactive', 'autonomous')),
  selected_at_us bigint NOT NULL,
  PRIMARY KEY (tenant, org_id, selection_id, position),
  FOREIGN KEY (tenant, org_id, selection_id) REFERENCES contextos.context_selection_acts (tenant, org_id, selection_id),
  FOREIGN KEY (tenant, org_id, artifact_id, representation_revision_id)
    REFERENCES contextos.representations (tenant, org_id, artifact_id, revision_id),
  FOREIGN KEY (tenant, org_id, artifact_id, extension, semantic_assertion_id) REFERENCES contextos.semantic_assertions
);

DO $$
DECLARE
  name text;
  mine constant text := 'tenant = nullif(current_setting(''contextos.tenant'', true), '''')';
BEGIN
  FOREACH name IN ARRAY ARRAY['extensions', 'artifacts', 'representations', 'semantic_assertions',
                              'context_selection_acts', 'run_context_selections'] LOOP
    EXECUTE format('ALTER TABLE contextos.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE contextos.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY tenant ON contextos.%I USING (%s) WITH CHECK (%s)', name, mine, mine);
  END LOOP;
  FOREACH name IN ARRAY ARRAY['artifacts', 'representations', 'semantic_assertions', 'context_selection_acts',
                              'run_context_selections'] LOOP
    EXECUTE format('CREATE TRIGGER keeps BEFORE DELETE OR TRUNCATE ON contextos.%I'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION contextos.append_only()', name);
  END LOOP;
  FOREACH name IN ARRAY ARRAY['representations', 'context_selection_acts', 'run_context_selections'] LOOP
    EXECUTE format('CREATE TRIGGER stands BEFORE UPDATE ON contextos.%I'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION contextos.append_only()', name);
  END LOOP;
END $$;

-- The only allowed update of an artifact marks it as deleted, once.
CREATE FUNCTION contextos.artifact_ends_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.deleted_at_us IS NOT NULL OR NEW.deleted_at_us IS NULL
    OR (NEW.tenant, NEW.org_id, NEW.artifact_id, NEW.type, NEW.title, NEW.owner_level, NEW.owner_id, NEW.visibility,
        NEW.created_by, NEW.created_at_us)
    IS DISTINCT FROM
    (OLD.tenant, OLD.org_id, OLD.artifact_id, OLD.type, OLD.title, OLD.owner_level, OLD.owner_id, OLD.visibility,
     OLD.created_by, OLD.created_at_us)
  THEN
    RAISE EXCEPTION 'artifacts is append-only' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER ends_only BEFORE UPDATE ON contextos.artifacts
FOR EACH ROW EXECUTE FUNCTION contextos.artifact_ends_only();

-- The only allowed update of an assertion archives it, once. A draft never becomes eligible.
CREATE FUNCTION contextos.assertion_ends_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.eligibility = 'archived' OR NEW.eligibility <> 'archived'
    OR (NEW.tenant, NEW.org_id, NEW.artifact_id, NEW.extension, NEW.assertion_id, NEW.asserted_by, NEW.principal_id,
        NEW.confidence, NEW.asserted_at_us, NEW.visibility, NEW.source_scope, NEW.own_user)
    IS DISTINCT FROM
    (OLD.tenant, OLD.org_id, OLD.artifact_id, OLD.extension, OLD.assertion_id, OLD.asserted_by, OLD.principal_id,
     OLD.confidence, OLD.asserted_at_us, OLD.visibility, OLD.source_scope, OLD.own_user)
  THEN
    RAISE EXCEPTION 'semantic_assertions is append-only' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER ends_only BEFORE UPDATE ON contextos.semantic_assertions
FOR EACH ROW EXECUTE FUNCTION contextos.assertion_ends_only();

-- Refuses a ref that is not coherent at this moment, for every writer. Waits for a concurrent archiving, as the writer does.
CREATE FUNCTION contextos.coherent_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM contextos.artifacts AS a, contextos.representations AS r, contextos.semantic_assertions AS s
  WHERE a.tenant = NEW.tenant AND a.org_id = NEW.org_id AND a.artifact_id = NEW.artifact_id
    AND a.type = 'artifact' AND a.deleted_at_us IS NULL AND a.owner_id = NEW.owner_id
    AND NEW.source_scope = CASE WHEN a.visibility LIKE 'project:%' THEN 'project'
      WHEN a.visibility LIKE 'team:%' THEN 'team' WHEN a.visibility = 'org' THEN 'organization'
      WHEN a.visibility = 'workspace' THEN 'workspace' ELSE a.owner_level END
    AND r.tenant = NEW.tenant AND r.org_id = NEW.org_id AND r.artifact_id = NEW.artifact_id
    AND r.revision_id = NEW.representation_revision_id
    AND s.tenant = NEW.tenant AND s.org_id = NEW.org_id AND s.artifact_id = NEW.artifact_id
    AND s.extension = NEW.extension AND s.assertion_id = NEW.semantic_assertion_id AND s.eligibility = 'eligible'
  FOR SHARE OF a, s;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'a ref that is not coherent cannot be recorded' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

-- The audit of a governed run takes only an act that is in the journal of this run.
CREATE FUNCTION contextos.act_of_run_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.parent_run_id ~ '^run_[0-9a-f]{16}$' AND NOT EXISTS (
    SELECT FROM (SELECT said::jsonb #> '{answer,act}' AS act FROM contextos.segments AS s,
                   convert_from(s.body, 'UTF8') AS plain, split_part(plain, E'\n', 1) AS line,
                   substr(plain, length(line) + 2) AS said
                 WHERE s.tenant = NEW.tenant AND s.run = NEW.parent_run_id AND s.entries = 1 AND s.dictionary = ''
                   AND s.erased = '' AND line::jsonb #>> '{0,0}' = 'slot.selected'
                   AND line::jsonb #>> '{0,1}' = NEW.act_key) AS made
    WHERE act ->> 'selection_id' = NEW.selection_id AND act #>> '{origin,org_id}' = NEW.org_id
      AND act #>> '{origin,parent_run_id}' = NEW.parent_run_id
      AND act #>> '{origin,parent_package_name}' = NEW.parent_package_name
      AND act #>> '{origin,principal_id}' = NEW.principal_id AND act #>> '{origin,act_key}' = NEW.act_key
      AND act ->> 'slot_id' = NEW.slot_id AND act ->> 'resolution_mode' = NEW.resolution_mode
      AND act ->> 'selection_mode' = NEW.selection_mode AND act ->> 'selected_by' = NEW.selected_by
      AND act ->> 'selected_at_us' = NEW.selected_at_us::text AND jsonb_array_length(act -> 'refs') = NEW.picked)
  THEN
    RAISE EXCEPTION 'the journal of the run does not hold this act' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER of_run_only BEFORE INSERT ON contextos.context_selection_acts FOR EACH ROW
EXECUTE FUNCTION contextos.act_of_run_only();

-- A ref is one of its act: of the header row, and in a governed run also of the journal.
CREATE FUNCTION contextos.ref_of_act_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM contextos.context_selection_acts AS h
    WHERE h.tenant = NEW.tenant AND h.org_id = NEW.org_id AND h.selection_id = NEW.selection_id
      AND NEW.position < h.picked AND h.parent_run_id = NEW.parent_run_id
      AND h.parent_package_name = NEW.parent_package_name AND h.slot_id = NEW.slot_id
      AND h.selected_by = NEW.selected_by AND h.selection_mode = NEW.selection_mode
      AND h.selected_at_us = NEW.selected_at_us)
    OR NEW.parent_run_id ~ '^run_[0-9a-f]{16}$' AND NOT EXISTS (
    SELECT FROM (SELECT made.act, made.act -> 'refs' -> NEW.position::integer AS ref
                 FROM (SELECT said::jsonb #> '{answer,act}' AS act FROM contextos.segments AS s,
                         convert_from(s.body, 'UTF8') AS plain, split_part(plain, E'\n', 1) AS line,
                         substr(plain, length(line) + 2) AS said
                       WHERE s.tenant = NEW.tenant AND s.run = NEW.parent_run_id AND s.entries = 1
                         AND s.dictionary = '' AND s.erased = ''
                         AND line::jsonb #>> '{0,0}' = 'slot.selected') AS made
                ) AS picked
    WHERE act ->> 'selection_id' = NEW.selection_id AND ref ->> 'artifactId' = NEW.artifact_id
      AND ref ->> 'representationRevisionId' = NEW.representation_revision_id
      AND ref ->> 'semanticAssertionId' = NEW.semantic_assertion_id AND ref ->> 'extension' = NEW.extension
      AND ref ->> 'sourceScope' = NEW.source_scope AND ref ->> 'ownerId' = NEW.owner_id)
  THEN
    RAISE EXCEPTION 'a ref that contradicts its act cannot be recorded' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER of_act_only BEFORE INSERT ON contextos.run_context_selections FOR EACH ROW
EXECUTE FUNCTION contextos.ref_of_act_only();

REVOKE EXECUTE ON FUNCTION contextos.coherent_only, contextos.artifact_ends_only, contextos.assertion_ends_only,
  contextos.act_of_run_only, contextos.ref_of_act_only
FROM PUBLIC;

CREATE TRIGGER coherent_only BEFORE INSERT ON contextos.run_context_selections FOR EACH ROW
EXECUTE FUNCTION contextos.coherent_only();

GRANT SELECT, INSERT, UPDATE (satisfies) ON contextos.extensions TO contextos_app;

GRANT SELECT, INSERT, UPDATE (deleted_at_us) ON contextos.artifacts TO contextos_app;

GRANT SELECT, INSERT, UPDATE (eligibility, archived_at_us) ON contextos.semantic_assertions TO contextos_app;

GRANT SELECT, INSERT ON contextos.representations, contextos.context_selection_acts, contextos.run_context_selections
TO contextos_app;
