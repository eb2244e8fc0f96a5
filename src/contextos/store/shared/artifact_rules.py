"""What every store of artifacts does alike: the ids it derives, who outranks whom, who may see what, its refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
from contextos.errors import IncoherentSelection, InvalidInput, NotFound, Problem, RepeatedAct

ARTIFACT_TYPE: Final = "artifact"
"""The one type of row that a slot can take; what an artifact means lies in its assertions."""

OF_NO_PROJECT: Final = SCOPES[1:]

_DIGEST_CHARS: Final = 16


def revision_of(tenant: str, new: NewRevision, number: int) -> Revision:
    """The revision that `new` becomes; its id is derived, so it is the same in every store."""
    return Revision(
        revision_id=_derived("rev_", tenant, new.org_id, new.artifact_id, number),
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
    """The assertion that `new` becomes, the `number`-th of this extension on this artifact."""
    return Assertion(
        assertion_id=_derived("asr_", tenant, new.org_id, new.artifact_id, new.extension, number),
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
    """Whether the active assertion is archived for the new one; a matcher never displaces anything."""
    return new.asserted_by != "matcher" and PRECEDENCE[active.asserted_by] <= PRECEDENCE[new.asserted_by]


def audience(query: CandidateQuery) -> list[tuple[str, SourceScope]]:
    """The visibilities that let this actor see an artifact of its organisation, each with the scope that it is of.

    Only those that are asked for. What only administrators see is of whatever scope its owner is.
    """
    actor = query.actor
    found: list[tuple[str, SourceScope]] = [
        (f"project:{of}", "project") for of in actor.project_ids if of == query.project_id
    ]
    if query.project_id is None or query.include_broader:
        found += [("org", "organization"), ("workspace", "workspace")]
        found += [(f"team:{of}", "team") for of in actor.team_ids]
        found += [("admin", scope) for scope in OF_NO_PROJECT] if actor.platform_admin else []
    return found


def own_scopes(query: CandidateQuery) -> tuple[SourceScope, ...]:
    """The scopes in which a user's own artifacts count whatever their visibility; those of a project are in none."""
    return OF_NO_PROJECT if query.project_id is None or query.include_broader else ()


def queried_organisation(query: CandidateQuery) -> str:
    """The organisation that is searched. Raises `InvalidInput` for an actor of none."""
    if query.actor.organization_id is None:
        detail = "nobody sees artifacts without an organisation"
        raise InvalidInput(Problem("/actor/organization_id", "missing", detail, "name the actor's organisation"))
    return query.actor.organization_id


def selection_fingerprint(act: SelectionAct) -> str:
    """What makes two acts the same: everything but the time."""
    told = {name: value for name, value in act.to_json().items() if name != "selected_at_us"}
    return content_address(told)


def refuse_unseen(artifact: Artifact) -> None:
    """Refuses an artifact that nobody could ever see. Raises `InvalidInput`."""
    if artifact.visibility == "owner" and artifact.owner_level != "user":
        detail = "`owner` shows an artifact to the user that owns it, and no user owns this one"
        raise InvalidInput(Problem("/visibility", "unseen", detail, "share it with a team, project or organisation"))


def refuse_repeated(act: SelectionAct, stored: str) -> None:
    """Refuses an act whose id is recorded with another fingerprint. Raises `RepeatedAct`."""
    if stored != selection_fingerprint(act):
        detail = f"`{act.selection_id}` is recorded with another pick"
        raise RepeatedAct(Problem("/origin/act_key", "repeated_act", detail, "give every act a key of its own"))


def id_taken(artifact: Artifact) -> InvalidInput:
    """The refusal of an id that is in use."""
    detail = f"`{artifact.artifact_id}` is in use in `{artifact.org_id}`"
    return InvalidInput(Problem("/artifact_id", "taken", detail, "choose another id, or add a revision"))


def not_installed(extension: str) -> InvalidInput:
    """The refusal of an extension that nobody registered."""
    detail = f"the extension `{extension}` is not installed"
    return InvalidInput(Problem("/extension", "not_installed", detail, "register it first"))


def no_artifact(org_id: str, artifact_id: str) -> NotFound:
    """The answer for an artifact that is not there, or not any more."""
    return NotFound(f"`{artifact_id}` is no live artifact of `{org_id}`; look at what there is")


def no_assertion(extension: str) -> NotFound:
    """The answer where nobody says now that an artifact is of this extension."""
    return NotFound(f"no assertion of `{extension}` is active on this artifact; look at what there is")


def no_pin(ref: ArtifactRef) -> NotFound:
    """The answer for a pin that never was."""
    return NotFound(f"the pin `{'` `'.join(ref.triple)}` is not known; check its parts")


WHY: Final[dict[str, str]] = {
    "not_live": "the artifact is not there, or not any more, or of another type",
    "no_such_revision": "the revision is not one of this artifact",
    "no_such_assertion": "the assertion is not one of this artifact and extension",
    "not_eligible": "the assertion is a draft or archived",
    "other_scope": "the scope or owner is not the artifact's",
}
"""What can be wrong with a triple, in the order in which it is looked at."""


def incoherent_selection(found: Sequence[tuple[int, str]]) -> IncoherentSelection:
    """The refusal of an act; `found` is (position of a ref, key of `WHY`)."""
    assert found, "a refused act has at least one ref that is at fault"
    return IncoherentSelection(
        *(Problem(f"/refs/{at}", code, WHY[code], "resolve the slot again") for at, code in found)
    )


def _derived(prefix: str, *parts: str | int) -> str:
    return prefix + content_address(list(parts)).removeprefix("sha256:")[:_DIGEST_CHARS]
