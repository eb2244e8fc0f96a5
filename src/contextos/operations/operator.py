"""Operator actions on runs: answer an approval, settle an uncertain effect, cancel, erase. Each is one atomic commit.

An action appends an entry to the run's own journal, at the expected sequence, and updates one document with
compare-and-set. Of two answers, or of an answer and a deadline, one wins and the other raises `ApprovalRefused`.
Source: docs/design/contracts.md, "Approval modes", "Run".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from contextos.action.gateway.result_validation import MAX_OUTPUT_BYTES, result_of_settlement
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import APPROVALS, DENIALS, ApprovalDocument, Denial
from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import Principals
from contextos.contracts.envelopes.tool import Settled, ToolCallEnvelope
from contextos.contracts.journal import CONTROL, Batch, Draft, Entry
from contextos.contracts.ports.storage import Store
from contextos.errors import ApprovalRefused, Conflict, InvalidInput, NotFound, Problem
from contextos.operations.deployment import Deployment
from contextos.queries.run_view import RunView, run_view
from contextos.trust.approvals.assertion import approval_fault, approval_statement
from contextos.trust.approvals.settlement import barred_settlers, operator_fault, settlement_fault, settlement_statement
from contextos.trust.journal.chain import append
from contextos.trust.redact import redact, scan_unsafe

MAX_REASON_CHARS: Final = 2_000

SignStatement = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""statement -> assertion {`kind`, `token`?}: signs an answer or a settlement."""


@dataclass(frozen=True, slots=True)
class SettlementInput:
    """An operator's statement about an effect whose reply was lost. `evidence_ref` names the evidence for it."""

    happened: bool
    by: str
    evidence_ref: str
    output: Mapping[str, Any] | None = None
    mutations: tuple[str, ...] = ()


def unsafe_local_assertion(_statement: Mapping[str, Any]) -> Mapping[str, Any]:
    """The development stand-in for a person's key; refused unless the deployment allows it."""
    return {"kind": "unsafe_local"}


async def answer_approval(
    app: Deployment, tenant_id: str, run_id: str, *, approver_id: str, verdict: str, reason: str, vouch: SignStatement
) -> None:
    """Record an approver's verdict (`approved` or `denied`) on the run's open question.

    Raises:
        ApprovalRefused: this answer does not count: `not_waiting`, `already_answered`, `expired`, `self_approval`,
            `not_approver`, `self_granted`, `not_granted`, `assertion_invalid`, `unsafe_not_allowed`.
        InvalidInput: the verdict is neither of the two, or the reason is too long or contains unsafe text.
        NotFound: no such run in this tenant.
        Conflict: another process changed the run at the same moment and the question is still open; answer again.
    """
    _refuse_answer(verdict, reason)
    store, entries = await _run(app, tenant_id, run_id)
    question, key, document = await _open_question(store, entries)
    approver = await app.ports.directory.approver(tenant_id, approver_id)
    if approver is None:
        raise ApprovalRefused("not_approver", f"`{approver_id}` is not known as an approver in this tenant")
    statement = approval_statement(question, approver_id, verdict, reason)
    assertion = dict(vouch(statement))
    if assertion["kind"] == "unsafe_local" and "unsafe_local_approvals" not in app.config.unsafe:
        raise ApprovalRefused("unsafe_not_allowed", "this deployment takes no answers without the approver's key")
    answer = {
        "approver": approver_id,
        "verdict": verdict,
        "reason": reason,
        "binding_digest": question["binding_digest"],
        "assertion": assertion,
    }
    refused = approval_fault(approver, question, answer)
    if refused:
        raise refused
    now_us = app.ports.clock.now_us()
    if now_us > question["deadline_us"]:
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request")
    write = APPROVALS.write(
        question["approval_id"],
        document.version,
        replace(document.body, state="approved" if verdict == "approved" else "denied", approver=approver_id),
        not_after_us=question["deadline_us"],
    )
    writes = [write]
    # Several runs can wait for an approval of one effect: the first denial is kept, and this question is answered too.
    if verdict == "denied" and not await DENIALS.one(store, question["denial_key"]):
        writes.append(DENIALS.write(question["denial_key"], 0, Denial(run_id, approver_id)))
    entry = _entry(app, entries, "approval.answered", key, approver_id, answer)
    try:
        await store.commit(Batch(run=run_id, entries=(entry,), writes=tuple(writes), wake_at_us=now_us))
    except Conflict:
        # The store now holds the answer that won; `_open_question` raises the refusal that names it.
        await _open_question(store, await store.read(run_id))
        if app.ports.clock.now_us() <= question["deadline_us"]:
            raise
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request") from None


