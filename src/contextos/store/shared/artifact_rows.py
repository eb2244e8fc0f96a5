"""The columns of the artifact tables, the same in both databases, and the conversion of rows to models and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import orjson
from pydantic import ValidationError

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.artifacts import (
    Artifact,
    ArtifactRef,
    Assertion,
    ExtensionManifest,
    PinnedContent,
    Revision,
    StoredLibrary,
)
from contextos.contracts.envelopes.slots import SCOPES, Candidate, SelectionAct, SelectionOrigin
from contextos.contracts.model import Model
from contextos.errors import Integrity
from contextos.store.shared.artifact_rules import ARTIFACT_TYPE, assertion_id, revision_id, selection_fingerprint

ArtifactRow = Sequence[Any]

ARTIFACT_COLUMNS: Final = (
    "tenant",
    "org_id",
    "artifact_id",
    "type",
    "title",
    "owner_level",
    "owner_id",
    "visibility",
    "created_by",
    "created_at_us",
)
REVISION_COLUMNS: Final = (
    "tenant",
    "org_id",
    "artifact_id",
    "revision",
    "revision_id",
    "mime",
    "content",
    "digest",
    "created_by",
    "created_at_us",
)
ASSERTION_COLUMNS: Final = (
    "tenant",
    "org_id",
    "artifact_id",
    "extension",
    "assertion_id",
    "asserted_by",
    "principal_id",
    "confidence",
    "eligibility",
    "asserted_at_us",
    "archived_at_us",
)
SELECTION_COLUMNS: Final = (
    "tenant",
    "org_id",
    "selection_id",
    "parent_run_id",
    "parent_package_name",
    "act_key",
    "slot_id",
    "resolution_mode",
    "selection_mode",
    "selected_by",
    "principal_id",
    "picked",
    "fingerprint",
    "selected_at_us",
)
SELECTION_ID: Final = SELECTION_COLUMNS.index("selection_id") - 1
REF_COLUMNS: Final = (
    "artifact_id",
    "representation_revision_id",
    "semantic_assertion_id",
    "extension",
    "source_scope",
    "owner_id",
)
"""The columns of a ref. They are also the names of the fields of `ArtifactRef`."""
ACT_COPIES: Final = (
    "parent_run_id",
    "parent_package_name",
    "slot_id",
    "selected_by",
    "selection_mode",
    "selected_at_us",
)
"""The columns of a ref's row that repeat its act."""

SCOPE: Final = (
    "CASE WHEN {0}.visibility LIKE 'project:%' THEN 'project' WHEN {0}.visibility LIKE 'team:%' THEN 'team'"
    " WHEN {0}.visibility = 'org' THEN 'organization' WHEN {0}.visibility = 'workspace' THEN 'workspace'"
    " ELSE {0}.owner_level END"
)
"""SQL for the scope of an artifact: the scope of its visibility or, if its visibility has none, that of its owner."""
OWN_USER: Final = "CASE WHEN {0}.owner_level = 'user' THEN {0}.owner_id ELSE '' END"
"""SQL for the user that owns an artifact, or the empty text if no user does."""
COPIED_COLUMNS: Final = (
    f"a.visibility = s.visibility AND {SCOPE.format('a')} = s.source_scope AND {OWN_USER.format('a')} = s.own_user"
)
"""SQL condition that an assertion's copied columns agree with the artifact. The copies are only there for an index."""
_WEIGHTS: Final = " ".join(f"WHEN '{scope}' THEN {weight}" for weight, scope in enumerate(SCOPES))
WEIGHT: Final = f"CASE {{0}} {_WEIGHTS} END"
"""SQL for the sort order of a scope, from narrow to broad."""
FAULT: Final = (
    "CASE WHEN a.artifact_id IS NULL THEN 'not_live' WHEN r.revision_id IS NULL THEN 'no_such_revision'"
    " WHEN s.assertion_id IS NULL THEN 'no_such_assertion' WHEN s.eligibility <> 'eligible' THEN 'not_eligible'"
    f" WHEN a.owner_id <> p.owner_id OR p.source_scope <> {SCOPE.format('a')} THEN 'other_scope' END"
)
"""SQL for the fault of one pick, a key of `FAULT_EXPLANATIONS`; NULL for a coherent pick."""


