"""Step 5 of a run: fill the context slots that its task template declares, with artifacts chosen by scope or by a
person.

The contents of a slot are pinned before they are used. The compiler receives them as evidence: one item for each
artifact, tagged with its scope, from narrow to broad. Their text is data and never an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from contextos.context.slots.select import selection_fits
from contextos.contracts.bindings import resolve_binding
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.of_run import UNPROVED_CANCEL
from contextos.contracts.entries.recorded import AnsweredSlot
from contextos.contracts.envelopes.artifacts import PARTY, PinnedContent
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.identity import Approver, Principals
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.plan import SlotStep, TaskTemplate
from contextos.contracts.envelopes.policy import CapabilityView
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.slots import (
    CAPABILITY_PREFIX,
    MAX_TEMPLATE_BYTES,
    SCOPES,
    AgentContextSlot,
    PickRefused,
    SelectionAct,
    SelectionOrigin,
    SlotActor,
    SlotQuestion,
)
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.facts import supplied
from contextos.contracts.ids import derive
from contextos.contracts.journal import VOID_ANSWER
from contextos.contracts.ports.seams import SlotSteps
from contextos.contracts.refs import artifact_ref
from contextos.contracts.scope import RunScope
from contextos.errors import RepeatedAct
from contextos.runtime.admission import AdmittedRun, identity_query
from contextos.runtime.conclusion import decisions_of, last_decision
from contextos.runtime.environment import RunEnvironment, cancels_of
from contextos.runtime.wiring import current_record
from contextos.trust.approvals.acts import SLOT_ANSWER, UNSAFE_LOCAL_OPERATORS, slot_answer_act, slot_answer_fault
from contextos.trust.approvals.cancel_requests import is_unproved
from contextos.trust.identity.principals import identity_differences, look_up
from contextos.trust.journal.record import RunOutcome

MEMBERSHIPS: Final = ("organization_id", "team_ids", "project_ids", "platform_admin")
"""The members of a user that decide which artifacts the user sees."""


async def fill_slots(
    request: InvokeRequest, admitted: AdmittedRun, template: TaskTemplate, revision: int, environment: RunEnvironment
) -> AdmittedRun:
    """Fill every context slot that the task template of this plan declares.

    If one slot stays empty, all stay empty, and `not_chosen` of the result holds the failure. If a slot has `minItems`,
    that many of its contents are required in the compiled context, those of the narrowest scope first.
    """
    if not (template.context_slots or admitted.chosen or admitted.not_chosen):
        return admitted
    chosen: list[EvidenceItem] = []
    required: set[str] = set()
    selections: list[_SlotSelection] = []
    size_bytes = 0
    for step in template.context_slots:
        result = await _fill_slot(request, step, admitted, f"{revision}/{step.slot.slot_id}", selections, environment)
        if isinstance(result, Failure):
            return replace(admitted, chosen=(), not_chosen=result)
        chosen, size_bytes = chosen + result.items, size_bytes + result.size_bytes
        if size_bytes > MAX_TEMPLATE_BYTES:
            return replace(admitted, chosen=(), not_chosen=_size_failure(step.slot.slot_id, size_bytes))
        admitted = replace(admitted, scope=result.scope)
        required.update(item.digest for item in result.items[: step.slot.min_items])
        selections.append(result.held)
    return replace(admitted, chosen=tuple(chosen), needed=frozenset(required), not_chosen=None)


_SlotSelection = tuple[AgentContextSlot, str | None, SelectionAct]
"""A filled slot, its project and the selection that filled it."""


@dataclass(frozen=True, slots=True)
class _FilledSlot:
    """The contents of a slot, and the scope with the user's current memberships."""

    items: list[EvidenceItem]
    size_bytes: int
    held: _SlotSelection
    scope: RunScope


