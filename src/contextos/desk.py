"""What operators do to runs: answer an approval, settle an uncertain effect, cancel. Each is one atomic commit.

A person's act is an entry of the run's own journal, made under the run's expected sequence, together with the
compare-and-set of the document that arbitrates it: of two answers, or an answer and a deadline, one wins and the other
gets a typed refusal. Source: shared/design/contracts.md, "Approval modes", "Run".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from contextos.contracts.codec import canonical
from contextos.contracts.journal import CONTROL, Batch, Document, Draft, Entry, Write
from contextos.contracts.ports import Store
from contextos.deployment import Deployment, RunView, view_of
from contextos.errors import ApprovalRefused, Conflict, InvalidInput, NotFound, Problem
from contextos.trust.assertion import asserted, statement
from contextos.trust.ledger import append
from contextos.trust.redact import scan_unsafe

MAX_REASON_CHARS: Final = 2_000

Assert = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""statement -> assertion {`kind`, `token`?}: how the approver vouches for an answer."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a person found out about an effect whose reply was lost. `evidence_ref` says from where they know."""

    happened: bool
    by: str
    evidence_ref: str
    output: Mapping[str, Any] | None = None
    mutations: tuple[str, ...] = ()


def unsafe_local(_said: Mapping[str, Any]) -> Mapping[str, Any]:
    """The development stand-in for an approver's key; refused unless the deployment allows it."""
    return {"kind": "unsafe_local"}


async def answer(
    app: Deployment, tenant_id: str, run_id: str, *, approver_id: str, verdict: str, reason: str, vouch: Assert
) -> None:
    """Record an approver's verdict (`approved` or `denied`) on the run's open question.

    Raises:
        ApprovalRefused: this answer does not count: `not_waiting`, `already_answered`, `expired`, `self_approval`,
            `not_approver`, `self_granted`, `assertion_invalid`, `unsafe_not_allowed`.
        InvalidInput: the verdict is none of the two, or the reason is too long or holds what is hidden.
        NotFound: no such run in this tenant.
    """
    _refuse_answer(verdict, reason)
    store, entries = await _run(app, tenant_id, run_id)
    asked, key, document = await _open_question(store, entries)
    approver = await app.ports.directory.approver(tenant_id, approver_id)
    if approver is None:
        raise ApprovalRefused("not_approver", f"`{approver_id}` is not known as an approver in this tenant")
    said = statement(asked, approver_id, verdict, reason)
    assertion = dict(vouch(said))
    if assertion["kind"] == "unsafe_local" and "unsafe_local_approvals" not in app.unsafe:
        raise ApprovalRefused("unsafe_not_allowed", "this deployment takes no answers without the approver's key")
    given = {
        "approver": approver_id, "verdict": verdict, "reason": reason, "binding_digest": asked["binding_digest"],
        "assertion": assertion,
    }  # fmt: skip
    refused = asserted(approver, asked, given)
    if refused:
        raise refused
    body = orjson.loads(document.body)
    now_us = app.ports.clock.now_us()
    if now_us > asked["deadline_us"]:
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request")
    answered = Write(
        "approvals", asked["approval_id"], document.version, orjson.dumps({**body, "state": verdict, "approver": approver_id}),
        not_after_us=asked["deadline_us"],
    )  # fmt: skip
    writes = [answered]
    if verdict == "denied":
        writes.append(
            Write("denials", asked["denial_key"], 0, orjson.dumps({"run_id": run_id, "approver": approver_id}))
        )
    entry = _entry(app, entries, "approval.answered", key, approver_id, given)
    try:
        await store.commit(Batch(run=run_id, entries=(entry,), writes=tuple(writes), wake_at_us=now_us))
    except Conflict:
        # Whoever was first is in the store now; say what this answer lost against.
        await _open_question(store, await store.read(run_id))
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request") from None


