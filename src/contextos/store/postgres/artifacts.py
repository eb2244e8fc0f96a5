"""`PostgresArtifacts`: the ports `Artifacts` and `Curation` in the database of `PostgresStores`.

The candidates of a slot are one query. The statement that inserts a selection also checks it: it locks the artifacts
and assertions that it pins, so a concurrent archiving happens entirely before or entirely after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from contextos.contracts.envelopes.artifacts import (
    Artifact,
    ArtifactRef,
    Assertion,
    ExtensionManifest,
    NewAssertion,
    NewRevision,
    Outranked,
    PinnedContent,
    Revision,
    StoredLibrary,
)
from contextos.contracts.envelopes.slots import Candidate, CandidateQuery, SelectionAct
from contextos.contracts.journal import Draft
from contextos.errors import Conflict
from contextos.store.postgres.commit_calls import control_line
from contextos.store.postgres.connections import Connection, Connections, named_tenant
from contextos.store.shared import artifact_rows as rows
from contextos.store.shared.artifact_rules import (
    ARTIFACT_TYPE,
    assertion_of,
    audience,
    gives_way,
    id_taken,
    incoherent_selection,
    is_governed,
    no_artifact,
    no_assertion,
    no_pin,
    not_installed,
    own_scopes,
    queried_organisation,
    refuse_repeated,
    refuse_unmade,
    refuse_unseen,
    revision_of,
    selection_fingerprint,
)
from contextos.store.shared.segments import selected_bodies

_REGISTER: Final = (
    "INSERT INTO contextos.extensions (tenant, extension, satisfies) VALUES ($1, $2, $3)"
    " ON CONFLICT (tenant, extension) DO UPDATE SET satisfies = excluded.satisfies"
)
_EXTENSIONS: Final = "SELECT extension, satisfies FROM contextos.extensions WHERE tenant = $1 ORDER BY extension"
_INSTALLED: Final = "SELECT true FROM contextos.extensions WHERE tenant = $1 AND extension = $2"
_WHERE_ARTIFACT: Final = "WHERE tenant = $1 AND org_id = $2 AND artifact_id = $3"
_LIVE: Final = f"SELECT true FROM contextos.artifacts {_WHERE_ARTIFACT} AND deleted_at_us IS NULL"  # noqa: S608
# Serializes the numbering of an artifact's revisions and assertions.
_LOCK_NUMBERING: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_ADD: Final = rows.insert("contextos.artifacts", rows.ARTIFACT_COLUMNS, "${}") + " ON CONFLICT DO NOTHING"
_TOMBSTONE: Final = f"UPDATE contextos.artifacts SET deleted_at_us = $4 {_WHERE_ARTIFACT}"  # noqa: S608
_NEWEST_REVISION: Final = f"SELECT coalesce(max(revision), 0) FROM contextos.representations {_WHERE_ARTIFACT}"  # noqa: S608
_REVISE: Final = rows.insert("contextos.representations", rows.REVISION_COLUMNS, "${}")
_ASSERTIONS: Final = f"FROM contextos.semantic_assertions {_WHERE_ARTIFACT} AND extension = $4"
_ACTIVE: Final = f"SELECT {', '.join(rows.ASSERTION_COLUMNS[1:])} {_ASSERTIONS} AND eligibility <> 'archived'"
_COUNT: Final = f"SELECT count(*) {_ASSERTIONS}"
_ASSERT: Final = rows.insert_assertion("contextos.", "${}")
_ARCHIVE_ALL: Final = (
    "UPDATE contextos.semantic_assertions SET eligibility = 'archived', archived_at_us = $4"  # noqa: S608
    f" {_WHERE_ARTIFACT} AND eligibility <> 'archived'"
)
_ARCHIVE: Final = f"{_ARCHIVE_ALL} AND extension = $5"
# A generic plan does not know how few rows match these values, and is several times slower.
_CUSTOM_PLAN: Final = "SELECT set_config('plan_cache_mode', 'force_custom_plan', true)"
_VISIBLE_ROWS: Final = f"""
  SELECT s.artifact_id, r.revision_id, s.assertion_id, s.extension, s.source_scope, a.owner_id, a.title
  FROM contextos.semantic_assertions AS s
  CROSS JOIN LATERAL (
    SELECT title, owner_id FROM contextos.artifacts AS a WHERE a.tenant = $1 AND a.org_id = $2
      AND a.artifact_id = s.artifact_id AND a.type = $3 AND a.deleted_at_us IS NULL AND {rows.COPIED_COLUMNS} LIMIT 1
  ) AS a
  CROSS JOIN LATERAL (
    SELECT revision_id FROM contextos.representations
    WHERE tenant = $1 AND org_id = $2 AND artifact_id = s.artifact_id ORDER BY revision DESC LIMIT 1
  ) AS r
  WHERE s.tenant = $1 AND s.org_id = $2 AND s.extension = accepted.extension AND s.eligibility = 'eligible'
    AND s.source_scope = seen.source_scope AND s.{{by}}
  ORDER BY s.artifact_id LIMIT $9
