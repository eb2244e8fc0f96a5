"""Acts on a run that ended: resolve or close its decision, or reopen it with more of the limit that it exhausted.

Nobody can act in this way on their own request. A resolution and a closing are in the tenant's control stream only: the
record stays as the runtime made it. A reopened run goes on in its own journal. Each act raises the version of the run's
lease, so one of two acts at the same moment wins.
Source: docs/adr/0026-an-escalated-run-has-a-way-on.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.runs import LEASES, Lease
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.reading import read_body
from contextos.contracts.entries.terms import standing_terms
from contextos.contracts.envelopes.run import RuntimeHints
from contextos.contracts.journal import INDEX, Batch, Draft, Entry, TermChange
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import SESSION_LIMIT
from contextos.decision.intents import lowest_of
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_act, propose_commit
from contextos.deployment.acts.checks import refuse_reason, verified_run
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries.decisions import decision_of
from contextos.deployment.queries.run_view import RunView, run_principals, run_view
from contextos.errors import ApprovalRefused, Integrity, InvalidInput, Problem
from contextos.runtime.reopening import ASKED_AGAIN, RAISABLE
from contextos.trust.approvals.settlement import barred_settlers, is_barred
from contextos.trust.journal.chain import append, refuse_other_environment
from contextos.trust.journal.effects import end_contradiction
from contextos.trust.journal.signed_heads import head_payload
from contextos.trust.recorded_time import recorded_now_us

ResolvedStatus = Literal["DECIDED", "REJECTED"]

_ERASED_DETAIL: Final = "the request was erased, so it cannot be checked who is barred from this act"


@Act
async def resolve_escalation(
    app: Deployment, tenant_id: str, run_id: str, status: ResolvedStatus, *, by: Actor, reason: str
) -> ActProposal[None]:
    """Record what a person decided about an escalated run: `DECIDED` or `REJECTED`. The run itself does not change.

    Raises:
        ApprovalRefused: as `prove_act`; the actor is the requester (`self_settlement`); or the decision is not
            `ESCALATED` (`not_waiting`).
        InvalidInput: there is no reason, or it is too long or contains unsafe text; or `REJECTED` disagrees with what
            the run did (`outcome_disagrees`).
        NotFound: no such run in this tenant.
        Conflict: another operator acted on the run at the same moment; look at it again.
    """
    ended = await _ended_run(app, tenant_id, run_id, by, reason, statuses=("ESCALATED",))
    assert ended.view.record is not None, "a decision has a record"
    contradiction = end_contradiction("rejected", ended.view.record["effects"], None) if status == "REJECTED" else None
    if contradiction is not None:
        detail = f"`{run_id}` cannot be rejected: {contradiction}"
        raise InvalidInput(Problem("/status", "outcome_disagrees", detail, "resolve it as DECIDED, or close it"))
    arguments = {**_record_reference(ended.view), "status": status, "reason": reason}
    act, terms = ended.act("decision.resolved", arguments), ended.terms(status)
    return propose_commit(app.ports, app.config, tenant_id, act, by, run=run_id, terms=terms)


@Act
async def close_decision(app: Deployment, tenant_id: str, run_id: str, *, by: Actor, reason: str) -> ActProposal[None]:
    """Record that nothing more follows from an ended run: the run can no longer be resolved or reopened.

    Raises as `resolve_escalation`; every end can be closed, once.
    """
    ended = await _ended_run(app, tenant_id, run_id, by, reason, statuses=("DECIDED", "REJECTED", "ESCALATED"))
    arguments = {**_record_reference(ended.view), "reason": reason}
    act, terms = ended.act("decision.closed", arguments), ended.terms("CLOSED")
    return propose_commit(app.ports, app.config, tenant_id, act, by, run=run_id, terms=terms)


@Act
async def reopen_run(
    app: Deployment, tenant_id: str, run_id: str, *, by: Actor, reason: str, to: float | None = None
) -> ActProposal[None]:
    """Let an escalated run go on from its journal; it is due at once.

    `to` is the new value of the limit that the run exhausted; None if the run ended because it waited for a person in
    vain.

    Raises:
        ApprovalRefused: as `resolve_escalation`; also `not_waiting` if the run ended for a reason that more budget or
            another question does not change, and `not_allowed` if the agent or the tenant may not have `to`.
        InvalidInput: `to` is missing, or is not above the limit; or as `resolve_escalation`.
        NotFound: no such run in this tenant.
        OtherEnvironment: this deployment serves another environment than that of the run.
        Conflict: as `resolve_escalation`.
    """
    ended = await _ended_run(app, tenant_id, run_id, by, reason, statuses=("ESCALATED",))
    entries, limit = ended.entries, _exhausted_limit(ended.view)
    refuse_other_environment(entries, app.config.environment)
    now_us, take = await recorded_now_us(app.ports, tenant_id), app.ports.entropy.take
    granted = _granted_value(entries, limit, to, now_us)
    arguments = {**_record_reference(ended.view), "reason": reason, "limit": limit, "to": granted}
    proposed = ended.act("run.reopened", arguments)
    answer = {"by": by.id, "reason": reason, "limit": limit, "to": granted}

    async def write(control: tuple[str, Draft]) -> None:
        entry = append(entries, "run.reopened", "", by=by.id, answer=answer, at_us=now_us, salt=take(16))
        kid, signature = app.ports.keys.sign("head", head_payload(tenant_id, run_id, entry.seq, entry.hash))
        body = canonical({"run": run_id, "entries": entry.seq, "head": entry.hash})
        index_draft = Draft("run.reopened", run_id, now_us, "runtime", body, take(16))
        await ended.store.commit(
            Batch(
                run=run_id,
                entries=(entry,),
                writes=proposed.writes,
                shared=(control, (INDEX, index_draft)),
                wake_at_us=app.ports.clock.now_us(),
                signature=(kid, signature.hex()),
                terms=ended.terms(None),
            )
        )

    return propose_act(app.ports, app.config, tenant_id, proposed, by, write)


@dataclass(frozen=True, slots=True)
class _EndedRun:
    """A verified run that ended, its lease from before the run was read, and the status of its decision."""

    store: Store
    entries: Sequence[Entry]
    view: RunView
    lease: StoredDocument[Lease]
    status: str | None

    def terms(self, status: str | None) -> TermChange:
        """Return the change of the run's terms when its decision gets `status`; None means that the run goes on."""
        before = standing_terms(self.view.state, self.status, ended=True)
        after = standing_terms(self.view.state, status, ended=status is not None)
        began_us = self.entries[0].at_us
        return TermChange(tuple({*after} - {*before}), tuple({*before} - {*after}), began_us)

    def act(self, kind: str, arguments: Mapping[str, Any]) -> ProposedAct:
        """Return an act on this run, whose commit fails if the run was acted on since it was read."""
        write = LEASES.write(self.view.run_id, self.lease.version, self.lease.body)
        return ProposedAct(kind, self.view.run_id, arguments, len(self.entries), (write,))


