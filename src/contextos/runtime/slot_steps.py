"""Step 5 of a run: fill the slots that its task template declares. No other slot is resolved.

The contents of a slot are pinned before they are used. The compiler receives them as evidence: one item for each
artifact, tagged with its scope, from narrow to broad. Their text is data and never an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contextos.contracts.bindings import resolve_binding
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.artifacts import PARTY, PinnedContent
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.identity import Principals
from contextos.contracts.envelopes.plan import SlotStep
from contextos.contracts.envelopes.policy import CapabilityView
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.slots import (
    CAPABILITY_PREFIX,
    MAX_TEMPLATE_BYTES,
    SCOPES,
    AgentContextSlot,
    PickRefused,
    Selected,
    SelectionAct,
    SelectionOrigin,
    SlotActor,
    SlotQuestion,
)
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import derive
from contextos.contracts.refs import artifact_ref
from contextos.contracts.scope import RunScope
from contextos.errors import RepeatedAct
from contextos.runtime.admission import AdmittedRun, identity_query
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.wiring import current_record
from contextos.trust.identity.principals import identity_differences
from contextos.trust.journal.record import RunOutcome

MEMBERSHIPS: Final = ("organization_id", "team_ids", "project_ids", "platform_admin")
"""The members of a user that decide which artifacts the user sees."""


async def fill_slots(
    request: InvokeRequest, admitted: AdmittedRun, revision: int, environment: RunEnvironment
) -> AdmittedRun:
    """Fill every slot of this revision's template. If one stays empty, all do, and `not_chosen` holds the failure."""
    chosen: list[EvidenceItem] = []
    held: list[_Held] = []
    size_bytes = 0
    for step in admitted.templates[revision].context_slots:
        found = await _select(request, step, admitted, f"{revision}/{step.slot.slot_id}", held, environment)
        if isinstance(found, Failure):
            return replace(admitted, chosen=(), not_chosen=found)
        chosen, size_bytes = chosen + found.items, size_bytes + found.size_bytes
        if size_bytes > MAX_TEMPLATE_BYTES:
            return replace(admitted, chosen=(), not_chosen=_too_much(step.slot.slot_id, size_bytes))
        admitted = replace(admitted, scope=found.scope)
        held.append(found.held)
    return replace(admitted, chosen=tuple(chosen), not_chosen=None)


_Held = tuple[AgentContextSlot, str | None, SelectionAct]
"""A filled slot, its project and the selection that filled it."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """The contents of a slot, and the scope with the user's current memberships."""

    items: list[EvidenceItem]
    size_bytes: int
    held: _Held
    scope: RunScope


async def _select(
    request: InvokeRequest,
    step: SlotStep,
    admitted: AdmittedRun,
    key: str,
    before: Sequence[_Held],
    environment: RunEnvironment,
) -> _Filled | Failure:
    scope, slot, steps = admitted.scope, step.slot, environment.sources.slots
    if (denied := _denied(step, admitted, key, environment)) is not None:
        return denied
    question = _question(step, scope, key)
    if question is None or steps is None:
        why = "there are no artifacts here, the user has no organisation, or the project is none"
        return _unfilled(slot.slot_id, why)
    if slot.selection_mode == "interactive" and not await _answered(request, scope, question, key, environment):
        return Failure(code="cancelled", detail=f"the run was cancelled while slot `{slot.slot_id}` waited")
    known = await _known_now(request, key, environment)
    now = refresh_question(request, question, known)
    if isinstance(now, Failure):
        return now
    assert known is not None, "an unknown user is refused above"

    async def look() -> dict[str, Any]:
        try:
            made = await (
                steps.recorded(slot, now.origin)
                if slot.selection_mode == "interactive"
                else steps.take(slot, now.actor, now.project_id, now.origin)
            )
        except RepeatedAct as error:
            # An earlier drive that was lost selected something else, under the memberships of that time.
            return {"refused": str(error)}
        if made is None or isinstance(made, PickRefused):
            return {"refused": made.detail, "code": made.code} if made else {"refused": "no answer is recorded"}
        act, fresh = (made.act, made.wrote) if isinstance(made, Selected) else (made, False)
        held = [*(before if now.actor != question.actor else ()), *(() if fresh else [(slot, now.project_id, act)])]
        gone = [name for of, project, one in held for name in await steps.withdrawn(of, now.actor, project, one)]
        if gone:
            return {"refused": f"of what was picked the user may not take `{'`, `'.join(gone)}` any more"}
        return {"act": act.to_json(), "pinned": [one.to_json() for one in await steps.contents(act)]}

    answer = await environment.journal.record("slot.selected", key, now.to_json(), look)
    if answer.get("code") == "too_large":
        return Failure(code="budget_exhausted", detail=answer["refused"])
    if "refused" in answer:
        return _unfilled(slot.slot_id, answer["refused"])
    pinned = [PinnedContent.model_validate(one) for one in answer["pinned"]]
    items = [_item(slot.slot_id, one, scope) for one in pinned]
    act = SelectionAct.model_validate(answer["act"])
    held = (slot, now.project_id, act)
    return _Filled(items, sum(one.size_bytes for one in pinned), held, _as_member(scope, known))


async def _known_now(request: InvokeRequest, key: str, environment: RunEnvironment) -> Principals | None:
    """Look both identities up again: the run can have waited long since it was admitted."""

    async def look() -> dict[str, Any]:
        known = await environment.ports.directory.resolve(
            request.tenant_id, request.user.user_id, request.agent.agent_id
        )
        return {"principals": known.to_json() if known else None}

    who = await environment.journal.record("identity.resolved", f"slot/{key}", identity_query(request), look)
    return Principals.model_validate(who["principals"]) if who["principals"] else None


