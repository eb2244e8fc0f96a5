"""Operator actions on runs: answer an approval, settle an uncertain effect, cancel, erase, retry. Each is one commit.

An action appends an entry to the run's own journal, at the expected sequence, and updates one document with
compare-and-set. If two answers, or an answer and a deadline, come at once, one wins. The other raises
`ApprovalRefused`.
Source: docs/design/contracts.md, "Approval modes", "Run".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from contextos.action.gateway.result_validation import result_of_settlement
from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import APPROVALS, ApprovalDocument, Denial, bound_denial
from contextos.contracts.documents.runs import CANCELS, LEASES, CancelRequest
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import StatedCall
from contextos.contracts.journal import Batch, Draft, Entry, TermChange, erasure_key
from contextos.contracts.model import changed
from contextos.contracts.ports.storage import Store
from contextos.contracts.statements.questions import approval_statement
from contextos.contracts.statements.settlements import SETTLEMENT_TYP, settlement_statement
from contextos.deployment.acts.act import Act, Actor, ActProposal, Assertions, propose_act
from contextos.deployment.acts.checks import (
    answerable_run,
    refuse_answer,
    refuse_ended,
    refuse_reason,
    stored_cancel,
    stored_run,
    verified_run,
)
from contextos.deployment.acts.evidence import refuse_unresolved
from contextos.deployment.acts.settlements import recorded_settlement, unerased_body
from contextos.deployment.dead_letters import dead_letter, removal
from contextos.deployment.deployment import Deployment
from contextos.deployment.driver import MAX_CONFLICTS
from contextos.deployment.leases import wake_if_answered
from contextos.deployment.preview import void_question
from contextos.deployment.queries.run_terms import terms_without
from contextos.deployment.queries.run_view import RunView, run_principals, run_view
from contextos.deployment.signing import SignAnswer, SignStatement
from contextos.errors import ApprovalRefused, Conflict, Integrity, NotFound
from contextos.trust.approvals.assertion import (
    approval_fault,
    read_answer_assertion,
    read_assertion,
    recorded_assertion,
)
from contextos.trust.approvals.passkeys import count_writes
from contextos.trust.approvals.people import signer
from contextos.trust.approvals.question import question_fault, rests_on_erased
from contextos.trust.approvals.settlement import barred_settlers, settled_line, settlement_fault
from contextos.trust.journal.chain import append, refuse_other_environment
from contextos.trust.journal.entry_acts import erasure_of
from contextos.trust.journal.signed_heads import answered_line, signed_head
from contextos.trust.recorded_time import recorded_now_us
from contextos.trust.rows.denials import denial_writes
from contextos.trust.rows.unvouched_writes import SignedWrites

_DOCUMENT_REPEATS: Final = ("approval_id", "gate_id", "required_role", "deadline_us", "binding_digest")
_ANSWERS: Final = frozenset({"approval.answered", "approval.expired", "approval.reasked", "run.cancel_requested"})


@dataclass(frozen=True, slots=True)
class SettlementInput:
    """What an operator states about an effect whose reply was lost: whether it took place. `evidence_ref` names the
    evidence for the statement.
    """

    happened: bool
    by: str
    evidence_ref: str
    output: Mapping[str, Any] | None = None
    mutations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A run's open question as its verified journal proves it.

    `content` is the body of `approval.asked`: `binding_digest` names exactly this call, these arguments and this
    evidence. `document` is the stored state of the question.
    """

    entries: Sequence[Entry]
    key: str
    content: Mapping[str, Any]
    document: StoredDocument[ApprovalDocument]

    @property
    def binding_digest(self) -> str:
        """Return the digest (`sha256:` and 64 hex digits) of the question, which an answer has to name."""
        return str(self.content["binding_digest"])


async def open_question(
    app: Deployment, tenant_id: str, run_id: str, roles: Collection[str] | None = None
) -> OpenQuestion:
    """Return the question that a run waits for, after its journal was verified up to the last signed head.

    Raises:
        ApprovalRefused: the run waits for no approval (`not_waiting`), or its question was answered
            (`already_answered`) or has expired (`expired`).
        Integrity: an entry, the question or its stored document was altered; nobody should answer it.
        NotFound: no such run in this tenant; or `roles` are given, and the last question of the run asks none of them.
    """
    store, entries = await verified_run(app, tenant_id, run_id, roles)
    return await _open_question(store, tenant_id, run_id, entries)