async def settle_effect(
    app: Deployment, tenant_id: str, run_id: str, settlement: SettlementInput, *, vouch: SignStatement
) -> None:
    """Record whether an effect of unknown outcome happened. Only an operator can, and not for their own request.

    The settlement is only recorded here. The run checks the operator again before it uses it and finishes the effect.

    Raises:
        ApprovalRefused: this settlement does not count: `not_waiting`, `already_answered`, `operator_fault`,
            `self_settlement`, `self_granted`, `not_granted`, `assertion_invalid`, `unsafe_not_allowed`.
        InvalidInput: it names no evidence, does not match the pinned capability, or contains unsafe text.
        NotFound: no such run in this tenant.
    """
    store, entries = await _run(app, tenant_id, run_id)
    waiting = run_view(tenant_id, run_id, entries).waiting
    sent = next((entry for entry in reversed(entries) if entry.kind == "tool.dispatching"), None)
    if sent is None or entries[-1].kind != "record.revised" or waiting is None or waiting["for"] != "settlement":
        raise ApprovalRefused("not_waiting", f"`{run_id}` has no effect to settle")
    envelope = ToolCallEnvelope.model_validate(_body_of(sent)["envelope"])
    principals = _principals(entries)
    if principals is None:
        raise ApprovalRefused(
            "not_waiting", "the requester was erased, so it cannot be checked who is barred from settling"
        )
    settled = await _settled(app, tenant_id, entries, envelope, settlement)
    statement = settlement_statement(run_id, envelope.tool_call_id, settled)
    operator = await app.ports.directory.approver(tenant_id, settled.by)
    settled = settled.model_copy(update={"assertion": dict(vouch(statement))})
    refused = settlement_fault(
        operator,
        barred_settlers(principals),
        statement,
        settled.assertion,
        unsafe_local="unsafe_local_approvals" in app.config.unsafe,
    )
    if refused:
        raise refused
    result_of_settlement(envelope, settled)  # raises where the run could not use the settlement
    entry = _entry(app, entries, "effect.settled", sent.key.rsplit("/", 1)[0], settled.by, settled.to_json())
    summary = {"happened": settled.happened, "evidence_ref": settled.evidence_ref}
    control = _control(app, "effect.settled", run_id, settled.by, summary)
    try:
        await store.commit(Batch(run=run_id, entries=(entry,), shared=(control,), wake_at_us=app.ports.clock.now_us()))
    except Conflict:
        detail = f"`{run_id}` changed at the same moment; look at it, and settle again if it still waits"
        raise ApprovalRefused("already_answered", detail) from None


