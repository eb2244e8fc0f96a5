"""Answer a run that waits for its user to select artifacts for a context slot.

The user's act is signed and is recorded in the run, which writes it to the audit of slots itself.
Source: docs/design/contracts.md, "Context slots"; docs/adr/0025-a-run-writes-its-selections-from-its-journal.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from contextos.context.slots.resolve import manifest_of
from contextos.contracts.acts import ProposedAct
from contextos.contracts.encoding.codec import parse
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.slots import PickRefused, Selected, SlotQuestion, SlotResolution
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Batch, Entry
from contextos.contracts.ports.seams import SlotSteps
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_signed
from contextos.deployment.acts.checks import answerable_run
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries.run_view import run_view
from contextos.errors import ApprovalRefused
from contextos.runtime.inputs.slot_steps import refresh_question
from contextos.trust.approvals.acts import SLOT_ANSWER, slot_answer_arguments
from contextos.trust.approvals.people import signer
from contextos.trust.identity.principals import look_up
from contextos.trust.journal.chain import append
from contextos.trust.journal.signed_heads import answered_line
from contextos.trust.recorded_time import recorded_now_us


async def read_offer(
    app: Deployment, tenant_id: str, run_id: str, *, by: str, verified: Sequence[Entry] | None = None
) -> tuple[SlotQuestion, SlotResolution]:
    """Return what a run asks a user to select for a context slot, and the artifacts that this user can select now.
    `verified` as in `answerable_run`.

    Raises:
        ApprovalRefused: the run waits for no selection (`not_waiting`), asks another user (`not_asked`), or its user
            has changed in the directory (`identity_refused`).
        ChainBroken: an entry of the run was altered.
        NotFound: no such run in this tenant.
        OtherEnvironment: this deployment serves another environment than that of the run.
    """
    _, question, _, steps = await _open_question(app, tenant_id, run_id, by, verified)
    return question, await steps.offer(question.slot, question.actor, question.project_id)


@Act
async def answer_slot(
    app: Deployment,
    tenant_id: str,
    run_id: str,
    answer: bytes,
    *,
    by: Actor,
    selected_at_us: int | None = None,
    verified: Sequence[Entry] | None = None,
) -> ActProposal[Selected | PickRefused]:
    """Record the user's selection in the run and wake it. `by` is the run's user, who signs the selection.

    `selected_at_us` is when they select, in Unix microseconds; now if it is None. `verified` as in `answerable_run`.

    Raises:
        ApprovalRefused: as `read_offer`, or the selection is not signed by the user's key (`assertion_invalid`,
            `unsafe_not_allowed`).
        ChainBroken, NotFound, OtherEnvironment: as `read_offer`.
        Conflict: another process answered at the same moment; look at the run.
    """
    entries, question, key, steps = await _open_question(app, tenant_id, run_id, by.id, verified)
    chosen = await steps.choose(question.slot, question.actor, question.project_id, question.origin, answer)
    if isinstance(chosen, PickRefused):
        return ActProposal.of_nothing(by, chosen)
    if selected_at_us is not None:
        chosen = chosen.model_copy(update={"selected_at_us": selected_at_us})
    selection = chosen
    proposed = ProposedAct(SLOT_ANSWER, run_id, slot_answer_arguments(run_id, selection), expected=len(entries))

    async def write(signed: Sequence[Mapping[str, Any]]) -> Selected | PickRefused:
        body = {"selection": selection.to_json(), "act": signed[0]["act"], "assertion": signed[0]["assertion"]}
        manifest = manifest_of(await steps.contents(selection))
        at_us, salt = await recorded_now_us(app.ports, tenant_id), app.ports.entropy.take(16)
        entry = append(entries, "slot.answered", key, by=by.id, answer=body, at_us=at_us, salt=salt)
        index_draft, wake_at_us = answered_line(entry, app.ports.entropy), app.ports.clock.now_us()
        batch = Batch(run=run_id, entries=(entry,), shared=(index_draft,), wake_at_us=wake_at_us)
        await app.ports.stores.tenant(tenant_id).commit(batch)
        return Selected(act=selection, manifest=manifest, wrote=True)

    look_up_signer = partial(signer, app.ports, tenant_id, by.id)
    return propose_signed(app.config, tenant_id, [proposed], by, look_up_signer, write, own_run=True)


async def _open_question(
    app: Deployment, tenant_id: str, run_id: str, by: str, verified: Sequence[Entry] | None
) -> tuple[Sequence[Entry], SlotQuestion, str, SlotSteps]:
    """Return the verified entries of the run, its open question with the user's current rights, and the slot steps."""
    _, entries = await answerable_run(app, tenant_id, run_id, "selected", verified)
    view = run_view(tenant_id, run_id, entries)
    questions = [entry for entry in entries if entry.kind == "slot.asked"]
    is_open = view.waiting is not None and view.waiting["for"] == "slot" and entries[-1].kind == "record.revised"
    body = read_body(entries[0])
    if not is_open or questions[-1].body is None or body is None or app.ports.slots is None:
        raise ApprovalRefused("not_waiting", f"`{run_id}` waits for no selection; it is `{view.state}`")
    question = SlotQuestion.model_validate(read_body(questions[-1]))
    if by != question.actor.principal_id:
        raise ApprovalRefused("not_asked", f"only `{question.actor.principal_id}` can answer this run")
    request = parse(InvokeRequest, body["request"])
    principals = await look_up(app.ports.directory, request, await recorded_now_us(app.ports, tenant_id))
    refreshed = refresh_question(request, question, principals)
    if isinstance(refreshed, Failure):
        raise ApprovalRefused("identity_refused", refreshed.detail)
    return entries, refreshed, questions[-1].key, app.ports.slots(tenant_id)