def library_queries(schema: str, mark: str) -> tuple[str, str, str]:
    """Return the statements that read every artifact, revision and assertion of a tenant, for `library`."""
    clause = f"WHERE s.tenant = {mark} ORDER BY s.org_id, s.artifact_id"
    artifacts = ", ".join(f"s.{name}" for name in (*ARTIFACT_COLUMNS[1:], "deleted_at_us"))
    assertions = ", ".join(f"s.{name}" for name in ASSERTION_COLUMNS[1:])
    revisions = "s.org_id, s.artifact_id, s.revision, s.digest, s.created_by, s.created_at_us, s.revision_id"
    condition = "a.tenant = s.tenant AND a.org_id = s.org_id AND a.artifact_id = s.artifact_id"
    source = f"{schema}semantic_assertions AS s LEFT JOIN {schema}artifacts AS a ON {condition}"
    return (
        f"SELECT {artifacts} FROM {schema}artifacts AS s {clause}",  # noqa: S608
        f"SELECT {revisions} FROM {schema}representations AS s {clause}, s.revision",  # noqa: S608
        f"SELECT {assertions}, {COPIED_COLUMNS} FROM {source} {clause}, s.extension, s.assertion_id",  # noqa: S608
    )


def library(
    tenant: str,
    extensions: Sequence[ExtensionManifest],
    artifacts: Sequence[ArtifactRow],
    revisions: Sequence[ArtifactRow],
    assertions: Sequence[ArtifactRow],
) -> StoredLibrary:
    """Convert the rows that `library_queries` found. Raises `Integrity` for a row that contradicts another, or whose id
    is not derived from its content.
    """
    stored_artifacts = []
    try:
        for *columns, deleted_at_us in map(tuple, artifacts):
            values = dict(zip(ARTIFACT_COLUMNS[1:], columns, strict=True))
            if values.pop("type") != ARTIFACT_TYPE:
                raise Integrity(f"the artifact `{values['artifact_id']}` was altered; inform an operator")
            stored_artifacts.append((Artifact(**values), deleted_at_us is not None))
        for row in revisions:
            if row[-1] != revision_id(tenant, row[0], row[1], row[2]):
                raise Integrity(f"a revision of `{row[1]}` was altered; inform an operator")
        stored_assertions = [assertion(tuple(row)[:-1]) for row in assertions]
    except ValidationError:
        raise Integrity("an artifact or its type was altered; inform an operator") from None
    numbers = defaultdict[tuple[str, str, str], list[str]](list)
    for item, row in zip(stored_assertions, assertions, strict=True):
        numbers[item.org_id, item.artifact_id, item.extension].append(item.assertion_id)
        if not tuple(row)[-1]:
            raise Integrity(f"a type of `{item.artifact_id}` contradicts the artifact; inform an operator")
    for place, ids in numbers.items():
        if set(ids) != {assertion_id(tenant, *place, number) for number in range(1, len(ids) + 1)}:
            raise Integrity(f"a type of `{place[1]}` was altered; inform an operator")
    return StoredLibrary(extensions, stored_artifacts, [tuple(row)[:-1] for row in revisions], stored_assertions)


def insert(table: str, columns: Sequence[str], mark: str, *, first: int = 1) -> str:
    """Return an INSERT statement for one row. `mark` is the database's placeholder, with `{}` for its number; the
    numbers start with `first`.
    """
    placeholders = ", ".join(mark.format(number) for number, _ in enumerate(columns, first))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders})"  # noqa: S608


def insert_assertion(schema: str, mark: str) -> str:
    """Return an INSERT statement for one assertion (an artifact's type), which copies visibility and owner from the
    artifact.
    """
    columns = [*ASSERTION_COLUMNS, "visibility", "source_scope", "own_user"]
    placeholders = [mark.format(number) for number, _ in enumerate(ASSERTION_COLUMNS, 1)]
    tenant, org_id, artifact_id, *_ = placeholders
    copies = f"a.visibility, {SCOPE.format('a')}, {OWN_USER.format('a')}"
    return (
        f"INSERT INTO {schema}semantic_assertions ({', '.join(columns)}) SELECT {', '.join(placeholders)}, {copies}"  # noqa: S608
        f" FROM {schema}artifacts AS a WHERE a.tenant = {tenant} AND a.org_id = {org_id}"
        f" AND a.artifact_id = {artifact_id}"
    )


def fields(value: Model, names: Sequence[str]) -> list[Any]:
    """Return the values of these fields of a model, in this order."""
    return [getattr(value, name) for name in names]


def of_artifact(artifact: Artifact) -> list[Any]:
    """Return the database row of an artifact, without its tenant."""
    return [
        artifact.org_id,
        artifact.artifact_id,
        ARTIFACT_TYPE,
        artifact.title,
        artifact.owner_level,
        artifact.owner_id,
        artifact.visibility,
        artifact.created_by,
        artifact.created_at_us,
    ]