async def request_cancel(app: Deployment, tenant_id: str, run_id: str, *, by: str, reason: str) -> RunView:
    """Request that a run stops. A run that waits for an approval stops now; a dispatched effect is never interrupted.

    `by` is the run's user, the agent's owner, or an operator. It needs no signature, because cancelling can only stop
    things: the caller of this function vouches for `by`.

    Raises:
        ApprovalRefused: the run has ended already (`not_waiting`), or `by` is not allowed to stop it
            (`operator_fault`, `self_granted`, `not_granted`).
        InvalidInput: the reason is too long or contains unsafe text.
    """
    _refuse_reason(reason)
    store, entries = await _run(app, tenant_id, run_id)
    view = run_view(tenant_id, run_id, entries)
    if view.ended:
        raise ApprovalRefused("not_waiting", f"`{run_id}` has ended as `{view.state}`")
    principals = _principals(entries)
    if principals is None or by not in (principals.user.user_id, principals.agent.owner):
        refused = operator_fault(await app.ports.directory.approver(tenant_id, by), by)
        if refused:
            raise refused
    if await CANCELS.one(store, run_id):
        return view
    control = _control(app, "run.cancelled", run_id, by, {"reason": reason})
    cancel_request = CANCELS.write(run_id, 0, CancelRequest(by, reason))
    if view.waiting and view.waiting["for"] == "slot" and entries[-1].kind == "record.revised":
        question_key = entries[-1].key.removeprefix("slot/")
        entry = _entry(app, entries, "run.cancel_requested", question_key, by, {"by": by, "reason": reason})
        now_us = app.ports.clock.now_us()
        await store.commit(
            Batch(run=run_id, entries=(entry,), writes=(cancel_request,), shared=(control,), wake_at_us=now_us)
        )
        return await app.view(tenant_id, run_id)
    if view.waiting is None or view.waiting["for"] != "approval":
        await store.commit(Batch(run=run_id, writes=(cancel_request,), shared=(control,)))
        return view
    try:
        question, key, document = await _open_question(store, entries)
    except ApprovalRefused:
        # It was answered and is not dispatched yet: the cancel request is looked up when the approval is redeemed.
        await store.commit(Batch(run=run_id, writes=(cancel_request,), shared=(control,)))
        return view
    void = APPROVALS.write(question["approval_id"], document.version, replace(document.body, state="cancelled"))
    entry = _entry(app, entries, "run.cancel_requested", key, by, {"by": by, "reason": reason})
    now_us = app.ports.clock.now_us()
    await store.commit(
        Batch(run=run_id, entries=(entry,), writes=(cancel_request, void), shared=(control,), wake_at_us=now_us)
    )
    return await app.view(tenant_id, run_id)


def _refuse_answer(verdict: str, reason: str) -> None:
    """Check a verdict and its reason before they are recorded."""
    if verdict not in ("approved", "denied"):
        raise InvalidInput(Problem("/verdict", "unknown_verdict", f"`{verdict[:40]}` is no verdict", "approve or deny"))
    _refuse_reason(reason)


def _refuse_reason(reason: str) -> None:
    if len(reason) > MAX_REASON_CHARS:
        detail = f"the reason has more than {MAX_REASON_CHARS} characters"
        raise InvalidInput(Problem("/reason", "too_long", detail, "shorten it"))
    canonical(reason)  # raises for a lone surrogate
    if unsafe := scan_unsafe(reason, declared_text=True):
        raise InvalidInput(Problem("/reason", unsafe[0].code, unsafe[0].detail, "remove it"))


async def erase_entry(app: Deployment, tenant_id: str, run_id: str, seq: int, *, by: str, reason: str) -> None:
    """Erase the body of one entry, as the law can require. The chain still verifies, and the erasure is recorded.

    Raises:
        NotFound: there is no such entry.
    """
    store, entries = await _run(app, tenant_id, run_id)
    if not 1 <= seq <= len(entries):
        raise NotFound(f"`{run_id}` has no entry {seq}; look at it with `contextos show {run_id}`")
    control = _control(app, "entry.erased", run_id, by, {"seq": seq, "reason": reason})
    await store.commit(Batch(run=run_id, shared=(control,)))
    await app.ports.stores.erase(tenant_id, run_id, seq)


async def _run(app: Deployment, tenant_id: str, run_id: str) -> tuple[Store, Sequence[Entry]]:
    store = app.ports.stores.tenant(tenant_id)
    entries = await store.read(run_id)
    if not entries:
        raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
    return store, entries