async def _ended_run(
    app: Deployment, tenant_id: str, run_id: str, by: Actor, reason: str, *, statuses: Sequence[str]
) -> _EndedRun:
    """Return the verified run if its decision has a status in `statuses`. Refuses an act of people behind it."""
    if not reason.strip():
        raise InvalidInput(Problem("/reason", "missing", "the act states no reason", "say why; it is recorded"))
    refuse_reason(reason)
    lease = await LEASES.one(app.ports.stores.tenant(tenant_id), run_id)
    store, entries = await verified_run(app, tenant_id, run_id)
    view = run_view(tenant_id, run_id, entries)
    status = (await decision_of(store, view, app.ports.keys)).status
    if not view.ended or view.record is None or status not in statuses:
        detail = f"the decision of `{run_id}` is {status or 'erased'}, and this act is for {' or '.join(statuses)}"
        raise ApprovalRefused("not_waiting", f"{detail}; look at it with `contextos runs show {run_id}`")
    if is_barred(by.id, await app.ports.directory.approver(tenant_id, by.id), _barred_ids(entries)):
        raise ApprovalRefused("self_settlement", f"`{by.id}` is behind the request; ask another operator")
    if lease is None:
        raise Integrity(f"`{run_id}` was driven, and its lease is gone; restore the document from a backup")
    return _EndedRun(store, entries, view, lease, status)


