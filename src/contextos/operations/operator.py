"""Operator actions on runs: answer an approval, settle an uncertain effect, cancel. Each is one atomic commit.

A person's act is an entry of the run's own journal, made under the run's expected sequence, together with the
compare-and-set of the document that arbitrates it: of two answers, or an answer and a deadline, one wins and the other
gets a typed refusal. Source: shared/design/contracts.md, "Approval modes", "Run".
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
"""statement -> assertion {`kind`, `token`?}: how a person vouches for an answer or a settlement."""


@dataclass(frozen=True, slots=True)
class SettlementInput:
    """What an operator found out about an effect whose reply was lost. `evidence_ref` says from where they know."""

    happened: bool
    by: str
    evidence_ref: str
    output: Mapping[str, Any] | None = None
    mutations: tuple[str, ...] = ()


def unsafe_local_assertion(_said: Mapping[str, Any]) -> Mapping[str, Any]:
    """The development stand-in for a person's key; refused unless the deployment allows it."""
    return {"kind": "unsafe_local"}


async def answer_approval(
    app: Deployment, tenant_id: str, run_id: str, *, approver_id: str, verdict: str, reason: str, vouch: SignStatement
) -> None:
    """Record an approver's verdict (`approved` or `denied`) on the run's open question.

    Raises:
        ApprovalRefused: this answer does not count: `not_waiting`, `already_answered`, `expired`, `self_approval`,
            `not_approver`, `self_granted`, `not_granted`, `assertion_invalid`, `unsafe_not_allowed`.
        InvalidInput: the verdict is none of the two, or the reason is too long or holds what is hidden.
        NotFound: no such run in this tenant.
        Conflict: something else changed at the same moment and the question is still open; answer again.
    """
    _refuse_answer(verdict, reason)
    store, entries = await _run(app, tenant_id, run_id)
    asked, key, document = await _open_question(store, entries)
    approver = await app.ports.directory.approver(tenant_id, approver_id)
    if approver is None:
        raise ApprovalRefused("not_approver", f"`{approver_id}` is not known as an approver in this tenant")
    said = approval_statement(asked, approver_id, verdict, reason)
    assertion = dict(vouch(said))
    if assertion["kind"] == "unsafe_local" and "unsafe_local_approvals" not in app.config.unsafe:
        raise ApprovalRefused("unsafe_not_allowed", "this deployment takes no answers without the approver's key")
    given = {
        "approver": approver_id,
        "verdict": verdict,
        "reason": reason,
        "binding_digest": asked["binding_digest"],
        "assertion": assertion,
    }
    refused = approval_fault(approver, asked, given)
    if refused:
        raise refused
    now_us = app.ports.clock.now_us()
    if now_us > asked["deadline_us"]:
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request")
    answered = APPROVALS.write(
        asked["approval_id"],
        document.version,
        replace(document.body, state="approved" if verdict == "approved" else "denied", approver=approver_id),
        not_after_us=asked["deadline_us"],
    )
    writes = [answered]
    # Several runs may wait on one act; the first denial of it stays, and this run's question is answered all the same.
    if verdict == "denied" and not await DENIALS.one(store, asked["denial_key"]):
        writes.append(DENIALS.write(asked["denial_key"], 0, Denial(run_id, approver_id)))
    entry = _entry(app, entries, "approval.answered", key, approver_id, given)
    try:
        await store.commit(Batch(run=run_id, entries=(entry,), writes=tuple(writes), wake_at_us=now_us))
    except Conflict:
        # Whoever was first is in the store now; say what this answer lost against.
        await _open_question(store, await store.read(run_id))
        if app.ports.clock.now_us() <= asked["deadline_us"]:
            raise
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request") from None


