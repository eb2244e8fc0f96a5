"""The DecisionRecord and the ReplayPacket of a run, computed from its journal entries alone.

Every value is derived from the entries, so a replay of the same journal builds the same record with the same hash.
Source: API Contracts, "DecisionRecord"; Reference Architecture, "The three ledgers"; docs/design/contracts.md, "Run".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.record import DecisionRecord, ReplayExpectation, ReplayPacket
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import End, Failure, RecordStatus
from contextos.contracts.ids import derive
from contextos.contracts.journal import CONTEXT, DECISION, EFFECT, KINDS, Logged
from contextos.contracts.scope import RunScope
from contextos.trust.journal.usage import usage

ADMISSION: Final = ("runtime.admission", "1.0.0")
"""Decision key and version of a run without a DecisionSpec: it was not admitted, or its plan has no checkpoint."""

STATUS_OF_END: Final[dict[End, RecordStatus]] = {
    "completed": "DECIDED",
    "rejected": "REJECTED",
    "refused": "REJECTED",
    "cancelled": "REJECTED",
    "escalated": "ESCALATED",
    "exhausted": "ESCALATED",
}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The state of a run: waiting (`end` is None) or ended, with its outputs and the failures that led there."""

    end: End | None
    failures: tuple[Failure, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    subject_ids: tuple[str, ...] = ()
    strategy: str = "template"
    alternatives: tuple[str, ...] = ()
    scorecard: Mapping[str, Any] | None = None


def rfc3339(at_us: int) -> str:
    """Format Unix microseconds as RFC 3339 in UTC, to the microsecond."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{at_us % 1_000_000:06d}Z"


def build_record(
    run_id: str,
    request: InvokeRequest,
    scope: RunScope | None,
    log: Sequence[Logged],
    outcome: RunOutcome,
    *,
    runtime_version: str,
    unsafe: Sequence[str],
    semantics: int,
) -> tuple[DecisionRecord, dict[str, Any]]:
    """Build the record as of the last entry of `log`: sealed with its hash, and as the JSON object that was hashed.

    `scope` is None for a run that was not admitted. `unsafe` lists the unsafe settings of the deployment.
    """
    now_us = log[-1].at_us
    revision = sum(entry.kind == "record.revised" for entry in log)
    spec = _spec(scope, log)
    if outcome.end == "completed" and "approved" not in spec[2]:
        spec = (*ADMISSION, ("approved",))
    used = usage(log)
    approvals = _approvals(log)
    status: RecordStatus = STATUS_OF_END[outcome.end] if outcome.end else "DEFERRED"
    body: dict[str, Any] = {
        "record_id": f"dr_{rfc3339(log[0].at_us)[:10].replace('-', '_')}_{derive('', run_id, 'record', 0)}",
        "decision_key": spec[0],
        "decision_version": spec[1],
        "timestamp": rfc3339(now_us),
        "status": status,
        "outcome": _allowed_outcome(spec[2], outcome),
        "end": outcome.end,
        "actor": {"type": "AGENT", "id": request.agent.agent_id},
        "intent_ref": request.input.intent,
        "subject_ids": list(outcome.subject_ids),
        "inputs_refs": _inputs(request),
        "outputs": dict(outcome.outputs),
        "evidence_refs": _evidence(log),
        "policy_decisions": _policy(log),
        "approvals": approvals,
        "controls_active": _controls(scope, log),
        "confidence": 1,
        "rationale": {
            "strategy": outcome.strategy,
            "alternatives_considered": list(outcome.alternatives),
            "failures": [failure.to_json() for failure in outcome.failures],
        },
        "budget_usage": {
            "tokens": used.tokens,
            "tool_calls": used.tool_calls,
            "cost_usd_cents": used.cost_cents,
            "wall_clock_ms": used.wall_clock_us / 1_000,
        },
        "lineage": {
            "pack_version": scope.pack_ref if scope else request.context_pack_refs[0][:200],
            "snapshot_version": scope.snapshot if scope else "none",
            "runtime_version": runtime_version,
            "semantics": semantics,
            "pins": dict(scope.pins) if scope else {},
            "ledgers": _ledgers(log),
            "unsafe": sorted({*unsafe, *_unsafe_assertions(approvals)}),
            "asserted": _asserted(log),
        },
        "trace_id": request.trace.trace_id,
        "revision": revision,
        "replay": {"replay_id": derive("rp_", run_id, "replay", 0), "run_id": run_id, **_hashes(log)},
    }
    if scope:
        body["agent_identity"] = _agent_identity(scope)
    if outcome.scorecard:
        body["scorecard"] = dict(outcome.scorecard)
    body["record_hash"] = content_address(body)
    return DecisionRecord.sealed_from(body), body


def _agent_identity(scope: RunScope) -> dict[str, Any]:
    return {
        "subject": scope.principals.agent.agent_urn,
        "claim_hash": scope.claim.claim_hash,
        "principal_chain": [principal.to_json() for principal in scope.chain],
    }


def build_packet(record: DecisionRecord, request: InvokeRequest) -> ReplayPacket:
    """Build the packet that a replay starts from. A replay reads recorded results and never calls an adapter.

    For a run without a compiled context, `compiled_context_hash` is the content address of null.
    """
    assert record.replay is not None and record.lineage is not None, "sealed records have both"
    return ReplayPacket.construct_trusted(
        {
            "replay_packet_id": record.replay.replay_id,
            "trace_id": record.trace_id,
            "session_id": request.session_id,
            "source_kind": "decision_record",
            "source_ref": record.record_id,
            "run_context_ref": record.replay.run_id,
            "context_pack_ref": record.lineage.pack_version,
            "knowledge_snapshot_ref": record.lineage.snapshot_version,
            "compiled_context_hash": record.replay.compiled_context_hash or content_address(None),
            "tool_transcript_chain_hash": record.replay.tool_transcript_chain_hash,
            "side_effect_policy": "transcript_only",
            "expected": ReplayExpectation.construct_trusted(
                {"status": record.status, "decision_record_hash": record.record_hash}
            ),
        }
    )


def _spec(scope: RunScope | None, log: Sequence[Logged]) -> tuple[str, str, tuple[str, ...]]:
    """Return key, version and allowed outcomes of the run's DecisionSpec: that of the last plan's last checkpoint."""
    plans = [entry.body for entry in log if entry.kind == "plan.proposed"]
    if scope is None:
        return (*ADMISSION, ())
    keys = [point["decision_id"] for point in plans[-1].get("decision_checkpoints", [])] if plans else []
    known = [key for key in keys if key in scope.specs] or sorted(scope.specs)
    if not known:
        return (*ADMISSION, ())
    spec = scope.specs[known[-1]]
    return spec.decision_key, spec.version, spec.allowed_outcomes


def _allowed_outcome(allowed: Sequence[str], outcome: RunOutcome) -> str | None:
    """Return the outcome of an ended run, or None where the spec does not list it."""
    if outcome.end is None:
        return None
    wanted = {"completed": "approved", "rejected": "denied", "refused": "denied", "cancelled": "denied"}
    named = wanted.get(outcome.end, "escalated")
    return named if named in allowed else None


def _inputs(request: InvokeRequest) -> dict[str, str]:
    return {"request": request.request_id} | ({"session": request.session_id} if request.session_id else {})


def _evidence(log: Sequence[Logged]) -> list[str]:
    """References in the order of their use; that of an answer is the order in which the calls were dispatched."""
    answered = {
        entry.key: [citation["evidence_ref"] for citation in entry.body["envelope"]["citations"]]
        for entry in log
        if entry.kind == "tool.returned"
    }
    refs: dict[str, None] = {}
    for entry in log:
        if entry.kind == "evidence.frozen":
            refs.update((item["evidence_ref"], None) for item in entry.body["items"])
        elif entry.kind == "checkpoint.checked":
            refs.update((ref, None) for ref in entry.body["satisfied"].values())
        elif entry.kind == "tool.dispatching":
            refs.update((ref, None) for ref in answered.get(entry.key, ()))
    return list(refs)


def _policy(log: Sequence[Logged]) -> list[dict[str, Any]]:
    return [
        {"policy_decision_id": one["policy_decision_id"], "rule_ids": list(one["matched_rule_ids"])}
        for one in _decisions(log)
    ]


def _decisions(log: Sequence[Logged]) -> Iterator[Mapping[str, Any]]:
    """Yield every policy decision of the run, in order. One entry holds one decision or several."""
    for entry in log:
        if entry.kind == "policy.decided":
            yield from entry.body.get("decisions", [entry.body])


def _approvals(log: Sequence[Logged]) -> list[dict[str, Any]]:
    asked = {entry.key: entry.body for entry in log if entry.kind == "approval.asked"}
    receipts = []
    for entry in log:
        if entry.kind not in ("approval.answered", "approval.expired"):
            continue
        question = asked[entry.key]
        answered = entry.kind == "approval.answered"
        receipts.append(
            {
                "gate_id": question["gate_id"],
                "approver": entry.body["approver"] if answered else "nobody",
                "approval_mode_effective": question["approval_mode_effective"],
                "evidence_snapshot_hash": question["evidence_snapshot_hash"],
                "decided_at": rfc3339(entry.at_us),
                "verdict": entry.body["verdict"] if answered else "expired",
                "reason": entry.body["reason"] if answered else "the gate's deadline passed",
                "binding_digest": question["binding_digest"],
                **({"assertion": entry.body["assertion"]["kind"]} if answered else {}),
            }
        )
    return receipts


def _unsafe_assertions(approvals: Sequence[Mapping[str, Any]]) -> set[str]:
    return {"unsafe_local_assertion" for receipt in approvals if receipt.get("assertion") == "unsafe_local"}


def _controls(scope: RunScope | None, log: Sequence[Logged]) -> dict[str, list[str]]:
    """Return the controls of all policy decisions of the run, and the redaction rules of its pack."""
    refuse, escalate, gates = set(), set(), set()
    for one in _decisions(log):
        refuse.update(one["must_refuse"])
        escalate.update(one["must_escalate"])
        gates.update(one["gates"])
    rules = list(scope.pack.policy_layer.guardrails.redaction_rules) if scope else []
    return {
        "must_refuse": sorted(refuse),
        "must_escalate": sorted(escalate),
        "approval_gates_active": sorted(gates),
        "redaction_rules_active": sorted(rules),
    }


def _asserted(log: Sequence[Logged]) -> list[str]:
    return sorted({path for one in _decisions(log) for path in one["asserted"]})


def _ledgers(log: Sequence[Logged]) -> dict[str, dict[str, Any]]:
    """Return for each ledger the number of its entries and a digest of their hashes."""
    ledgers: dict[str, list[Any]] = {CONTEXT: [], EFFECT: [], DECISION: []}
    for entry in log:
        home = KINDS[entry.kind].ledger
        if home in ledgers:
            ledgers[home].append(entry.hash)
    return {name: {"entries": len(hashes), "head": content_address(hashes)} for name, hashes in ledgers.items()}


def _hashes(log: Sequence[Logged]) -> dict[str, str]:
    compiled = [entry.body for entry in log if entry.kind == "context.compiled"]
    transcripts = [entry.hash for entry in log if entry.kind == "tool.returned"]
    found = {"tool_transcript_chain_hash": content_address(transcripts)}
    if compiled:
        found["compiled_context_hash"] = compiled[-1]["context_ledger"]["compiled_context_hash"]
    return found