"""  # noqa: S608
# The candidate query: visible artifacts, their assertions, their latest revision. Artifact and revision are looked up
# for one assertion at a time in a subquery with a LIMIT, which the planner cannot turn into a join of whole tables. So
# each visibility is read only up to the slot's limit, however few rows the planner expects.
_CANDIDATES: Final = f"""
WITH accepted AS (SELECT * FROM unnest($4::text[]) AS each (extension)), visible_objects AS (
  SELECT found.* FROM accepted CROSS JOIN unnest($5::text[], $6::text[]) AS seen (visibility, source_scope)
  CROSS JOIN LATERAL ({_VISIBLE_ROWS.format(by="visibility = seen.visibility")}) AS found
  UNION
  SELECT found.* FROM accepted CROSS JOIN unnest($8::text[]) AS seen (source_scope)
  CROSS JOIN LATERAL ({_VISIBLE_ROWS.format(by="own_user = $7")}) AS found
)
SELECT * FROM visible_objects
ORDER BY {rows.WEIGHT.format("source_scope")}, artifact_id, assertion_id, revision_id LIMIT $9
"""  # noqa: S608
_LOCK_CONTROL: Final = "SELECT pg_advisory_xact_lock($1)"
_APPEND_LINE: Final = "SELECT contextos.append_line($1, $2)"
_RECORDED: Final = (
    "SELECT fingerprint FROM contextos.context_selection_acts WHERE tenant = $1 AND org_id = $2 AND selection_id = $3"
)
_HEAD: Final = (
    rows.insert("contextos.context_selection_acts", rows.SELECTION_COLUMNS, "${}", first=10) + " ON CONFLICT DO NOTHING"
)
_PICKS: Final = (
    "unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) WITH ORDINALITY"
    " AS p (artifact_id, revision_id, assertion_id, extension, source_scope, owner_id, position)"
)
# A pick that is not coherent joins no row. If fewer rows are inserted than were picked, the selection is rolled back
# with a reason for each bad pick; the trigger alone would refuse the first one and give no reason.
_INSERT: Final = f"""
WITH head AS ({_HEAD} RETURNING *), landed AS (
  INSERT INTO contextos.run_context_selections
  SELECT $1, $2, h.selection_id, p.position - 1, h.parent_run_id, h.parent_package_name, h.slot_id,
    p.artifact_id, p.revision_id, p.assertion_id, p.extension, p.source_scope, p.owner_id,
    h.selected_by, h.selection_mode, h.selected_at_us
  FROM {_PICKS}
  JOIN contextos.artifacts AS a ON a.tenant = $1 AND a.org_id = $2 AND a.artifact_id = p.artifact_id
    AND a.type = $9 AND a.deleted_at_us IS NULL AND a.owner_id = p.owner_id
    AND p.source_scope = {rows.SCOPE.format("a")}
  JOIN contextos.representations AS r ON r.tenant = $1 AND r.org_id = $2 AND r.artifact_id = p.artifact_id
    AND r.revision_id = p.revision_id
  JOIN contextos.semantic_assertions AS s ON s.tenant = $1 AND s.org_id = $2 AND s.artifact_id = p.artifact_id
    AND s.extension = p.extension AND s.assertion_id = p.assertion_id AND s.eligibility = 'eligible'
  CROSS JOIN head AS h
  ORDER BY p.artifact_id, p.assertion_id FOR SHARE OF a, s
  RETURNING position
)
SELECT (SELECT count(*) FROM head), (SELECT count(*) FROM landed)
"""  # noqa: S608
_FAULTS: Final = f"""
SELECT p.position - 1, {rows.FAULT} FROM {_PICKS}
LEFT JOIN contextos.artifacts AS a ON a.tenant = $1 AND a.org_id = $2 AND a.artifact_id = p.artifact_id
  AND a.type = $9 AND a.deleted_at_us IS NULL