async def _fill_slot(
    request: InvokeRequest,
    step: SlotStep,
    admitted: AdmittedRun,
    key: str,
    earlier: Sequence[_SlotSelection],
    environment: RunEnvironment,
) -> _FilledSlot | Failure:
    scope, slot, steps = admitted.scope, step.slot, environment.sources.slots
    if (denial := _policy_denial(step, admitted, key, environment)) is not None:
        return denial
    question = _slot_question(step, scope, key)
    if question is None or steps is None:
        reason = "there are no artifacts here, the user has no organisation, or there is no such project"
        return _unfilled_slot(slot.slot_id, reason)
    signed_answer: Mapping[str, Any] | None = None
    if slot.selection_mode == "interactive":
        response = await _await_answer(request, admitted, question, key, environment)
        if isinstance(response, Failure):
            return response
        signed_answer = response
    answer_seq = len(environment.journal.log())
    looked_up = await _look_up_people(request, key, environment, interactive=signed_answer is not None)
    principals = Principals.model_validate(looked_up["principals"]) if looked_up["principals"] else None
    refreshed = refresh_question(request, question, principals)
    if isinstance(refreshed, Failure):
        return refreshed
    assert principals is not None, "an unknown user is refused above"

    async def choose() -> dict[str, Any]:
        selection: SelectionAct | PickRefused | str = (
            await steps.choose(slot, refreshed.actor, refreshed.project_id, refreshed.origin, None)
            if signed_answer is None
            else _signed_selection(signed_answer, refreshed, scope, answer_seq, looked_up)
        )
        if isinstance(selection, PickRefused):
            return {"refused": selection.detail, "code": selection.code}
        if isinstance(selection, str):
            return {"refused": selection}
        new = [(slot, refreshed.project_id, selection)] if signed_answer is not None else []
        selections = [*(earlier if refreshed.actor != question.actor else ()), *new]
        names = [
            name
            for held_slot, project, held_act in selections
            for name in await steps.withdrawn(held_slot, refreshed.actor, project, held_act)
        ]
        return {"refused": _withdrawn_reason(names)} if names else {"act": selection.to_json()}

    resumed = environment.journal.on_tape
    answer = await environment.journal.record("slot.selected", key, refreshed.to_json(), choose)
    if answer.get("code") == "too_large":
        return Failure(code="budget_exhausted", detail=answer["refused"])
    if "refused" in answer:
        return _unfilled_slot(slot.slot_id, answer["refused"])
    act = SelectionAct.model_validate(answer["act"])
    pinned = await _pin_contents(request, refreshed, act, steps, environment, resumed=resumed)
    if isinstance(pinned, Failure):
        return pinned
    items = [_evidence_item(slot.slot_id, content, scope.pinned.pack) for content in pinned]
    held = (slot, refreshed.project_id, act)
    return _FilledSlot(items, sum(content.size_bytes for content in pinned), held, _with_memberships(scope, principals))


async def _pin_contents(
    request: InvokeRequest,
    question: SlotQuestion,
    act: SelectionAct,
    steps: SlotSteps,
    environment: RunEnvironment,
    *,
    resumed: bool,
) -> Sequence[PinnedContent] | Failure:
    """Write the selection to the audit, which takes only what is in the journal, and return its contents.

    `resumed`: an earlier drive made the selection and was lost, so the user's rights are looked up once more.
    """
    slot, ports = question.slot, environment.ports

    async def pin() -> dict[str, Any]:
        if resumed:
            principals = await look_up(ports.directory, request, environment.journal.time_us)
            refreshed = refresh_question(request, question, principals)
            if isinstance(refreshed, Failure):
                return {"refused": refreshed.detail}
            if names := await steps.withdrawn(slot, refreshed.actor, question.project_id, act):
                return {"refused": _withdrawn_reason(names)}
        try:
            refusal = await steps.record(act)
        except RepeatedAct as error:
            return {"refused": str(error)}
        if refusal is not None:
            return {"refused": refusal.detail}
        return {"pinned": [content.to_json() for content in await steps.contents(act)]}

    await environment.journal.commit()
    query = {"selection_id": act.selection_id}
    answer = await environment.journal.record("slot.pinned", question.origin.act_key, query, pin)
    if "refused" in answer:
        return _unfilled_slot(slot.slot_id, answer["refused"])
    return [PinnedContent.model_validate(content) for content in answer["pinned"]]


