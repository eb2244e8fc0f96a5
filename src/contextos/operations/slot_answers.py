"""A run waits for a pick: what it is asked, and the user's answer. The run reads the pick itself from the audit.

A pick that does not count is told with its reason, and the run goes on waiting. `by` must be the user whom the run
asked; who that is, is as true as the caller of these functions makes it. What they may see is what the directory says
now, and not what it said when the run asked.
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
    """What was picked before and not told to the run, which goes on with it: another answer came now, and is lost."""

    act: SelectionAct


async def read_offer(app: Deployment, tenant_id: str, run_id: str, *, by: str) -> tuple[SlotQuestion, SlotResolution]:
    """What the run asks, and what its slot may take now, as its user may see it now.

    Raises:
        ApprovalRefused: the run waits for no pick (`not_waiting`), asked somebody else (`not_asked`), or its user is
            not who they were (`identity_refused`).
        NotFound: no such run in this tenant.
    """
    _, question, _, steps = await _open(app, tenant_id, run_id, by)
    return question, await steps.offer(question.slot, question.actor, question.project_id)


async def answer_slot(
    app: Deployment, tenant_id: str, run_id: str, answer: bytes, *, by: str
) -> Selected | AlreadyAnswered | PickRefused:
    """Record the user's pick and wake the run. What was recorded before and not told to the run stands.

    Raises:
        ApprovalRefused: as `read_offer`.
        NotFound: no such run in this tenant.
        Conflict: somebody answered at the same moment; look at the run.
    """
    entries, question, key, steps = await _open(app, tenant_id, run_id, by)
    told = read_answer(question.slot, answer)
    if isinstance(told, PickRefused):
        return told
    made: Selected | AlreadyAnswered | PickRefused
    if (before := await steps.recorded(question.slot, question.origin)) is None:
        made = await steps.answer(question.slot, question.actor, question.project_id, question.origin, answer)
    elif picks_same(told, before):
        # Without titles: what was picked then may be out of its user's reach by now; then the run takes none of it.
        made = Selected(act=before, manifest=(), wrote=False)
    else:
        made = AlreadyAnswered(before)
    if isinstance(made, PickRefused):
        return made
    now_us = app.ports.clock.now_us()
    said = {"selection_id": made.act.selection_id}
    entry = append(entries, "slot.answered", key, by=by, answer=said, at_us=now_us, salt=app.ports.entropy.take(16))
    await app.ports.stores.tenant(tenant_id).commit(Batch(run=run_id, entries=(entry,), wake_at_us=now_us))
    return made


async def _open(
    app: Deployment, tenant_id: str, run_id: str, by: str
) -> tuple[Sequence[Entry], SlotQuestion, str, SlotSteps]:
    entries = await app.ports.stores.tenant(tenant_id).read(run_id)
    if not entries:
        raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
    view = run_view(tenant_id, run_id, entries)
    asked = [entry for entry in entries if entry.kind == "slot.asked"]
    open_now = view.waiting is not None and view.waiting["for"] == "slot" and entries[-1].kind == "record.revised"
    received = entries[0].body
    if not open_now or asked[-1].body is None or received is None or app.ports.slots is None:
        raise ApprovalRefused("not_waiting", f"`{run_id}` waits for no pick; it is `{view.state}`")
    question = SlotQuestion.model_validate(orjson.loads(asked[-1].body))
    if by != question.actor.principal_id:
        raise ApprovalRefused("not_asked", f"the run asks `{question.actor.principal_id}` and nobody else")
    request = parse(InvokeRequest, orjson.loads(received)["answer"]["request"])
    known = await app.ports.directory.resolve(tenant_id, request.user.user_id, request.agent.agent_id)
    now = refresh_question(request, question, known)
    if isinstance(now, Failure):
        raise ApprovalRefused("identity_refused", now.detail)
    return entries, now, asked[-1].key, app.ports.slots(tenant_id)
