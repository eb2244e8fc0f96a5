"""The rules that are the same in every store of artifacts: derived ids, precedence, visibility and errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.artifacts import (
    PRECEDENCE,
    Artifact,
    ArtifactRef,
    Assertion,
    NewAssertion,
    NewRevision,
    Revision,
    SourceScope,
)
from contextos.contracts.envelopes.slots import SCOPES, CandidateQuery, SelectionAct
from contextos.contracts.ids import RUN
from contextos.errors import IncoherentSelection, InvalidInput, NotFound, Problem, RepeatedAct

ARTIFACT_TYPE: Final = "artifact"
"""The only type of row that a slot can take. The assertions of an artifact state what it is."""

SCOPES_WITHOUT_PROJECT: Final = SCOPES[1:]

_DIGEST_CHARS: Final = 16


def revision_id(tenant: str, org_id: str, artifact_id: str, number: int) -> str:
    """Return the id of the revision with this number."""
    return _derived_id("rev_", tenant, org_id, artifact_id, number)


def assertion_id(tenant: str, org_id: str, artifact_id: str, extension: str, number: int) -> str:
    """Return the id of an assertion. `number` counts the assertions that state the type `extension` of the artifact."""
    return _derived_id("asr_", tenant, org_id, artifact_id, extension, number)


def revision_of(tenant: str, new: NewRevision, number: int) -> Revision:
    """Return the stored form of a new revision of an artifact. Its id is derived from its content."""
    return Revision(
        revision_id=revision_id(tenant, new.org_id, new.artifact_id, number),
        revision=number,
        artifact_id=new.artifact_id,
        org_id=new.org_id,
        mime=new.mime,
        content=new.content,
        digest=content_address([new.mime, new.content]),
        created_by=new.created_by,
        created_at_us=new.created_at_us,
    )


def assertion_of(tenant: str, new: NewAssertion, number: int) -> Assertion:
    """Return the stored form of a new assertion, which states that an artifact has a type.

    `number` distinguishes this assertion from earlier assertions that state the same.
    """
    return Assertion(
        assertion_id=assertion_id(tenant, new.org_id, new.artifact_id, new.extension, number),
        artifact_id=new.artifact_id,
        org_id=new.org_id,
        extension=new.extension,
        asserted_by=new.asserted_by,
        principal_id=new.principal_id,
        confidence=new.confidence,
        eligibility="draft" if new.asserted_by == "matcher" else "eligible",
        asserted_at_us=new.asserted_at_us,
        archived_at_us=None,
    )


def gives_way(active: Assertion, new: NewAssertion) -> bool:
    """Return whether a new statement of an artifact's type replaces the active one. A statement by an automatic matcher
    never does.
    """
    return new.asserted_by != "matcher" and PRECEDENCE[active.asserted_by] <= PRECEDENCE[new.asserted_by]


def audience(query: CandidateQuery) -> list[tuple[str, SourceScope]]:
    """Return each (visibility, scope) that the query's actor can see and that the query includes.

    An artifact that only administrators can see has the scope of its owner, so `admin` comes with several scopes.
    """
    actor = query.actor
    pairs: list[tuple[str, SourceScope]] = [
        (f"project:{project_id}", "project") for project_id in actor.project_ids if project_id == query.project_id
    ]
    if query.project_id is None or query.include_broader:
        pairs += [("org", "organization"), ("workspace", "workspace")]
        pairs += [(f"team:{team_id}", "team") for team_id in actor.team_ids]
        pairs += [("admin", scope) for scope in SCOPES_WITHOUT_PROJECT] if actor.platform_admin else []
    return pairs


def own_scopes(query: CandidateQuery) -> tuple[SourceScope, ...]:
    """Return the scopes in which users see their own artifacts regardless of visibility; never `project`."""
    return SCOPES_WITHOUT_PROJECT if query.project_id is None or query.include_broader else ()


def queried_organisation(query: CandidateQuery) -> str:
    """Return the organisation that the query searches. Raises `InvalidInput` for an actor without one."""
    if query.actor.organization_id is None:
        detail = "nobody sees artifacts without an organisation"
        raise InvalidInput(Problem("/actor/organization_id", "missing", detail, "name the actor's organisation"))
    return query.actor.organization_id


def selection_fingerprint(act: SelectionAct) -> str:
    """Return the digest of a selection without its time. Two selections with the same digest are the same."""
    fields = {name: value for name, value in act.to_json().items() if name != "selected_at_us"}
    return content_address(fields)


def refuse_unseen(artifact: Artifact) -> None:
    """Raise `InvalidInput` for an artifact that no user could ever see."""
    if artifact.visibility == "owner" and artifact.owner_level != "user":
        detail = "`owner` shows an artifact to the user that owns it, and no user owns this one"
        raise InvalidInput(Problem("/visibility", "unseen", detail, "share it with a team, project or organisation"))


def is_governed(run_id: str) -> bool:
    """Return whether `run_id` has the form of a governed run. Every other id is that of a standalone flow."""
    return RUN.fits(run_id, sealed=True)


def refuse_unmade(act: SelectionAct, selected: Iterable[bytes | None]) -> None:
    """Raise `InvalidInput` for a selection of a governed run that the journal of the run does not hold.

    `selected` are the bodies of the entries `slot.selected` with the act's key. A trigger of the store refuses such an
    act, too; this function gives the reason.
    """
    if not any(body is not None and orjson.loads(body)["answer"].get("act") == act.to_json() for body in selected):
        detail = f"`{act.origin.parent_run_id}` is a governed run, and its journal does not hold this selection"
        remedy = "answer the run with `contextos slots answer`; it records its selections itself"
        raise InvalidInput(Problem("/origin/parent_run_id", "governed_run", detail, remedy))


def refuse_repeated(act: SelectionAct, stored: str) -> None:
    """Raise `RepeatedAct` if `stored`, the digest recorded for the selection's id, is not the digest of `act`."""
    if stored != selection_fingerprint(act):
        detail = f"`{act.selection_id}` is recorded with another pick"
        raise RepeatedAct(Problem("/origin/act_key", "repeated_act", detail, "give every act a key of its own"))