async def settle_effect(
    app: Deployment, tenant_id: str, run_id: str, settlement: SettlementInput, *, vouch: SignStatement
) -> None:
    """Say whether an effect of unknown outcome happened. Only an operator may, and never of what they asked for.

    This only puts it on record. The run asks again who said so before it goes by it and concludes the act.

    Raises:
        ApprovalRefused: this settlement does not count: `not_waiting`, `already_answered`, `operator_fault`,
            `self_settlement`, `self_granted`, `not_granted`, `assertion_invalid`, `unsafe_not_allowed`.
        InvalidInput: it names no evidence, or what it says does not fit the pinned capability or holds what is hidden.
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
        raise ApprovalRefused("not_waiting", "who asked for it was erased, so nobody is known not to be barred")
    settled = await _settled(app, tenant_id, entries, envelope, settlement)
    said = settlement_statement(run_id, envelope.tool_call_id, settled)
    operator = await app.ports.directory.approver(tenant_id, settled.by)
    settled = settled.model_copy(update={"assertion": dict(vouch(said))})
    refused = settlement_fault(
        operator,
        barred_settlers(principals),
        said,
        settled.assertion,
        unsafe_local="unsafe_local_approvals" in app.config.unsafe,
    )
    if refused:
        raise refused
    result_of_settlement(envelope, settled)  # a run must be able to go by what is kept
    entry = _entry(app, entries, "effect.settled", sent.key.rsplit("/", 1)[0], settled.by, settled.to_json())
    told = {"happened": settled.happened, "evidence_ref": settled.evidence_ref}
    control = _control(app, "effect.settled", run_id, settled.by, told)
    try:
        await store.commit(Batch(run=run_id, entries=(entry,), shared=(control,), wake_at_us=app.ports.clock.now_us()))
    except Conflict:
        detail = f"`{run_id}` changed at the same moment; look at it, and settle again where it still waits"
        raise ApprovalRefused("already_answered", detail) from None


async def request_cancel(app: Deployment, tenant_id: str, run_id: str, *, by: str, reason: str) -> RunView:
    """Ask a run to stop. One that waits for an approval stops now; a dispatched effect is never interrupted.

    `by` is who asked for the run, the agent's owner, or an operator. No signature is asked for: cancelling can only
    stop things, and who says so is as true as the caller of this function makes it.

    Raises:
        ApprovalRefused: the run has ended already (`not_waiting`), or `by` may not stop it (`operator_fault`,
            `self_granted`, `not_granted`).
        InvalidInput: the reason is too long or holds what is hidden.
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
    wish = CANCELS.write(run_id, 0, CancelRequest(by, reason))
    if view.waiting and view.waiting["for"] == "slot" and entries[-1].kind == "record.revised":
        asked_at = entries[-1].key.removeprefix("slot/")
        entry = _entry(app, entries, "run.cancel_requested", asked_at, by, {"by": by, "reason": reason})
        now_us = app.ports.clock.now_us()
        await store.commit(Batch(run=run_id, entries=(entry,), writes=(wish,), shared=(control,), wake_at_us=now_us))
        return await app.view(tenant_id, run_id)
    if view.waiting is None or view.waiting["for"] != "approval":
        await store.commit(Batch(run=run_id, writes=(wish,), shared=(control,)))
        return view
    try:
        asked, key, document = await _open_question(store, entries)
    except ApprovalRefused:
        # It was answered, and not dispatched yet: the wish is looked up when the approval is redeemed.
        await store.commit(Batch(run=run_id, writes=(wish,), shared=(control,)))
        return view
    void = APPROVALS.write(asked["approval_id"], document.version, replace(document.body, state="cancelled"))
    entry = _entry(app, entries, "run.cancel_requested", key, by, {"by": by, "reason": reason})
    now_us = app.ports.clock.now_us()
    await store.commit(Batch(run=run_id, entries=(entry,), writes=(wish, void), shared=(control,), wake_at_us=now_us))
    return await app.view(tenant_id, run_id)


def _refuse_answer(verdict: str, reason: str) -> None:
    """What is said is kept in the record, so it is looked at before it is."""
    if verdict not in ("approved", "denied"):
        raise InvalidInput(Problem("/verdict", "unknown_verdict", f"`{verdict[:40]}` is no verdict", "approve or deny"))
    _refuse_reason(reason)


def _refuse_reason(reason: str) -> None:
    if len(reason) > MAX_REASON_CHARS:
        detail = f"the reason has more than {MAX_REASON_CHARS} characters"
        raise InvalidInput(Problem("/reason", "too_long", detail, "say it shorter"))
    canonical(reason)  # half a character is no text
    if unsafe := scan_unsafe(reason, declared_text=True):
        raise InvalidInput(Problem("/reason", unsafe[0].code, unsafe[0].detail, "say it without"))


