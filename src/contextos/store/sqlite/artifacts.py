"""`SqliteArtifacts`: the ports `Artifacts` and `Curation` in the file of `SqliteStores`.

A slot's candidates are read scope by scope, up to the limit of the slot. A selection is checked by the statement that
inserts it, under the write lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
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
from contextos.contracts.envelopes.slots import SCOPES, Candidate, CandidateQuery, SelectionAct
from contextos.contracts.journal import CONTROL, Draft
from contextos.errors import InvalidInput, Problem
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
from contextos.store.sqlite.database import Readers
from contextos.store.sqlite.writer import Writer, WriterTask

AppendShared = Callable[[sqlite3.Connection, str, str, Draft], int]
"""(connection, tenant, stream, draft) -> sequence: appends a line to a shared stream."""

_REGISTER: Final = (
    "INSERT INTO extensions (tenant, extension, satisfies) VALUES (?, ?, ?)"
    " ON CONFLICT (tenant, extension) DO UPDATE SET satisfies = excluded.satisfies"
)
_EXTENSIONS: Final = "SELECT extension, satisfies FROM extensions WHERE tenant = ? ORDER BY extension"
_LIBRARY: Final = rows.library_queries("", "?")
_INSTALLED: Final = "SELECT 1 FROM extensions WHERE tenant = ? AND extension = ?"
_EXISTS: Final = "SELECT 1 FROM artifacts WHERE tenant = ? AND org_id = ? AND artifact_id = ?"
_LIVE: Final = f"{_EXISTS} AND deleted_at_us IS NULL"
_ADD: Final = rows.insert("artifacts", rows.ARTIFACT_COLUMNS, "?")
_TOMBSTONE: Final = "UPDATE artifacts SET deleted_at_us = ? WHERE tenant = ? AND org_id = ? AND artifact_id = ?"
_NEWEST_REVISION: Final = (
    "SELECT coalesce(max(revision), 0) FROM representations WHERE tenant = ? AND org_id = ? AND artifact_id = ?"
)
_REVISE: Final = rows.insert("representations", rows.REVISION_COLUMNS, "?")
_ASSERTIONS: Final = "FROM semantic_assertions WHERE tenant = ? AND org_id = ? AND artifact_id = ? AND extension = ?"
_ACTIVE: Final = f"SELECT {', '.join(rows.ASSERTION_COLUMNS[1:])} {_ASSERTIONS} AND eligibility <> 'archived'"
_COUNT: Final = f"SELECT count(*) {_ASSERTIONS}"
_ASSERT: Final = rows.insert_assertion("", "?{}")
_ARCHIVE_ALL: Final = (
    "UPDATE semantic_assertions SET eligibility = 'archived', archived_at_us = ?"
    " WHERE tenant = ? AND org_id = ? AND artifact_id = ? AND eligibility <> 'archived'"
)
_ARCHIVE: Final = f"{_ARCHIVE_ALL} AND extension = ?"
# The candidate query for one extension and one visibility (or owner), in order. It reads up to the slot's limit.
_CANDIDATES: Final = {
    index: f"""
SELECT a.artifact_id, r.revision_id, s.assertion_id, s.extension, s.source_scope, a.owner_id, a.title
FROM semantic_assertions AS s INDEXED BY {index}
CROSS JOIN artifacts AS a ON a.tenant = ?1 AND a.org_id = ?2 AND a.artifact_id = s.artifact_id
  AND a.type = ?3 AND a.deleted_at_us IS NULL AND {rows.COPIED_COLUMNS}
CROSS JOIN representations AS r ON r.tenant = ?1 AND r.org_id = ?2 AND r.artifact_id = s.artifact_id
  AND r.revision = (SELECT max(revision) FROM representations
                    WHERE tenant = ?1 AND org_id = ?2 AND artifact_id = s.artifact_id)
WHERE s.tenant = ?1 AND s.org_id = ?2 AND s.extension = ?4 AND s.{column} = ?5 AND s.source_scope = ?6
  AND s.eligibility = 'eligible'