async def _look_up_people(
    request: InvokeRequest, key: str, environment: RunEnvironment, *, interactive: bool
) -> dict[str, Any]:
    """Look up the run's user and agent again: the run can have waited long since it was admitted. With `interactive`
    look up the keys of the user too, who signed a selection.
    """

    async def look() -> dict[str, Any]:
        directory = environment.ports.directory
        principals_now = await look_up(directory, request, environment.journal.time_us)
        principals = principals_now.to_json() if principals_now else None
        if not interactive:
            return {"principals": principals}
        person = await environment.ports.signer(request.user.user_id)
        return {
            "principals": principals,
            "approver": person.to_json() if person else None,
            "unsafe_local": UNSAFE_LOCAL_OPERATORS in environment.deployment.unsafe_now,
        }

    people: dict[str, Any] = await environment.journal.record(
        "identity.resolved", f"slot/{key}", identity_query(request), look
    )
    return people


def _signed_selection(
    body: Mapping[str, Any], question: SlotQuestion, scope: RunScope, answer_seq: int, people: Mapping[str, Any]
) -> SelectionAct | str:
    """Return the selection that the run's user signed, or a text that says why the selection does not count."""
    try:
        answer = AnsweredSlot.model_validate(body)
    except ValidationError:
        return "the answer holds no signed selection"
    selection, run = answer.selection, scope.run
    expected = slot_answer_act(run.tenant_id, run.run_id, question.origin.principal_id, selection, answer_seq)
    person = Approver.model_validate(people["approver"]) if people["approver"] else None
    if fault := slot_answer_fault(person, answer.act, answer.assertion, expected, unsafe_local=people["unsafe_local"]):
        return fault
    return selection if selection_fits(selection, question.slot, question.origin) else "it is of another slot or run"


def _withdrawn_reason(names: Sequence[str]) -> str:
    return f"of what was picked the user may not take `{'`, `'.join(names)}` any more"


def _with_memberships(scope: RunScope, current: Principals) -> RunScope:
    """Return the scope with the user's current memberships; the rest of the user stays as admitted."""
    user = scope.identity.principals.user.model_copy(update={name: getattr(current.user, name) for name in MEMBERSHIPS})
    principals = scope.identity.principals.model_copy(update={"user": user})
    identity = replace(scope.identity, principals=principals)
    return replace(scope, identity=identity, facts=scope.facts.also({"user": supplied("user", user.to_json())}))


def refresh_question(
    request: InvokeRequest, question: SlotQuestion, known: Principals | None
) -> SlotQuestion | Failure:
    """Return the question with the user's current rights, or a failure if the user may no longer answer it."""
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


def _slot_question(step: SlotStep, scope: RunScope, key: str) -> SlotQuestion | None:
    """Return the question to the user, or None if the scope cannot fill a slot."""
    actor = actor_of(scope.identity.principals)
    project = resolve_binding(step.project, {"request": scope.received.fields}) if step.project is not None else None
    if actor.organization_id is None or not (project is None or (isinstance(project, str) and PARTY.fits(project))):
        return None
    origin = SelectionOrigin(
        org_id=actor.organization_id,
        parent_run_id=scope.run.run_id,
        principal_id=actor.principal_id,
        act_key=key,
        parent_package_name=scope.identity.principals.agent.agent_urn,
    )
    return SlotQuestion(slot=step.slot, actor=actor, project_id=project, origin=origin)