LEFT JOIN contextos.representations AS r ON r.tenant = $1 AND r.org_id = $2 AND r.artifact_id = p.artifact_id
  AND r.revision_id = p.revision_id
LEFT JOIN contextos.semantic_assertions AS s ON s.tenant = $1 AND s.org_id = $2 AND s.artifact_id = p.artifact_id
  AND s.extension = p.extension AND s.assertion_id = p.assertion_id
ORDER BY p.position
"""  # noqa: S608
_ACTS: Final = (
    f"SELECT {', '.join(rows.SELECTION_COLUMNS[1:])} FROM contextos.context_selection_acts"  # noqa: S608
    " WHERE tenant = $1 AND parent_run_id = $2 AND org_id = coalesce($3, org_id) ORDER BY ordinal"
)
_SELECTED_RUNS: Final = (
    "SELECT DISTINCT parent_run_id FROM contextos.context_selection_acts"
    " WHERE tenant = $1 AND parent_run_id > $2 ORDER BY parent_run_id LIMIT $3"
)
_SELECTED_BODIES: Final = (
    "SELECT body FROM contextos.segments WHERE tenant = $1 AND run = $2 AND entries = 1 AND dictionary = ''"
    " ORDER BY seq"
)
_REFS: Final = (
    f"SELECT org_id, selection_id, {', '.join((*rows.REF_COLUMNS, *rows.ACT_COPIES))}"  # noqa: S608
    " FROM contextos.run_context_selections"
    " WHERE tenant = $1 AND (org_id, selection_id) IN (SELECT * FROM unnest($2::text[], $3::text[]))"
    " ORDER BY org_id, selection_id, position"
)
_PINS: Final = """
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[]) WITH ORDINALITY
  AS p (artifact_id, revision_id, assertion_id, extension, position)
LEFT JOIN contextos.semantic_assertions AS s ON s.tenant = $1 AND s.org_id = $2 AND s.artifact_id = p.artifact_id
  AND s.extension = p.extension AND s.assertion_id = p.assertion_id
LEFT JOIN contextos.artifacts AS a ON a.tenant = $1 AND a.org_id = $2 AND a.artifact_id = s.artifact_id
LEFT JOIN contextos.representations AS r ON r.tenant = $1 AND r.org_id = $2 AND r.artifact_id = a.artifact_id
  AND r.revision_id = p.revision_id