ORDER BY s.artifact_id LIMIT ?7
"""  # noqa: S608
    for index, column in (("assertions_seen", "visibility"), ("assertions_owned", "own_user"))
}
_RECORDED: Final = "SELECT fingerprint FROM context_selection_acts WHERE tenant = ? AND org_id = ? AND selection_id = ?"
_HEAD: Final = rows.insert("context_selection_acts", rows.SELECTION_COLUMNS, "?")
_PICKS: Final = (
    "SELECT key AS position, value ->> 0 AS artifact_id, value ->> 1 AS revision_id, value ->> 2 AS assertion_id,"
    " value ->> 3 AS extension, value ->> 4 AS source_scope, value ->> 5 AS owner_id FROM json_each(?3)"
)
# A pick that is not coherent joins no row. If fewer rows are inserted than were picked, the selection is rolled back
# with a reason for each bad pick; the trigger alone would refuse the first one and give no reason.
_INSERT: Final = f"""
INSERT INTO run_context_selections
SELECT ?1, ?2, h.selection_id, p.position, h.parent_run_id, h.parent_package_name, h.slot_id,
  p.artifact_id, p.revision_id, p.assertion_id, p.extension, p.source_scope, p.owner_id,
  h.selected_by, h.selection_mode, h.selected_at_us
FROM ({_PICKS}) AS p
CROSS JOIN context_selection_acts AS h ON h.tenant = ?1 AND h.org_id = ?2 AND h.selection_id = ?4
CROSS JOIN artifacts AS a ON a.tenant = ?1 AND a.org_id = ?2 AND a.artifact_id = p.artifact_id
  AND a.type = ?5 AND a.deleted_at_us IS NULL AND a.owner_id = p.owner_id
  AND p.source_scope = {rows.SCOPE.format("a")}
CROSS JOIN representations AS r ON r.tenant = ?1 AND r.org_id = ?2 AND r.artifact_id = p.artifact_id
  AND r.revision_id = p.revision_id
CROSS JOIN semantic_assertions AS s ON s.tenant = ?1 AND s.org_id = ?2 AND s.artifact_id = p.artifact_id
  AND s.extension = p.extension AND s.assertion_id = p.assertion_id AND s.eligibility = 'eligible'
"""  # noqa: S608
_FAULTS: Final = f"""
SELECT p.position, {rows.FAULT} FROM ({_PICKS}) AS p
LEFT JOIN artifacts AS a ON a.tenant = ?1 AND a.org_id = ?2 AND a.artifact_id = p.artifact_id
  AND a.type = ?4 AND a.deleted_at_us IS NULL
LEFT JOIN representations AS r ON r.tenant = ?1 AND r.org_id = ?2 AND r.artifact_id = p.artifact_id
  AND r.revision_id = p.revision_id
LEFT JOIN semantic_assertions AS s ON s.tenant = ?1 AND s.org_id = ?2 AND s.artifact_id = p.artifact_id
  AND s.extension = p.extension AND s.assertion_id = p.assertion_id