async def refuse_void(app: Deployment, tenant_id: str, asked: OpenQuestion) -> None:
    """Raise `ApprovalRefused` if no approval of this question would count (`approval_void`). A question that was
    answered meanwhile is refused as in `open_question`: the change may be an effect of the approved call. So is one
    that was asked again meanwhile (`other_binding`).
    """
    void = await void_question(app, tenant_id, asked.entries)
    if void is not None:
        run_id = asked.entries[0].run
        _refuse_other(run_id, await open_question(app, tenant_id, run_id), asked.binding_digest)
        raise void.refusal(run_id)


def _refuse_other(run_id: str, asked: OpenQuestion, binding_digest: str) -> None:
    if binding_digest != asked.binding_digest:
        detail = f"`{run_id}` asks about `{asked.binding_digest}`; look at it with `contextos runs show {run_id}`"
        raise ApprovalRefused("other_binding", detail)


async def answer_approval(
    app: Deployment,
    tenant_id: str,
    run_id: str,
    *,
    approver_id: str,
    verdict: str,
    reason: str,
    binding_digest: str,
    vouch: SignAnswer,
    asked: OpenQuestion | None = None,
) -> None:
    """Record an approver's verdict (`approved` or `denied`) on the question on which the run waits.

    `vouch` signs the statement about the verdict, or returns the `login_assertion` or `passkey_assertion` about it.

    `binding_digest` is the digest of the question that the approver saw (`OpenQuestion.binding_digest`). What is signed
    is computed from the journal, which is verified first. `asked` is the question if the same request read it before.
    It is not read again; if the run went on since, the answer is not recorded.

    Raises:
        Integrity: an entry, the question or its stored document was altered; nothing is signed.
        ApprovalRefused: this answer does not count; `reason` says why. The question is not open (`not_waiting`,
            `already_answered`, `expired`) or is not the one that was shown (`other_binding`). The approver has no such
            role (`not_approver`), made the request (`self_approval`), or nobody granted them the role (`not_granted`),
            or they granted it to themselves or somebody did who cannot approve this call (`self_granted`). The
            signature is not valid (`assertion_invalid`), or there is no signature and the settings require one
            (`unsafe_not_allowed`). Or a value that the question is bound to changed, so that an approval would not
            count (`approval_void`).
        InvalidInput: the verdict is neither `approved` nor `denied`, or the reason is too long or contains unsafe text.
        OtherEnvironment: this deployment serves another environment than the run's, so it would not drive the run on.
        NotFound: no such run in this tenant.
        Conflict: another process changed the run at the same moment and the question is still open; answer again.
    """
    refuse_answer(verdict, reason)
    store, entries = await answerable_run(app, tenant_id, run_id, verdict, asked.entries if asked else None)
    await wake_if_answered(app.ports, store, run_id, entries)
    asked = asked or await _open_question(store, tenant_id, run_id, entries)
    question, key, document = asked.content, asked.key, asked.document
    _refuse_other(run_id, asked, binding_digest)
    approver = await signer(app.ports, tenant_id, approver_id)
    if approver is None:
        raise ApprovalRefused("not_approver", f"`{approver_id}` is not known as an approver in this tenant")
    statement = approval_statement(question, approver_id, verdict, reason)
    assertion = read_answer_assertion(vouch(statement))
    if assertion.kind == "unsafe_local" and "unsafe_local_approvals" not in app.config.unsafe:
        raise ApprovalRefused("unsafe_not_allowed", "this deployment takes no answers without the approver's key")
    answer = {
        "approver": approver_id,
        "verdict": verdict,
        "reason": reason,
        "binding_digest": question["binding_digest"],
        "assertion": assertion.to_json(),
    }
    if refused := approval_fault(approver, question, answer):
        raise refused
    answer["assertion"] = recorded_assertion(assertion, statement)
    if await recorded_now_us(app.ports, tenant_id) > question["deadline_us"]:
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request")
    if verdict == "approved":  # a denial counts whatever changed
        await refuse_void(app, tenant_id, asked)
    answered = changed(document.body, state="approved" if verdict == "approved" else "denied", approver=approver_id)
    write = APPROVALS.write(question["approval_id"], document.version, answered, not_after_us=question["deadline_us"])
    writes = [write, *await count_writes(store, approver_id, assertion)]
    if verdict == "denied":
        said = Denial(run_id, approver_id)
        writes += await denial_writes(store, tenant_id, app.ports.keys, bound_denial(question["binding"]), said)
    entry = await _entry(app, entries, "approval.answered", key, approver_id, answer)
    line = answered_line(entry, app.ports.entropy)
    # The runtime alone vouches for what it found in the token of a login.
    signature = signed_head(app.ports.keys, entry) if assertion.login else None
    try:
        await store.commit(Batch(run_id, (entry,), tuple(writes), (line,), app.ports.clock.now_us(), signature))
    except Conflict:
        # The store now holds the answer that won; `_open_question` raises the refusal that names it.
        await open_question(app, tenant_id, run_id)
        if await recorded_now_us(app.ports, tenant_id) <= question["deadline_us"]:
            raise
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request") from None