async def erase_entry(app: Deployment, tenant_id: str, run_id: str, seq: int, *, by: str, reason: str) -> None:
    """Forget the body of one entry because the law asks for it. The chain still verifies, and the act is on record.

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
    asked = [entry for entry in entries if entry.kind == "approval.asked"]
    if not asked:
        raise ApprovalRefused("not_waiting", "the run waits for no approval")
    if asked[-1].body is None:
        raise ApprovalRefused("not_waiting", "what the run asks was erased, so nobody can answer it; cancel the run")
    question = orjson.loads(asked[-1].body)
    document = await APPROVALS.one(store, question["approval_id"])
    assert document is not None, "a question and its document are written in one commit"
    state = document.body.state
    if state == "expired":
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request")
    if state != "open":
        raise ApprovalRefused("already_answered", f"the question was answered before: `{state}`")
    return question, asked[-1].key, document


def _entry(app: Deployment, entries: Sequence[Entry], kind: str, key: str, by: str, given: Mapping[str, Any]) -> Entry:
    return append(
        entries, kind, key, by=by, answer=dict(given), at_us=app.ports.clock.now_us(), salt=app.ports.entropy.take(16)
    )


def _control(app: Deployment, kind: str, run_id: str, by: str, body: Mapping[str, Any]) -> tuple[str, Draft]:
    """The line that an operator's act leaves in the tenant's control stream."""
    raw = canonical({"run": run_id, "by": by, **body})
    return CONTROL, Draft(kind, run_id, app.ports.clock.now_us(), by, raw, app.ports.entropy.take(16))


async def _settled(
    app: Deployment, tenant_id: str, entries: Sequence[Entry], envelope: ToolCallEnvelope, settlement: SettlementInput
) -> Settled:
    """What is said, as it may be kept: well-formed, fit for the capability as it was pinned, redacted by the pack."""
    said: dict[str, Any] = {
        "happened": settlement.happened,
        "by": settlement.by,
        "evidence_ref": settlement.evidence_ref,
        "output": None if settlement.output is None else dict(settlement.output),
        "mutations": list(settlement.mutations),
        "assertion": {},
    }
    settled = parse(Settled, said)
    if not settled.happened:
        return settled
    pinned = next((_body_of(entry)["answer"] for entry in entries if entry.kind == "run.pinned"), None)
    assert pinned is not None, "a call was dispatched by a run that is pinned"
    loaded = await app.catalog(tenant_id).load(pinned)
    capability = app.registry.register(loaded.definitions)[envelope.capability_id]
    if len(canonical(settled.output)) > MAX_OUTPUT_BYTES:
        detail = f"the output has more than {MAX_OUTPUT_BYTES} bytes"
        raise InvalidInput(Problem("/output", "too_large", detail, "state what the schema asks for"))
    problem = app.registry.check(capability, "output", settled.output)
    if problem:
        raise InvalidInput(replace(problem, pointer=f"/output{problem.pointer}"))
    kept, _ = redact(
        {"output": settled.output, "mutations": list(settled.mutations)},
        loaded.pack.policy_layer.guardrails.redaction_rules,
    )
    if unsafe := scan_unsafe(kept, declared_text=True):
        raise InvalidInput(*(replace(one, remedy="state it without") for one in unsafe))
    assert isinstance(kept, dict), "redaction keeps the shape"
    return parse(Settled, {**said, **kept})


def _principals(entries: Sequence[Entry]) -> Principals | None:
    """Who asked and who acts, as the run has it on record; None where it does not say, or does not say any more."""
    known = next((entry for entry in entries if entry.kind == "identity.resolved" and not entry.key), None)
    if known is None or known.body is None:
        return None
    found = orjson.loads(known.body)["answer"]["principals"]
    return Principals.model_validate(found) if found else None


def _body_of(entry: Entry) -> Any:
    if entry.body is None:
        detail = f"entry {entry.seq} (`{entry.kind}`) was erased, and nobody can settle without it"
        raise ApprovalRefused("not_waiting", detail)
    return orjson.loads(entry.body)