ORDER BY p.position
"""  # noqa: S608
_ACTS: Final = (
    f"SELECT {', '.join(rows.SELECTION_COLUMNS[1:])} FROM context_selection_acts"  # noqa: S608
    " WHERE tenant = ? AND parent_run_id = ? AND org_id = coalesce(?, org_id) ORDER BY ordinal"
)
_SELECTED_RUNS: Final = (
    "SELECT DISTINCT parent_run_id FROM context_selection_acts"
    " WHERE tenant = ? AND parent_run_id > ? ORDER BY parent_run_id LIMIT ?"
)
_SELECTED_BODIES: Final = (
    "SELECT body FROM segments WHERE tenant = ? AND run = ? AND entries = 1 AND dictionary = x'' ORDER BY seq"
)
_REFS: Final = (
    f"SELECT {', '.join((*rows.REF_COLUMNS, *rows.ACT_COPIES))} FROM run_context_selections"  # noqa: S608
    " WHERE tenant = ? AND org_id = ? AND selection_id = ? ORDER BY position"
)
_PINS: Final = (
    " FROM representations AS r JOIN artifacts AS a USING (tenant, org_id, artifact_id)"
    " JOIN semantic_assertions AS s USING (tenant, org_id, artifact_id)"
    " WHERE r.tenant = ? AND r.org_id = ? AND r.artifact_id = ? AND r.revision_id = ?"
    " AND s.assertion_id = ? AND s.extension = ?"
)
_PIN_CONTENTS: Final = f"SELECT a.title, {', '.join(f'r.{name}' for name in rows.REVISION_COLUMNS[1:])}{_PINS}"
_PIN_SIZES: Final = f"SELECT length(CAST(r.content AS BLOB)){_PINS}"


class SqliteArtifacts:
    """One tenant's artifacts (texts that context slots select) and selections. Made by `SqliteStores.artifacts`."""

    def __init__(
        self, tenant_id: str, writer: Writer, readers: Readers, append: AppendShared, record: Draft | None = None
    ) -> None:
        if not tenant_id:
            raise InvalidInput(Problem("/tenant_id", "empty", "artifacts belong to a tenant; name one"))
        self._tenant, self._writer, self._readers = tenant_id, writer, readers
        self._append, self._record = append, record

    def under(self, record: Draft) -> SqliteArtifacts:
        return SqliteArtifacts(self._tenant, self._writer, self._readers, self._append, record)

    async def _run_change(self, task: WriterTask) -> Any:
        """Run a change in one transaction with the control entry of its operator's act, if there is such an act."""

        def change(connection: sqlite3.Connection) -> Any:
            result = task(connection)
            if self._record is not None and not isinstance(result, Outranked):
                self._append(connection, self._tenant, CONTROL, self._record)
            return result

        return await self._writer.run(change)

    async def register(self, manifest: ExtensionManifest) -> None:
        row = (self._tenant, manifest.extension, orjson.dumps(manifest.satisfies).decode())
        await self._run_change(lambda connection: connection.execute(_REGISTER, row) and None)

    async def extensions(self) -> Sequence[ExtensionManifest]:
        records = self._fetch(_EXTENSIONS, self._tenant)
        return [rows.manifest(name, satisfies) for name, satisfies in records]

    async def add(self, artifact: Artifact) -> None:
        refuse_unseen(artifact)
        await self._run_change(partial(_add_artifact, self._tenant, artifact))

    async def revise(self, new: NewRevision) -> Revision:
        revision: Revision = await self._run_change(partial(_add_revision, self._tenant, new))
        return revision

    async def classify(self, new: NewAssertion) -> Assertion | Outranked:
        verdict: Assertion | Outranked = await self._run_change(partial(_add_assertion, self._tenant, new))
        return verdict

    async def archive(self, org_id: str, artifact_id: str, extension: str, at_us: int) -> None:
        key = (self._tenant, org_id, artifact_id)

        def task(connection: sqlite3.Connection) -> None:
            _refuse_dead(connection, key)
            if connection.execute(_ARCHIVE, (at_us, *key, extension)).rowcount == 0:
                raise no_assertion(extension)

        await self._run_change(task)

    async def tombstone(self, org_id: str, artifact_id: str, at_us: int) -> None:
        key = (self._tenant, org_id, artifact_id)

        def task(connection: sqlite3.Connection) -> None:
            _refuse_dead(connection, key)
            for statement in (_TOMBSTONE, _ARCHIVE_ALL):
                connection.execute(statement, (at_us, *key))

        await self._run_change(task)

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        search_key = (self._tenant, queried_organisation(query), ARTIFACT_TYPE)
        lookups = [("assertions_seen", *pair) for pair in audience(query)]
        lookups += [("assertions_owned", query.actor.principal_id, scope) for scope in own_scopes(query)]
        records: list[Any] = []
        with self._readers.connection() as connection:
            connection.execute("BEGIN")
            for scope in SCOPES:
                scope_rows: set[Any] = set()
                for index, value, _ in [item for item in lookups if item[2] == scope and len(records) < query.limit]:
                    for extension in query.extensions:
                        parameters = (*search_key, extension, value, scope, query.limit)
                        scope_rows.update(connection.execute(_CANDIDATES[index], parameters))
                records += sorted(scope_rows, key=lambda row: (row[0], row[2], row[1]))
            connection.execute("COMMIT")
        return [rows.candidate(row) for row in records[: query.limit]]

    async def insert_selection(self, act: SelectionAct) -> bool:
        is_new: bool = await self._writer.run(partial(_insert_selection, self._tenant, act))
        return is_new

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        with self._readers.connection() as connection:
            return sqlite_selections(connection, self._tenant, run_id, org_id)

    async def stored(self) -> StoredLibrary:
        with self._readers.connection() as connection:
            connection.execute("BEGIN")
            tables = [connection.execute(query, (self._tenant,)).fetchall() for query in _LIBRARY]
            connection.execute("COMMIT")
        return rows.library(self._tenant, await self.extensions(), *tables)

    async def pinned_sizes(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[int]:
        return [size for (size,) in self._fetch_pins(_PIN_SIZES, org_id, refs)]

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        records = self._fetch_pins(_PIN_CONTENTS, org_id, refs)
        return rows.pinned(refs, records)

    def _fetch_pins(self, statement: str, org_id: str, refs: Sequence[ArtifactRef]) -> list[Any]:
        records = []
        with self._readers.connection() as connection:
            for ref in refs:
                row = connection.execute(statement, (self._tenant, org_id, *ref.triple, ref.extension)).fetchone()
                if row is None:
                    raise no_pin(ref)
                records.append(row)
        return records

    def _fetch(self, statement: str, *parameters: Any) -> list[Any]:
        with self._readers.connection() as connection:
            return connection.execute(statement, parameters).fetchall()


def sqlite_selections(
    connection: sqlite3.Connection, tenant: str, run_id: str, org_id: str | None = None
) -> list[SelectionAct]:
    """Return the selections of a run in the audit, of one organisation or of all. Raises `Integrity` for altered
    rows.
    """
    heads = connection.execute(_ACTS, (tenant, run_id, org_id)).fetchall()
    return [
        rows.selection_act(head, connection.execute(_REFS, (tenant, head[0], head[rows.SELECTION_ID])).fetchall())
        for head in heads
    ]


def sqlite_selected_runs(connection: sqlite3.Connection, tenant: str, after: str, limit: int) -> list[str]:
    """Return the runs and standalone flows with a selection in the audit, in order, which follow `after`."""
    return [run for (run,) in connection.execute(_SELECTED_RUNS, (tenant, after, max(limit, 0)))]


def _add_artifact(tenant_id: str, artifact: Artifact, connection: sqlite3.Connection) -> None:
    if connection.execute(_EXISTS, (tenant_id, artifact.org_id, artifact.artifact_id)).fetchone() is not None:
        raise id_taken(artifact)
    connection.execute(_ADD, (tenant_id, *rows.of_artifact(artifact)))


def _add_revision(tenant_id: str, new: NewRevision, connection: sqlite3.Connection) -> Revision:
    key = (tenant_id, new.org_id, new.artifact_id)
    _refuse_dead(connection, key)
    (newest,) = connection.execute(_NEWEST_REVISION, key).fetchone()
    created = revision_of(tenant_id, new, newest + 1)
    connection.execute(_REVISE, (tenant_id, *rows.fields(created, rows.REVISION_COLUMNS[1:])))
    return created


def _add_assertion(tenant_id: str, new: NewAssertion, connection: sqlite3.Connection) -> Assertion | Outranked:
    key = (tenant_id, new.org_id, new.artifact_id)
    _refuse_dead(connection, key)
    if connection.execute(_INSTALLED, (tenant_id, new.extension)).fetchone() is None:
        raise not_installed(new.extension)
    row = connection.execute(_ACTIVE, (*key, new.extension)).fetchone()
    if row is not None:
        active = rows.assertion(row)
        if not gives_way(active, new):
            return Outranked(by=active)
        connection.execute(_ARCHIVE, (new.asserted_at_us, *key, new.extension))
    (count,) = connection.execute(_COUNT, (*key, new.extension)).fetchone()
    created = assertion_of(tenant_id, new, count + 1)
    connection.execute(_ASSERT, (tenant_id, *rows.fields(created, rows.ASSERTION_COLUMNS[1:])))
    return created


def _refuse_dead(connection: sqlite3.Connection, key: tuple[str, str, str]) -> None:
    if connection.execute(_LIVE, key).fetchone() is None:
        raise no_artifact(*key[1:])


def _insert_selection(tenant_id: str, act: SelectionAct, connection: sqlite3.Connection) -> bool:
    org_id = act.origin.org_id
    fingerprint_row = connection.execute(_RECORDED, (tenant_id, org_id, act.selection_id)).fetchone()
    if fingerprint_row is not None:
        refuse_repeated(act, fingerprint_row[0])
        return False
    if is_governed(act.origin.parent_run_id):
        plain = [body for (body,) in connection.execute(_SELECTED_BODIES, (tenant_id, act.origin.parent_run_id))]
        refuse_unmade(act, selected_bodies(plain, act.origin.act_key))
    connection.execute(_HEAD, (tenant_id, *rows.of_act(act, selection_fingerprint(act))))
    picks = orjson.dumps([rows.fields(ref, rows.REF_COLUMNS) for ref in act.refs]).decode()
    inserted = connection.execute(_INSERT, (tenant_id, org_id, picks, act.selection_id, ARTIFACT_TYPE)).rowcount
    if inserted != len(act.refs):
        faults = connection.execute(_FAULTS, (tenant_id, org_id, picks, ARTIFACT_TYPE)).fetchall()
        raise incoherent_selection([(position, fault) for position, fault in faults if fault is not None])
    return True