async def settle(app: Deployment, tenant_id: str, run_id: str, settlement: Settlement) -> None:
    """Say whether an effect of unknown outcome happened. The run goes on from there.

    Raises:
        ApprovalRefused: nothing of this run is to be settled, or it was settled already.
        InvalidInput: it happened but no output that fits the capability's schema is given.
    """
    store, entries = await _run(app, tenant_id, run_id)
    sent = [entry for entry in entries if entry.kind == "tool.dispatching"]
    waiting = view_of(tenant_id, run_id, entries).waiting
    if not sent or entries[-1].kind != "record.revised" or waiting is None or waiting["for"] != "settlement":
        raise ApprovalRefused("not_waiting", f"`{run_id}` has no effect to settle")
    dispatched = orjson.loads(sent[-1].body or b"{}")
    envelope = dispatched["envelope"]
    key = sent[-1].key.rsplit("/", 1)[0]
    if settlement.happened:
        _fits(app, tenant_id, envelope["capability_id"], settlement)
    held = await store.scan("keys", key=f"{envelope['capability_id']}/{envelope['idempotency_key']}")
    assert held, "a dispatched write holds its key"
    act = orjson.loads(held[0].body)
    state: dict[str, Any] = {"state": "released"}
    if settlement.happened:
        state = {"state": "completed", "output": settlement.output, "mutations": list(settlement.mutations)}
    given = {"happened": settlement.happened, "by": settlement.by, "evidence_ref": settlement.evidence_ref,
             "output": settlement.output, "mutations": list(settlement.mutations)}  # fmt: skip
    writes = (Write("keys", held[0].key, held[0].version, orjson.dumps({**act, **state})),)
    entry = _entry(app, entries, "effect.settled", key, settlement.by, given)
    control = _control(
        app,
        "effect.settled",
        run_id,
        settlement.by,
        {"happened": settlement.happened, "evidence_ref": settlement.evidence_ref},
    )
    try:
        await store.commit(
            Batch(run=run_id, entries=(entry,), writes=writes, shared=(control,), wake_at_us=app.ports.clock.now_us())
        )
    except Conflict:
        detail = f"`{run_id}` changed at the same moment; look at it, and settle again where it still waits"
        raise ApprovalRefused("already_answered", detail) from None


async def cancel(app: Deployment, tenant_id: str, run_id: str, *, by: str, reason: str) -> RunView:
    """Ask a run to stop. One that waits for an approval stops now; a dispatched effect is never interrupted.

    Raises:
        ApprovalRefused: the run has ended already.
    """
    store, entries = await _run(app, tenant_id, run_id)
    view = view_of(tenant_id, run_id, entries)
    if view.ended:
        raise ApprovalRefused("not_waiting", f"`{run_id}` has ended as `{view.state}`")
    if await store.scan("cancels", key=run_id):
        return view
    control = _control(app, "run.cancelled", run_id, by, {"reason": reason})
    wish = Write("cancels", run_id, 0, orjson.dumps({"by": by, "reason": reason}))
    if view.waiting is None or view.waiting["for"] != "approval":
        await store.commit(Batch(run=run_id, writes=(wish,), shared=(control,)))
        return view
    try:
        asked, key, document = await _open_question(store, entries)
    except ApprovalRefused:
        # It was answered, and not dispatched yet: the wish is looked up when the approval is redeemed.
        await store.commit(Batch(run=run_id, writes=(wish,), shared=(control,)))
        return view
    body = orjson.loads(document.body)
    void = Write("approvals", asked["approval_id"], document.version, orjson.dumps({**body, "state": "cancelled"}))
    entry = _entry(app, entries, "run.cancel_requested", key, by, {"by": by, "reason": reason})
    now_us = app.ports.clock.now_us()
    await store.commit(Batch(run=run_id, entries=(entry,), writes=(wish, void), shared=(control,), wake_at_us=now_us))
    return await app.view(tenant_id, run_id)


def _refuse_answer(verdict: str, reason: str) -> None:
    """What is said is kept in the record, so it is looked at before it is."""
    if verdict not in ("approved", "denied"):
        raise InvalidInput(Problem("/verdict", "unknown_verdict", f"`{verdict[:40]}` is no verdict", "approve or deny"))
    if len(reason) > MAX_REASON_CHARS:
        detail = f"the reason has more than {MAX_REASON_CHARS} characters"
        raise InvalidInput(Problem("/reason", "too_long", detail, "say it shorter"))
    canonical(reason)  # half a character is no text
    if unsafe := scan_unsafe(reason, declared_text=True):
        raise InvalidInput(Problem("/reason", unsafe[0].code, unsafe[0].detail, "say it without"))


async def erase(app: Deployment, tenant_id: str, run_id: str, seq: int, *, by: str, reason: str) -> None:
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


async def _open_question(store: Store, entries: Sequence[Entry]) -> tuple[dict[str, Any], str, Document]:
    """The run's open question, its key and its document. Raises `ApprovalRefused` where there is none."""
    asked = [entry for entry in entries if entry.kind == "approval.asked"]
    if not asked:
        raise ApprovalRefused("not_waiting", "the run waits for no approval")
    if asked[-1].body is None:
        raise ApprovalRefused("not_waiting", "what the run asks was erased, so nobody can answer it; cancel the run")
    question = orjson.loads(asked[-1].body)
    document = (await store.scan("approvals", key=question["approval_id"]))[0]
    state = orjson.loads(document.body)["state"]
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


def _fits(app: Deployment, tenant_id: str, capability_id: str, settlement: Settlement) -> None:
    adapters = app.ports.adapters(tenant_id)
    capabilities = app.registry.register(tuple(adapter.describe() for adapter in adapters.values()))
    capability = capabilities.get(capability_id)
    problem = None
    if settlement.output is None or capability is None:
        problem = Problem(
            "/output", "missing", f"what `{capability_id}` gave back is not stated", "state the output with --output"
        )
    else:
        problem = app.registry.check(capability, "output", dict(settlement.output))
    if problem:
        raise InvalidInput(problem)