def of_act(act: SelectionAct, fingerprint: str) -> list[Any]:
    """Return the database row of a selection itself, without its tenant and without the selected artifacts."""
    origin = act.origin
    return [
        origin.org_id,
        act.selection_id,
        origin.parent_run_id,
        origin.parent_package_name,
        origin.act_key,
        act.slot_id,
        act.resolution_mode,
        act.selection_mode,
        act.selected_by,
        origin.principal_id,
        len(act.refs),
        fingerprint,
        act.selected_at_us,
    ]


def candidate(row: ArtifactRow) -> Candidate:
    """Convert a row of the candidate query to a `Candidate`."""
    return Candidate(ref=ref(row[:-1]), title=row[-1])


def ref(row: ArtifactRow) -> ArtifactRef:
    """Convert a row with the columns `REF_COLUMNS` to an `ArtifactRef`."""
    artifact_id, revision_id, assertion_id, extension, source_scope, owner_id = row
    return ArtifactRef(
        artifactId=artifact_id,
        representationRevisionId=revision_id,
        semanticAssertionId=assertion_id,
        extension=extension,
        sourceScope=source_scope,
        ownerId=owner_id,
    )


def revision(row: ArtifactRow) -> Revision:
    """Convert a row of the table `representations`, without its tenant, to a `Revision`. Raises `Integrity` if the row
    is malformed, or its digest does not match its text.
    """
    try:
        record = Revision(**dict(zip(REVISION_COLUMNS[1:], row, strict=True)))
    except ValidationError:
        raise Integrity(f"a revision of `{row[1]}` was altered; inform an operator") from None
    if content_address([record.mime, record.content]) != record.digest:
        raise Integrity(f"revision {record.revision} of `{record.artifact_id}` was altered; inform an operator")
    return record


def pinned(refs: Sequence[ArtifactRef], found: Sequence[ArtifactRow]) -> list[PinnedContent]:
    """Convert the rows of these refs, each a title and a revision. Raises as `revision`."""
    pairs = [(row[0], revision(tuple(row)[1:])) for row in found]
    return [PinnedContent(ref=ref, title=title, revision=item) for ref, (title, item) in zip(refs, pairs, strict=True)]


def assertion(row: ArtifactRow) -> Assertion:
    """Convert a row of the table `semantic_assertions`, without its tenant, to an `Assertion`."""
    return Assertion(**dict(zip(ASSERTION_COLUMNS[1:], row, strict=True)))


def manifest(extension: str, satisfies: str) -> ExtensionManifest:
    """Convert a row of the table `extensions` to an `ExtensionManifest`. Raises `Integrity` if it was altered."""
    try:
        return ExtensionManifest(extension=extension, satisfies=tuple(orjson.loads(satisfies)))
    except (orjson.JSONDecodeError, TypeError, ValidationError):
        raise Integrity(f"the type `{extension[:80]}` was altered; inform an operator") from None


def selection_act(head: ArtifactRow, refs: Sequence[ArtifactRow]) -> SelectionAct:
    """Convert the row of a selection and the rows of its artifacts, which have the columns `REF_COLUMNS` and
    `ACT_COPIES`. Raises `Integrity` if a row was added, removed or altered since.
    """
    values = dict(zip(SELECTION_COLUMNS[1:], head, strict=True))
    name = values["selection_id"]
    if values["picked"] != len(refs):
        raise Integrity(f"`{name}` has {len(refs)} refs instead of {values['picked']}; inform an operator")
    copies = tuple(values[column] for column in ACT_COPIES)
    if any(tuple(row[len(REF_COLUMNS) :]) != copies for row in refs):
        raise Integrity(f"`{name}` has a ref that contradicts it; inform an operator")
    try:
        origin = SelectionOrigin(**{column: values[column] for column in SelectionOrigin.model_fields})
        fields_of_act = {column: values[column] for column in SelectionAct.model_fields if column in values}
        pinned_refs = tuple(ref(row[: len(REF_COLUMNS)]) for row in refs)
        act = SelectionAct(**fields_of_act, origin=origin, refs=pinned_refs)
    except ValidationError:
        raise Integrity(f"`{name}` was altered; inform an operator") from None
    if selection_fingerprint(act) != values["fingerprint"]:
        raise Integrity(f"`{name}` is not what its digest covers; inform an operator")
    return act