def _barred_ids(entries: Sequence[Entry]) -> frozenset[str]:
    """Return the people and the agent behind a run, as the directory knew them, or else as the request states them."""
    if principals := run_principals(entries):
        return barred_settlers(principals)
    body = read_body(entries[0])
    if body is None or any(entry.kind == "identity.resolved" and entry.body is None for entry in entries):
        raise ApprovalRefused("not_waiting", _ERASED_DETAIL)
    request = body["request"]
    return frozenset({request["user"]["user_id"], request["agent"]["agent_id"]})


def _record_reference(view: RunView) -> dict[str, str]:
    assert view.record is not None, "a decision has a record"
    return {"run": view.run_id, "record_hash": view.record["record_hash"]}


def _exhausted_limit(view: RunView) -> str | None:
    """Return the limit that an escalated run exhausted; None if it waited for a person in vain."""
    assert view.record is not None, "a decision has a record"
    failure: Mapping[str, Any] = next(iter(view.record["rationale"]["failures"]), {})
    limits = [fact for fact in failure.get("facts", ()) if failure["code"] == "budget_exhausted" and fact in RAISABLE]
    if not limits and failure.get("code") not in ASKED_AGAIN:
        detail = f"`{view.run_id}` ended with `{failure.get('code', 'a low score')}`, which comes again"
        raise ApprovalRefused("not_waiting", f"{detail}; resolve or close it")
    return limits[0] if limits else None


def _granted_value(entries: Sequence[Entry], limit: str | None, value: float | None, now_us: int) -> float | None:
    """Check the new value of the limit, and return it as it is recorded."""
    if limit is None:
        if value is not None:
            raise InvalidInput(Problem("/to", "unexpected", "the run exhausted no limit", "reopen it without a value"))
        return None
    current = _current_value(entries, limit)
    if value is None or value <= current:
        detail = f"`{limit}` is {current:g}, and the run exhausted it"
        raise InvalidInput(Problem("/to", "too_small", detail, "reopen it with a higher value"))
    granted: float = getattr(parse(RuntimeHints, {limit: int(value) if float(value).is_integer() else value}), limit)
    principals = run_principals(entries)
    assert principals is not None, "a run that had a budget was admitted"
    allowed, owner = lowest_of(limit, granted, principals)
    if owner is not None:
        detail = f"the {owner} of the run has at most {allowed:g} of `{limit}`"
        raise ApprovalRefused("not_allowed", f"{detail}; change the directory and ask with a new request")
    if limit == SESSION_LIMIT and entries[0].at_us + granted * 1_000 <= now_us:
        passed_ms = (now_us - entries[0].at_us) // 1_000
        detail = f"the session began {passed_ms} ms ago, so it would be over"
        raise InvalidInput(Problem("/to", "too_small", detail, "reopen it with a higher value"))
    return granted


def _current_value(entries: Sequence[Entry], limit: str) -> float:
    """Return the value of a limit at the end of the run."""
    for entry in reversed(entries):
        if entry.kind not in ("run.reopened", "session.checkpointed", "run.context"):
            continue
        body = read_body(entry)
        if body is None:
            raise ApprovalRefused("not_waiting", "the limits of the run were erased; resolve or close it")
        if entry.kind == "run.reopened" and body["limit"] == limit:
            return float(body["to"])
        if entry.kind == "run.context" and limit in body["run_budget"]:
            return float(body["run_budget"][limit])
        if entry.kind == "session.checkpointed" and limit == SESSION_LIMIT:
            return (int(body["deadline_us"]) - entries[0].at_us) / 1_000
    raise ApprovalRefused("not_waiting", f"the run does not say what `{limit}` was; resolve or close it")
