-- Schema 0002: artifacts for context slots, and the selections of them. A statement ends at a `;` that is followed by an
-- empty line.
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