@Act
async def settle_effect(
    app: Deployment,
    tenant_id: str,
    run_id: str,
    settlement: SettlementInput,
    *,
    vouch: SignStatement,
    verified: Sequence[Entry] | None = None,
) -> ActProposal[RunView]:
    """Record whether an effect of unknown outcome happened. Only an operator can, and not for their own request.

    The settlement is only recorded here. The run checks the operator again before it uses it and finishes the effect.
    `verified` as in `answerable_run`.

    Raises:
        ApprovalRefused: this settlement does not count: `not_waiting`, `already_answered`, `operator_fault`,
            `self_settlement`, `self_granted`, `not_granted`, `assertion_invalid`, `unsafe_not_allowed`.
        InvalidInput: the settlement names no evidence, does not match the pinned capability or contains unsafe text; or
            it says that the effect did not happen, and its evidence does not resolve.
        NotFound: no such run in this tenant.
        OtherEnvironment: as `answer_approval`.
    """
    store, entries = await answerable_run(app, tenant_id, run_id, "settled", verified)
    waiting = run_view(tenant_id, run_id, entries).waiting
    sent = next((entry for entry in reversed(entries) if entry.kind == "tool.dispatching"), None)
    await wake_if_answered(app.ports, store, run_id, entries)
    if sent is None or entries[-1].kind != "record.revised" or waiting is None or waiting["for"] != "settlement":
        raise ApprovalRefused("not_waiting", f"`{run_id}` has no effect to settle")
    dispatched = unerased_body(sent)
    envelope = StatedCall.model_validate(dispatched["envelope"])
    if envelope.run_id != run_id:
        raise Integrity(f"entry {sent.seq} of `{run_id}` (`tool.dispatching`) was altered; do not settle it")
    principals = run_principals(entries)
    if principals is None:
        raise ApprovalRefused(
            "not_waiting", "the requester was erased, so it cannot be checked who is barred from settling"
        )
    stated = asdict(settlement) | {"mutations": list(settlement.mutations)}
    unsigned = await recorded_settlement(app, tenant_id, entries, envelope, stated)
    if not unsigned.happened:
        # An operation whose effect did not happen can be requested again.
        await refuse_unresolved(app, tenant_id, entries, unsigned.evidence_ref)
    statement = settlement_statement(tenant_id, envelope, unsigned)
    barred, unsafe_local = barred_settlers(principals), "unsafe_local_approvals" in app.config.unsafe

    async def commit(assertions: Assertions) -> RunView:
        settled = unsigned.model_copy(update={"assertion": read_assertion(assertions[0])})
        operator = await signer(app.ports, tenant_id, settled.by)
        if refused := settlement_fault(operator, barred, statement, settled.assertion, unsafe_local=unsafe_local):
            raise refused
        result_of_settlement(envelope, settled)  # raises where the run could not use the settlement
        entry = await _entry(app, entries, "effect.settled", sent.key.rsplit("/", 1)[0], settled.by, settled.to_json())
        summary = settled_line(run_id, settled, app.ports.clock.now_us(), app.ports.entropy.take(16))
        shared = (summary, answered_line(entry, app.ports.entropy))
        try:
            await store.commit(Batch(run=run_id, entries=(entry,), shared=shared, wake_at_us=app.ports.clock.now_us()))
        except Conflict:
            raise ApprovalRefused("already_answered", f"`{run_id}` changed; look at it, and settle it again") from None
        return run_view(tenant_id, run_id, (*entries, entry))

    return ActProposal(Actor(unsigned.by, vouch), (statement,), commit, SETTLEMENT_TYP)