ORDER BY p.position
"""
_PIN_CONTENTS: Final = f"SELECT a.title, {', '.join(f'r.{name}' for name in rows.REVISION_COLUMNS[1:])} {_PINS}"
_PIN_SIZES: Final = f"SELECT octet_length(r.content) AS size {_PINS}"


class PostgresArtifacts:
    """One tenant's artifacts (texts that context slots select) and selections. Made by `PostgresStores.artifacts`."""

    def __init__(self, tenant_id: str, connections: Callable[[], Connections], record: Draft | None = None) -> None:
        self._tenant, self._connections, self._record = named_tenant(tenant_id), connections, record

    def under(self, record: Draft) -> PostgresArtifacts:
        return PostgresArtifacts(self._tenant, self._connections, record)

    async def _append_act(self, connection: Connection) -> None:
        """Append the control entry of the operator's act that this change carries out, if there is such an act."""
        if self._record is not None:
            lock, line = control_line(self._tenant, self._record)
            await connection.execute(_LOCK_CONTROL, lock)
            await connection.execute(_APPEND_LINE, self._tenant, line)

    async def register(self, manifest: ExtensionManifest) -> None:
        satisfies = orjson.dumps(manifest.satisfies).decode()
        async with self._connections().transaction(self._tenant) as connection:
            await connection.execute(_REGISTER, self._tenant, manifest.extension, satisfies)
            await self._append_act(connection)

    async def extensions(self) -> Sequence[ExtensionManifest]:
        async with self._connections().transaction(self._tenant) as connection:
            records = await connection.fetch(_EXTENSIONS, self._tenant)
        return [rows.manifest(name, satisfies) for name, satisfies in records]

    async def add(self, artifact: Artifact) -> None:
        refuse_unseen(artifact)
        async with self._connections().transaction(self._tenant) as connection:
            if await connection.execute(_ADD, self._tenant, *rows.of_artifact(artifact)) != "INSERT 0 1":
                raise id_taken(artifact)
            await self._append_act(connection)

    async def revise(self, new: NewRevision) -> Revision:
        key = (self._tenant, new.org_id, new.artifact_id)
        async with self._connections().transaction(self._tenant) as connection:
            await _lock_numbering(connection, *key)
            revision = revision_of(self._tenant, new, await connection.fetchval(_NEWEST_REVISION, *key) + 1)
            await connection.execute(_REVISE, self._tenant, *rows.fields(revision, rows.REVISION_COLUMNS[1:]))
            await self._append_act(connection)
        return revision

    async def classify(self, new: NewAssertion) -> Assertion | Outranked:
        key = (self._tenant, new.org_id, new.artifact_id)
        async with self._connections().transaction(self._tenant) as connection:
            await _lock_numbering(connection, *key)
            if not await connection.fetchval(_INSTALLED, self._tenant, new.extension):
                raise not_installed(new.extension)
            row = await connection.fetchrow(_ACTIVE, *key, new.extension)
            if row is not None:
                active = rows.assertion(row)
                if not gives_way(active, new):
                    return Outranked(by=active)
                await connection.execute(_ARCHIVE, *key, new.asserted_at_us, new.extension)
            assertion = assertion_of(self._tenant, new, await connection.fetchval(_COUNT, *key, new.extension) + 1)
            await connection.execute(_ASSERT, self._tenant, *rows.fields(assertion, rows.ASSERTION_COLUMNS[1:]))
            await self._append_act(connection)
        return assertion

    async def archive(self, org_id: str, artifact_id: str, extension: str, at_us: int) -> None:
        async with self._connections().transaction(self._tenant) as connection:
            await _lock_numbering(connection, self._tenant, org_id, artifact_id)
            status = await connection.execute(_ARCHIVE, self._tenant, org_id, artifact_id, at_us, extension)
            if status != "UPDATE 1":
                raise no_assertion(extension)
            await self._append_act(connection)

    async def tombstone(self, org_id: str, artifact_id: str, at_us: int) -> None:
        key = (self._tenant, org_id, artifact_id)
        async with self._connections().transaction(self._tenant) as connection:
            await _lock_numbering(connection, *key)
            for statement in (_TOMBSTONE, _ARCHIVE_ALL):
                await connection.execute(statement, *key, at_us)
            await self._append_act(connection)

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        org_id, pairs = queried_organisation(query), audience(query)
        async with self._connections().transaction(self._tenant) as connection:
            await connection.execute(_CUSTOM_PLAN)
            records = await connection.fetch(
                _CANDIDATES,
                self._tenant,
                org_id,
                ARTIFACT_TYPE,
                list(query.extensions),
                [visibility for visibility, _ in pairs],
                [scope for _, scope in pairs],
                query.actor.principal_id,
                list(own_scopes(query)),
                query.limit,
            )
        return [rows.candidate(tuple(row)) for row in records]

    async def insert_selection(self, act: SelectionAct) -> bool:
        org_id, count = act.origin.org_id, len(act.refs)
        columns = zip(*(rows.fields(ref, rows.REF_COLUMNS) for ref in act.refs), strict=True)
        picks = [list(column) for column in columns] or [[] for _ in rows.REF_COLUMNS]
        parameters = (self._tenant, org_id, *picks, ARTIFACT_TYPE)
        async with self._connections().transaction(self._tenant) as connection:
            if is_governed(act.origin.parent_run_id):
                plain = await connection.fetch(_SELECTED_BODIES, self._tenant, act.origin.parent_run_id)
                refuse_unmade(act, selected_bodies([body for (body,) in plain], act.origin.act_key))
            # Waits for a concurrent insert of the same selection, and then finds its row.
            head, inserted = await connection.fetchrow(
                _INSERT, *parameters, self._tenant, *rows.of_act(act, selection_fingerprint(act))
            )
            if not head:
                refuse_repeated(act, await connection.fetchval(_RECORDED, self._tenant, org_id, act.selection_id))
                return False
            if inserted != count:
                records = await connection.fetch(_FAULTS, *parameters)
                faults = [(position, fault) for position, fault in records if fault is not None]
                # Without a fault, the refs have become coherent since the insert.
                raise incoherent_selection(faults) if faults else Conflict(f"selections/{act.selection_id}")
        return True

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        async with self._connections().transaction(self._tenant) as connection:
            return await postgres_selections(connection, self._tenant, run_id, org_id)

    async def stored(self) -> StoredLibrary:
        async with self._connections().transaction(self._tenant) as connection:
            tables = [await connection.fetch(query, self._tenant) for query in rows.library_queries("contextos.", "$1")]
        return rows.library(self._tenant, await self.extensions(), *tables)

    async def pinned_sizes(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[int]:
        return [row["size"] for row in await self._fetch_pins(_PIN_SIZES, org_id, refs)]

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        return rows.pinned(refs, await self._fetch_pins(_PIN_CONTENTS, org_id, refs))

    async def _fetch_pins(self, statement: str, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[Any]:
        """Return one row for each ref. The last column of a ref without its revision is NULL."""
        keys = [[ref.triple[index] for ref in refs] for index in range(3)]
        async with self._connections().transaction(self._tenant) as connection:
            records: list[Any] = await connection.fetch(
                statement, self._tenant, org_id, *keys, [ref.extension for ref in refs]
            )
        for ref, row in zip(refs, records, strict=True):
            if row[-1] is None:
                raise no_pin(ref)
        return records


async def postgres_selections(
    connection: Connection, tenant: str, run_id: str, org_id: str | None = None
) -> list[SelectionAct]:
    """Return the selections of a run in the audit, of one organisation or of all. Raises `Integrity` for altered
    rows.
    """
    heads = await connection.fetch(_ACTS, tenant, run_id, org_id)
    keys = [(head["org_id"], head["selection_id"]) for head in heads]
    refs: dict[tuple[str, str], list[Any]] = {key: [] for key in keys}
    for org, selection_id, *ref in await connection.fetch(_REFS, tenant, *zip(*keys, strict=True)) if keys else ():
        refs[org, selection_id].append(ref)
    return [rows.selection_act(tuple(head), refs[key]) for head, key in zip(heads, keys, strict=True)]


async def postgres_selected_runs(connection: Connection, tenant: str, after: str, limit: int) -> list[str]:
    """Return the runs and standalone flows with a selection in the audit, in order, which follow `after`."""
    return [run for (run,) in await connection.fetch(_SELECTED_RUNS, tenant, after, limit)]


async def _lock_numbering(connection: Connection, tenant_id: str, org_id: str, artifact_id: str) -> None:
    """Lock the numbering of this artifact's rows until the commit. Raises `NotFound` if the artifact is not live."""
    await connection.execute(_LOCK_NUMBERING, f"artifact {tenant_id} {org_id} {artifact_id}")
    if not await connection.fetchval(_LIVE, tenant_id, org_id, artifact_id):
        raise no_artifact(org_id, artifact_id)
