"""Answer a run that waits for a user to fill a slot. The run reads the selection itself from the audit log.

A selection that is not valid is refused with a reason, and the run still waits. `by` must be the user whom the run
asks; the caller of these functions vouches for it. What the user can see is what the directory states now, not what it
stated when the run began to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.slots import PickRefused, Selected, SelectionAct, SlotQuestion, SlotResolution
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Batch, Entry
from contextos.contracts.ports.seams import SlotSteps
from contextos.errors import ApprovalRefused, NotFound
from contextos.operations.deployment import Deployment
from contextos.queries.run_view import run_view
from contextos.runtime.slot_steps import refresh_question
from contextos.slots.select import picks_same, read_answer
from contextos.trust.journal.chain import append


@dataclass(frozen=True, slots=True)
class AlreadyAnswered:
    """An earlier selection that the run has not read yet. The run continues with it, and the new answer is dropped."""

    act: SelectionAct


async def read_offer(app: Deployment, tenant_id: str, run_id: str, *, by: str) -> tuple[SlotQuestion, SlotResolution]:
    """The run's question, and the artifacts that its slot accepts and its user can see now.

    Raises:
        ApprovalRefused: the run waits for no selection (`not_waiting`), asks another user (`not_asked`), or its user
            has changed in the directory (`identity_refused`).
        NotFound: no such run in this tenant.
    """
    _, question, _, steps = await _open(app, tenant_id, run_id, by)
    return question, await steps.offer(question.slot, question.actor, question.project_id)


async def answer_slot(
    app: Deployment, tenant_id: str, run_id: str, answer: bytes, *, by: str
) -> Selected | AlreadyAnswered | PickRefused:
    """Record the user's selection and wake the run. A selection that was recorded before and not read yet is kept.

    Raises:
        ApprovalRefused: as `read_offer`.
        NotFound: no such run in this tenant.
        Conflict: another process answered at the same moment; look at the run.
    """
    entries, question, key, steps = await _open(app, tenant_id, run_id, by)
    pick = read_answer(question.slot, answer)
    if isinstance(pick, PickRefused):
        return pick
    result: Selected | AlreadyAnswered | PickRefused
    if (before := await steps.recorded(question.slot, question.origin)) is None:
        result = await steps.answer(question.slot, question.actor, question.project_id, question.origin, answer)
    elif picks_same(pick, before):
        # Without titles: if the user can no longer see these artifacts, the run takes none of them.
        result = Selected(act=before, manifest=(), wrote=False)
    else:
        result = AlreadyAnswered(before)
    if isinstance(result, PickRefused):
        return result
    now_us = app.ports.clock.now_us()
    body = {"selection_id": result.act.selection_id}
    entry = append(entries, "slot.answered", key, by=by, answer=body, at_us=now_us, salt=app.ports.entropy.take(16))
    await app.ports.stores.tenant(tenant_id).commit(Batch(run=run_id, entries=(entry,), wake_at_us=now_us))
    return result


async def _open(
    app: Deployment, tenant_id: str, run_id: str, by: str
) -> tuple[Sequence[Entry], SlotQuestion, str, SlotSteps]:
    entries = await app.ports.stores.tenant(tenant_id).read(run_id)
    if not entries:
        raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
    view = run_view(tenant_id, run_id, entries)
    questions = [entry for entry in entries if entry.kind == "slot.asked"]
    open_now = view.waiting is not None and view.waiting["for"] == "slot" and entries[-1].kind == "record.revised"
    received = entries[0].body
    if not open_now or questions[-1].body is None or received is None or app.ports.slots is None:
        raise ApprovalRefused("not_waiting", f"`{run_id}` waits for no selection; it is `{view.state}`")
    question = SlotQuestion.model_validate(orjson.loads(questions[-1].body))
    if by != question.actor.principal_id:
        raise ApprovalRefused("not_asked", f"only `{question.actor.principal_id}` can answer this run")
    request = parse(InvokeRequest, orjson.loads(received)["answer"]["request"])
    known = await app.ports.directory.resolve(tenant_id, request.user.user_id, request.agent.agent_id)
    now = refresh_question(request, question, known)
    if isinstance(now, Failure):
        raise ApprovalRefused("identity_refused", now.detail)
    return entries, now, questions[-1].key, app.ports.slots(tenant_id)
