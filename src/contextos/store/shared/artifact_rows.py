"""The columns of the tables of artifacts, alike in both databases, and how rows become values and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from contextos.contracts.envelopes.artifacts import Artifact, ArtifactRef, Assertion, Revision
from contextos.contracts.envelopes.slots import SCOPES, Candidate, SelectionAct, SelectionOrigin
from contextos.contracts.model import Model
from contextos.errors import Integrity
from contextos.store.shared.artifact_rules import ARTIFACT_TYPE

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
"""As a row of an act has them, and as a ref does."""

SCOPE: Final = (
    "CASE WHEN {0}.visibility LIKE 'project:%' THEN 'project' WHEN {0}.visibility LIKE 'team:%' THEN 'team'"
    " WHEN {0}.visibility = 'org' THEN 'organization' WHEN {0}.visibility = 'workspace' THEN 'workspace'"
    " ELSE {0}.owner_level END"
)
"""Where an artifact comes from: its visibility says so, and where that does not, its owner does."""
OWN_USER: Final = "CASE WHEN {0}.owner_level = 'user' THEN {0}.owner_id ELSE '' END"
"""The user that owns an artifact; empty for what no user owns."""
COPIED_COLUMNS: Final = (
    f"a.visibility = s.visibility AND {SCOPE.format('a')} = s.source_scope AND {OWN_USER.format('a')} = s.own_user"
)
"""That an assertion's copies are what the artifact says: the copies are an index and never the truth."""
_WEIGHTS: Final = " ".join(f"WHEN '{scope}' THEN {weight}" for weight, scope in enumerate(SCOPES))
WEIGHT: Final = f"CASE {{0}} {_WEIGHTS} END"
"""From narrow to broad."""
FAULT: Final = (
    "CASE WHEN a.artifact_id IS NULL THEN 'not_live' WHEN r.revision_id IS NULL THEN 'no_such_revision'"
    " WHEN s.assertion_id IS NULL THEN 'no_such_assertion' WHEN s.eligibility <> 'eligible' THEN 'not_eligible'"
    f" WHEN a.owner_id <> p.owner_id OR p.source_scope <> {SCOPE.format('a')} THEN 'other_scope' END"
)
"""What is wrong with one pick, in the order of `artifacts.WHY`; NULL for a pick that is coherent."""


def insert(table: str, columns: Sequence[str], mark: str, *, first: int = 1) -> str:
    """An INSERT of one whole row; `mark` is a place as the database writes it, `{}` its number, from `first` on."""
    places = ", ".join(mark.format(number) for number, _ in enumerate(columns, first))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608


def insert_assertion(schema: str, mark: str) -> str:
    """An INSERT of one assertion, with its copies of what the artifact says of visibility, scope and owner."""
    columns = [*ASSERTION_COLUMNS, "visibility", "source_scope", "own_user"]
    places = [mark.format(number) for number, _ in enumerate(ASSERTION_COLUMNS, 1)]
    tenant, org_id, artifact_id, *_ = places
    copies = f"a.visibility, {SCOPE.format('a')}, {OWN_USER.format('a')}"
    return (
        f"INSERT INTO {schema}semantic_assertions ({', '.join(columns)}) SELECT {', '.join(places)}, {copies}"  # noqa: S608
        f" FROM {schema}artifacts AS a WHERE a.tenant = {tenant} AND a.org_id = {org_id}"
        f" AND a.artifact_id = {artifact_id}"
    )


def fields(value: Model, names: Sequence[str]) -> list[Any]:
    """These fields of a model, in this order."""
    return [getattr(value, name) for name in names]


def of_artifact(artifact: Artifact) -> list[Any]:
    """The row of an artifact, without its tenant."""
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
    """The header of an act, without its tenant."""
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
    """A row of the resolver's query."""
    return Candidate(ref=ref(row[:-1]), title=row[-1])


def ref(row: ArtifactRow) -> ArtifactRef:
    """A pinned triple."""
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
    """A row of `representations`, without its tenant."""
    return Revision(**dict(zip(REVISION_COLUMNS[1:], row, strict=True)))


def assertion(row: ArtifactRow) -> Assertion:
    """A row of `semantic_assertions`, without its tenant."""
    return Assertion(**dict(zip(ASSERTION_COLUMNS[1:], row, strict=True)))


def selection_act(head: ArtifactRow, refs: Sequence[ArtifactRow]) -> SelectionAct:
    """A header and its rows. Raises `Integrity` where somebody added rows to an act, or took some away."""
    told = dict(zip(SELECTION_COLUMNS[1:], head, strict=True))
    if told["picked"] != len(refs):
        raise Integrity(f"`{told['selection_id']}` holds {len(refs)} refs and says {told['picked']}; tell an operator")
    origin = SelectionOrigin(**{name: told[name] for name in SelectionOrigin.model_fields})
    kept = {name: told[name] for name in SelectionAct.model_fields if name in told}
    return SelectionAct(**kept, origin=origin, refs=tuple(ref(row) for row in refs))