def id_taken(artifact: Artifact) -> InvalidInput:
    """Return the error for an artifact id that is in use."""
    detail = f"`{artifact.artifact_id}` is in use in `{artifact.org_id}`"
    return InvalidInput(Problem("/artifact_id", "taken", detail, "choose another id, or add a revision"))


def not_installed(extension: str) -> InvalidInput:
    """Return the error for an artifact type (extension) that is not installed."""
    detail = f"the extension `{extension}` is not installed"
    return InvalidInput(Problem("/extension", "not_installed", detail, "register it first"))


def no_artifact(org_id: str, artifact_id: str) -> NotFound:
    """Return the error for an artifact that does not exist or was deleted."""
    return NotFound(f"`{artifact_id}` is not a live artifact of `{org_id}`; look at what there is")


def no_assertion(extension: str) -> NotFound:
    """Return the error for an artifact that has no active statement of this type (extension)."""
    return NotFound(f"no assertion of `{extension}` is active on this artifact; look at what there is")


def no_pin(ref: ArtifactRef) -> NotFound:
    """Return the error for a pinned revision that never existed."""
    return NotFound(f"the pin `{'` `'.join(ref.triple)}` is not known; check its parts")


FAULT_EXPLANATIONS: Final[dict[str, str]] = {
    "not_live": "the artifact does not exist, was deleted, or is of another type",
    "no_such_revision": "the revision is not one of this artifact",
    "no_such_assertion": "the assertion is not one of this artifact and extension",
    "not_eligible": "the assertion is a draft or archived",
    "other_scope": "the scope or owner is not the artifact's",
}
"""The faults of a triple and their explanations, in the order in which they are checked."""


def incoherent_selection(found: Sequence[tuple[int, str]]) -> IncoherentSelection:
    """Return the error for a selection with faulty artifacts.
    `found` are pairs: index of the artifact in the selection, key of `FAULT_EXPLANATIONS`.
    """
    assert found, "a refused selection has at least one faulty ref"
    return IncoherentSelection(
        *(Problem(f"/refs/{index}", code, FAULT_EXPLANATIONS[code], "resolve the slot again") for index, code in found)
    )


def _derived_id(prefix: str, *parts: str | int) -> str:
    return prefix + content_address(list(parts)).removeprefix("sha256:")[:_DIGEST_CHARS]