async def _await_answer(
    request: InvokeRequest, admitted: AdmittedRun, question: SlotQuestion, key: str, environment: RunEnvironment
) -> Mapping[str, Any] | Failure:
    """Wait until the user has answered, and return the answer, or the failure if there is no valid one."""
    template = admitted.template(None)
    decision = last_decision(template, None, decisions_of(template, None))
    environment.journal.derive("slot.asked", key, question.to_json())
    record = current_record(environment, request, admitted.scope, RunOutcome(None, (), decision=decision))
    environment.journal.derive("record.revised", f"slot/{key}", record)
    await environment.journal.commit(wake_at_us=0)
    kinds = (SLOT_ANSWER, "run.cancel_requested")
    kind, body = await environment.journal.wait(kinds, key, wake_at_us=0, on_timeout=None)
    environment.barrier.forget()
    if kind == SLOT_ANSWER:
        return dict(body)
    if kind == VOID_ANSWER or await is_unproved(environment.journal, key, body, cancels_of(environment)):
        reason = body if kind == VOID_ANSWER else f"{UNPROVED_CANCEL} ended the wait for an answer"
        return _unfilled_slot(question.slot.slot_id, reason)
    return Failure(code="cancelled", detail=f"the run was cancelled while slot `{question.slot.slot_id}` waited")


def _policy_denial(step: SlotStep, admitted: AdmittedRun, key: str, environment: RunEnvironment) -> Failure | None:
    """Let policy decide about this selection, as a read of the capability `slots.<slot id>`; None if it is allowed."""
    scope, name = admitted.scope, CAPABILITY_PREFIX + step.slot.slot_id
    read_facts = {"kind": "read", "risk_level": "read", "approval_mode": "read_only", "external": False}
    facts: dict[str, Any] = {"capability_id": name, **read_facts}
    decision = admitted.policy.decide(
        "compile",
        scope.facts,
        capability=CapabilityView(name, "read_only", facts),
        granted=True,
        decision_id=derive("pol_", scope.run.run_id, "policy.slot", key),
    )
    environment.journal.derive("policy.decided", f"slot/{key}", {"decisions": [decision.stated()]})
    if decision.must_escalate and not decision.must_refuse:
        return Failure(code="must_escalate", detail=f"a guardrail escalates: {', '.join(decision.must_escalate)}")
    # A slot step has no approval and no evidence check, so a rule that demands one denies the selection.
    if decision.allowed and not (decision.gates or decision.requires or decision.arg_constraints):
        return None
    return Failure(code="policy_denied", detail=f"policy does not let this run fill slot `{step.slot.slot_id}`")


def actor_of(known: Principals) -> SlotActor:
    """Return the run's user in the form that slot selection needs."""
    user = known.user
    return SlotActor(
        principal_id=user.user_id,
        organization_id=user.organization_id,
        team_ids=user.team_ids,
        project_ids=user.project_ids,
        platform_admin=user.platform_admin,
    )


def _evidence_item(slot_id: str, content: PinnedContent, pack: ContextPack) -> EvidenceItem:
    ref, revision = content.ref, content.revision
    value = {
        "scope": ref.source_scope,
        "extension": ref.extension,
        "title": content.title,
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
        classification=pack.pack_meta.data_classification,
        observed_at_us=revision.created_at_us,
        digest=content_address([subject, "context", value]),
        hop=SCOPES.index(ref.source_scope),
    )


def _unfilled_slot(slot_id: str, reason: str) -> Failure:
    return Failure(code="missing_evidence", detail=f"slot `{slot_id}` holds nothing: {reason}")


def _size_failure(slot_id: str, size_bytes: int) -> Failure:
    detail = f"with slot `{slot_id}` the slots of this template hold {size_bytes} bytes, and a compile takes at most"
    return Failure(
        code="budget_exhausted", detail=f"{detail} {MAX_TEMPLATE_BYTES}; lower their `maxItems` or pick less"
    )