@Act
async def request_cancel(
    app: Deployment, tenant_id: str, run_id: str, *, by: Actor, reason: str
) -> ActProposal[RunView]:
    """Request that a run stops. A run that waits for an approval stops now; a dispatched effect is never interrupted.

    The run's user and the agent's owner may stop it, and every operator.

    Raises:
        ApprovalRefused: the run has ended already (`not_waiting`), or as `prove_act`.
        InvalidInput: the reason is too long or contains unsafe text.
    """
    refuse_reason(reason)
    store, entries = await stored_run(app, tenant_id, run_id)
    view = run_view(tenant_id, run_id, entries)
    refuse_ended(view)
    principals = run_principals(entries)
    received = read_body(entries[0])
    request_id = received["request"]["request_id"] if received is not None else None
    arguments = {"run": run_id, "request_id": request_id, "reason": reason}
    proposed = ProposedAct("run.cancelled", run_id, arguments, len(entries))
    own_run = principals is not None and by.id in (principals.user.user_id, principals.agent.owner)

    async def write(control: tuple[str, Draft]) -> RunView:
        for _ in range(MAX_CONFLICTS):
            with suppress(Conflict):
                return await _cancel_once(app, store, run_id, control, CancelRequest(by.id, reason))
        raise Conflict(run_id)

    return propose_act(app.ports, app.config, tenant_id, proposed, by, write, own_run=own_run)


async def _cancel_once(
    app: Deployment, store: Store, run_id: str, act: tuple[str, Draft], said: CancelRequest
) -> RunView:
    """Commit a request to stop on the current state of the run. Raises `Conflict` if the run went on meanwhile: a run
    that has ended, or waits for a person, would otherwise be due for ever.
    """
    entries, _, _, leased = await store.read_run(run_id)
    tenant_id, now_us = entries[0].tenant, app.ports.clock.now_us()
    view, lease = run_view(tenant_id, run_id, entries), LEASES.read(leased) if leased else None
    refuse_ended(view)
    stored, is_proved = await stored_cancel(app, store, run_id)
    if is_proved:
        return view
    # A stored request is never replaced: the act in `control` counts. Every commit of a driver changes the lease.
    request = CANCELS.check(run_id, stored) if stored else CANCELS.write(run_id, 0, said)
    fence = LEASES.check(run_id, lease.version if lease else 0)
    if stored and lease:
        # The stored document has no proved act, and it keeps its version, so no dispatch would notice this request by
        # it. A new version of the lease makes the next commit of the driver fail, and the run looks again.
        fence = LEASES.write(run_id, lease.version, lease.body)
    writes, waits_for, asked = [request, fence], view.waiting and view.waiting["for"], None
    if waits_for == "slot" and entries[-1].kind == "record.revised":
        asked = entries[-1].key.removeprefix("slot/")
    elif waits_for == "approval":
        # An answered question is not dispatched yet: the cancel request is looked up when the approval is redeemed.
        with suppress(ApprovalRefused):
            question = await _open_question(store, tenant_id, run_id, entries)
            asked, approval = question.key, question.document
            void = changed(approval.body, state="cancelled")
            writes.append(APPROVALS.write(approval.body.approval_id, approval.version, void))
    entry: tuple[Entry, ...] = ()
    if asked is not None:
        answer = {"by": said.by, "reason": said.reason}
        entry = (await _entry(app, entries, "run.cancel_requested", asked, said.by, answer),)
    # A run that sleeps until something else happens stops now. A run that waits for a settlement needs its answer.
    wakes = asked is not None or waits_for in (None, "engine", "agent")
    await store.commit(Batch(run_id, entry, tuple(writes), (act,), now_us if wakes else None))
    return await app.view(tenant_id, run_id)