async def _open_question(
    store: Store, entries: Sequence[Entry]
) -> tuple[dict[str, Any], str, StoredDocument[ApprovalDocument]]:
    """The run's open question, its key and its document. Raises `ApprovalRefused` where there is none."""
    questions = [entry for entry in entries if entry.kind == "approval.asked"]
    if not questions:
        raise ApprovalRefused("not_waiting", "the run waits for no approval")
    if questions[-1].body is None:
        raise ApprovalRefused("not_waiting", "the question was erased, so nobody can answer it; cancel the run")
    question = orjson.loads(questions[-1].body)
    document = await APPROVALS.one(store, question["approval_id"])
    assert document is not None, "a question and its document are written in one commit"
    state = document.body.state
    if state == "expired":
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request")
    if state != "open":
        raise ApprovalRefused("already_answered", f"the question was answered before: `{state}`")
    return question, questions[-1].key, document


def _entry(app: Deployment, entries: Sequence[Entry], kind: str, key: str, by: str, answer: Mapping[str, Any]) -> Entry:
    return append(
        entries, kind, key, by=by, answer=dict(answer), at_us=app.ports.clock.now_us(), salt=app.ports.entropy.take(16)
    )


def _control(app: Deployment, kind: str, run_id: str, by: str, body: Mapping[str, Any]) -> tuple[str, Draft]:
    """The entry that records an operator's action in the tenant's control stream."""
    raw = canonical({"run": run_id, "by": by, **body})
    return CONTROL, Draft(kind, run_id, app.ports.clock.now_us(), by, raw, app.ports.entropy.take(16))


async def _settled(
    app: Deployment, tenant_id: str, entries: Sequence[Entry], envelope: ToolCallEnvelope, settlement: SettlementInput
) -> Settled:
    """The settlement as it is recorded: valid, checked against the pinned capability, redacted by the pack's rules."""
    fields: dict[str, Any] = {
        "happened": settlement.happened,
        "by": settlement.by,
        "evidence_ref": settlement.evidence_ref,
        "output": None if settlement.output is None else dict(settlement.output),
        "mutations": list(settlement.mutations),
        "assertion": {},
    }
    settled = parse(Settled, fields)
    if not settled.happened:
        return settled
    pinned = next((_body_of(entry)["answer"] for entry in entries if entry.kind == "run.pinned"), None)
    assert pinned is not None, "a call was dispatched by a run that is pinned"
    loaded = await app.catalog(tenant_id).load(pinned)
    capability = app.registry.register(loaded.definitions)[envelope.capability_id]
    if len(canonical(settled.output)) > MAX_OUTPUT_BYTES:
        detail = f"the output has more than {MAX_OUTPUT_BYTES} bytes"
        raise InvalidInput(Problem("/output", "too_large", detail, "state only the fields of the schema"))
    problem = app.registry.check(capability, "output", settled.output)
    if problem:
        raise InvalidInput(replace(problem, pointer=f"/output{problem.pointer}"))
    redacted, _ = redact(
        {"output": settled.output, "mutations": list(settled.mutations)},
        loaded.pack.policy_layer.guardrails.redaction_rules,
    )
    if unsafe := scan_unsafe(redacted, declared_text=True):
        raise InvalidInput(*(replace(one, remedy="remove it") for one in unsafe))
    assert isinstance(redacted, dict), "redaction keeps the shape"
    return parse(Settled, {**fields, **redacted})


def _principals(entries: Sequence[Entry]) -> Principals | None:
    """The recorded user and agent of a run; None if they were never recorded or were erased."""
    known = next((entry for entry in entries if entry.kind == "identity.resolved" and not entry.key), None)
    if known is None or known.body is None:
        return None
    found = orjson.loads(known.body)["answer"]["principals"]
    return Principals.model_validate(found) if found else None


def _body_of(entry: Entry) -> Any:
    if entry.body is None:
        detail = f"entry {entry.seq} (`{entry.kind}`) was erased, so the effect cannot be settled"
        raise ApprovalRefused("not_waiting", detail)
    return orjson.loads(entry.body)