def _as_member(scope: RunScope, known: Principals) -> RunScope:
    """Return the scope with the user's current memberships; the rest of the user stays as admitted."""
    user = scope.principals.user.model_copy(update={name: getattr(known.user, name) for name in MEMBERSHIPS})
    principals = scope.principals.model_copy(update={"user": user})
    return replace(scope, principals=principals, facts={**scope.facts, "user": user.to_json()})


def refresh_question(
    request: InvokeRequest, question: SlotQuestion, known: Principals | None
) -> SlotQuestion | Failure:
    """Return the question for the user as the directory knows them now, or why this user can no longer answer it."""
    if known is None:
        detail = "the directory does not know this user and agent in this tenant any more"
        return Failure(code="identity_refused", detail=detail)
    if differences := identity_differences(request, known):
        return differences[0]
    actor = actor_of(known)
    if actor.organization_id != question.origin.org_id:
        detail = f"the user is not in `{question.origin.org_id}` any more, for which the slot is filled"
        return Failure(code="identity_refused", detail=detail)
    return question.model_copy(update={"actor": actor})


def _question(step: SlotStep, scope: RunScope, key: str) -> SlotQuestion | None:
    """The question to the user, or None where the scope cannot fill a slot."""
    actor = actor_of(scope.principals)
    project = resolve_binding(step.project, {"request": scope.request_fields}) if step.project is not None else None
    if actor.organization_id is None or not (project is None or (isinstance(project, str) and PARTY.fits(project))):
        return None
    origin = SelectionOrigin(
        org_id=actor.organization_id,
        parent_run_id=scope.run.run_id,
        principal_id=actor.principal_id,
        act_key=key,
        parent_package_name=scope.principals.agent.agent_urn,
    )
    return SlotQuestion(slot=step.slot, actor=actor, project_id=project, origin=origin)


async def _answered(
    request: InvokeRequest, scope: RunScope, question: SlotQuestion, key: str, environment: RunEnvironment
) -> bool:
    """Wait until the user has answered; return False if the run is cancelled first."""
    environment.journal.derive("slot.asked", key, question.to_json())
    _, wire = current_record(environment, request, scope, RunOutcome(None, ()))
    environment.journal.derive("record.revised", f"slot/{key}", wire)
    await environment.journal.commit(wake_at_us=0)
    kind, _ = await environment.journal.wait(
        ("slot.answered", "run.cancel_requested"), key, wake_at_us=0, on_timeout=None
    )
    return kind == "slot.answered"


def _denied(step: SlotStep, admitted: AdmittedRun, key: str, environment: RunEnvironment) -> Failure | None:
    """Let policy decide about this selection, as a read of the capability `slots.<slot id>`; None if it is allowed."""
    scope, name = admitted.scope, CAPABILITY_PREFIX + step.slot.slot_id
    facts: Mapping[str, Any] = {
        "capability_id": name,
        "kind": "read",
        "risk_level": "read",
        "approval_mode": "read_only",
        "external": False,
    }
    decision = admitted.policy.decide(
        "compile",
        scope.facts,
        capability=CapabilityView(name, "read_only", facts),
        granted=True,
        decision_id=derive("pol_", scope.run.run_id, "policy.slot", key),
    )
    environment.journal.derive("policy.decided", f"slot/{key}", {"decisions": [decision.to_json()]})
    # A slot step has no approval and no evidence check, so a rule that demands one denies the selection.
    if decision.allowed and not (decision.gates or decision.requires or decision.arg_constraints):
        return None
    return Failure(code="policy_denied", detail=f"policy does not let this run fill slot `{step.slot.slot_id}`")


def actor_of(known: Principals) -> SlotActor:
    """Return the run's user as the actor of a slot selection."""
    user = known.user
    return SlotActor(
        principal_id=user.user_id,
        organization_id=user.organization_id,
        team_ids=user.team_ids,
        project_ids=user.project_ids,
        platform_admin=user.platform_admin,
    )


def _item(slot_id: str, pinned: PinnedContent, scope: RunScope) -> EvidenceItem:
    ref, revision = pinned.ref, pinned.revision
    value = {
        "scope": ref.source_scope,
        "extension": ref.extension,
        "title": pinned.title,
        "mime": revision.mime,
        "content": revision.content,
    }
    subject = f"slot:{slot_id}"
    return EvidenceItem(
        evidence_ref=artifact_ref(ref.artifact_id, ref.representation_revision_id),
        subject=subject,
        predicate="context",
        value=value,
        origin=f"slot:{ref.source_scope}",
        integrity="untrusted",
        classification=scope.pack.pack_meta.data_classification,
        observed_at_us=revision.created_at_us,
        digest=content_address([subject, "context", value]),
        hop=SCOPES.index(ref.source_scope),
    )


def _unfilled(slot_id: str, why: str) -> Failure:
    return Failure(code="missing_evidence", detail=f"slot `{slot_id}` holds nothing: {why}")


def _too_much(slot_id: str, size_bytes: int) -> Failure:
    detail = f"with slot `{slot_id}` the slots of this template hold {size_bytes} bytes"
    remedy = f"{detail}, and a compile takes at most {MAX_TEMPLATE_BYTES}; lower their `maxItems` or pick less"
    return Failure(code="budget_exhausted", detail=remedy)