@Act
async def erase_entry(
    app: Deployment, tenant_id: str, run_id: str, seq: int, *, by: Actor, reason: str
) -> ActProposal[None]:
    """Erase the content of one journal entry, for example on legal grounds, and record the erasure: both, or neither.

    The hash chain still verifies. The record is an act of `by`, which the runtime seals. If the entry is of a call that
    wrote, the copy of the write that is kept for later runs is erased too. Erasing the same entry again changes nothing
    else.

    Raises:
        ApprovalRefused: as `prove_act`.
        InvalidInput: the reason is too long or contains unsafe text.
        NotFound: there is no such entry.
    """
    refuse_reason(reason)
    store, entries = await stored_run(app, tenant_id, run_id)
    if not 1 <= seq <= len(entries):
        raise NotFound(f"`{run_id}` has no entry {seq}; look at it with `contextos runs show {run_id}`")
    arguments = {**erasure_of(entries[seq - 1]), "reason": reason}
    proposed = ProposedAct("entry.erased", erasure_key(run_id, seq), arguments, len(entries))
    key = entries[seq - 1].key

    async def write(control: tuple[str, Draft]) -> None:
        length, terms = 0, TermChange()
        # The run can go on meanwhile and record the erased value again, so the terms are computed from all stored
        # entries.
        while len(stored := await store.read(run_id)) > length:
            length, terms = len(stored), await terms_without(store, stored, seq, app.ports.keys, terms.added)
            await app.ports.stores.erase(tenant_id, run_id, seq, control[1], terms)
        # After a crash before this line, repeating the act does only this part.
        await SignedWrites(store, tenant_id, app.ports.keys).forget(run_id, key, app.ports.clock.now_us())

    return propose_act(app.ports, app.config, tenant_id, proposed, by, write)


@Act
async def retry_run(app: Deployment, tenant_id: str, run_id: str, *, by: Actor) -> ActProposal[None]:
    """Take a run off the dead-letter list, and make it due. If it fails again, it is put back.

    Raises:
        ApprovalRefused: as `prove_act`.
        NotFound: the run is not on this tenant's list.
        OtherEnvironment: as `answer_approval`.
        Conflict: another process changed the list entry at the same moment; look at the list again.
    """
    store = app.ports.stores.tenant(tenant_id)
    found = await dead_letter(store, run_id)
    refuse_other_environment((await stored_run(app, tenant_id, run_id))[1], app.config.environment)
    arguments = {"run": run_id, "failures": found.body.failures}
    proposed = ProposedAct("run.retried", run_id, arguments, found.version)

    async def write(control: tuple[str, Draft]) -> None:
        await store.commit(Batch(run_id, (), (removal(found),), (control,), app.ports.clock.now_us()))

    return propose_act(app.ports, app.config, tenant_id, proposed, by, write)


async def _open_question(store: Store, tenant_id: str, run_id: str, entries: Sequence[Entry]) -> OpenQuestion:
    """Return the run's open question. Raises `ApprovalRefused` if there is none, and `Integrity` if it was altered."""
    asked = next((entry for entry in reversed(entries) if entry.kind == "approval.asked"), None)
    if asked is None:
        raise ApprovalRefused("not_waiting", "the run waits for no approval")
    if asked.body is None or rests_on_erased(entries, asked):
        raise ApprovalRefused("not_waiting", "the question or what it rests on was erased: cancel the run")
    question = read_body(asked)
    if fault := question_fault(tenant_id, run_id, entries, asked):
        raise Integrity(f"entry {asked.seq} of `{run_id}` (`approval.asked`) was altered: {fault}; do not answer it")
    document = await APPROVALS.one(store, question["approval_id"])
    if (
        document is None
        or document.body.run_id != run_id
        or any(getattr(document.body, name) != question[name] for name in _DOCUMENT_REPEATS)
    ):
        raise Integrity(
            f"the stored state of `{question['approval_id']}` does not match its question; verify `{run_id}`"
        )
    state = document.body.state
    if state == "expired":
        raise ApprovalRefused("expired", "the gate's deadline has passed; ask again with a new request")
    if state != "open":
        raise ApprovalRefused("already_answered", f"the question was answered before: `{state}`")
    answered = next(
        (entry for entry in entries[asked.seq :] if entry.kind in _ANSWERS and entry.key == asked.key), None
    )
    if answered is not None:
        raise ApprovalRefused("already_answered", f"the question was answered before: `{answered.kind}`")
    return OpenQuestion(entries, asked.key, question, document)


async def _entry(
    app: Deployment, entries: Sequence[Entry], kind: str, key: str, by: str, answer: Mapping[str, Any]
) -> Entry:
    at_us = await recorded_now_us(app.ports, entries[0].tenant)
    return append(entries, kind, key, by=by, answer=dict(answer), at_us=at_us, salt=app.ports.entropy.take(16))
