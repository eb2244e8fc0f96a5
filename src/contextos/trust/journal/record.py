"""The DecisionRecord and the ReplayPacket of a run, computed from its journal entries alone, in their wire form.

Every value is derived from the entries, so a replay of the same journal builds the same record with the same hash. A
replay also validates both against their contracts.
Source: API Contracts, "DecisionRecord"; Reference Architecture, "The three ledgers"; docs/design/contracts.md, "Run".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.pointer import resolve_pointer
from contextos.contracts.entries.account import RunAccount, Usage, cents
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import End, Failure, RecordStatus
from contextos.contracts.ids import derive
from contextos.contracts.model import final_fields
from contextos.contracts.scope import PinnedInputs, RunIdentity, RunScope

ADMISSION: Final = ("runtime.admission", "1.0.0")
"""Decision key and version of a run without a DecisionSpec: it was not admitted, or its plan has no checkpoint."""

OUTCOME_OF_END: Final[dict[End, str]] = {
    "completed": "approved",
    "rejected": "denied",
    "refused": "denied",
    "cancelled": "denied",
    "escalated": "escalated",
    "exhausted": "escalated",
}
"""The outcome of a decision by the end of its run. Lint holds the `allowed_outcomes` of each spec to these."""

STATUS_OF_END: Final[dict[End, RecordStatus]] = {
    "completed": "DECIDED",
    "rejected": "REJECTED",
    "refused": "REJECTED",
    "cancelled": "REJECTED",
    "escalated": "ESCALATED",
    "exhausted": "ESCALATED",
}


@final_fields
class Decision:
    """The decision that a record is about: its key, and the ids of the steps whose effects it governs.

    A run ends with its last decision; `last` is false for one before it.
    """

    key: str
    steps: frozenset[str]
    last: bool = True


@final_fields
class RunOutcome:
    """How a decision of a run ended, or that it waits (`end` is None), with outputs and the failures that led there.

    Without `decision` the run was not admitted, or its plan has no checkpoint.
    """

    end: End | None
    failures: tuple[Failure, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    subject_ids: tuple[str, ...] = ()
    strategy: str = "template"
    alternatives: tuple[str, ...] = ()
    scorecard: Mapping[str, Any] | None = None
    decision: Decision | None = None


def rfc3339(at_us: int) -> str:
    """Format Unix microseconds as RFC 3339 in UTC, to the microsecond."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{at_us % 1_000_000:06d}Z"


def build_record(
    account: RunAccount,
    request: InvokeRequest,
    scope: RunScope | None,
    outcome: RunOutcome,
    *,
    runtime_version: str,
    environment: str | None,
    unsafe: Sequence[str],
    unsafe_stated_by: Sequence[str],
    semantics: int,
) -> dict[str, Any]:
    """Build the record of one decision of a run from its account: a `DecisionRecord` as JSON, with its hash.

    `scope` is None for a run that was not admitted. `unsafe` lists the unsafe settings of the deployment,
    and `unsafe_stated_by` the classes that say themselves whether they are stand-ins.
    """
    run_id = account.run_id
    pinned, decision = scope.pinned if scope else None, outcome.decision
    spec = pinned.specs.get(decision.key) if pinned and decision else None
    number = decision.key if decision and not decision.last else 0
    record_id = f"dr_{rfc3339(account.began_us)[:10].replace('-', '_')}_{derive('', run_id, 'record', number)}"
    revision = sum(entry.body["record_id"] == record_id for entry in account.of("record.revised"))
    approvals = _approvals(account)
    status: RecordStatus = STATUS_OF_END[outcome.end] if outcome.end else "DEFERRED"
    body: dict[str, Any] = {
        "record_id": record_id,
        "decision_key": spec.decision_key if spec else ADMISSION[0],
        "decision_version": spec.version if spec else ADMISSION[1],
        "timestamp": rfc3339(account.now_us),
        "status": status,
        "outcome": OUTCOME_OF_END[outcome.end] if outcome.end and (spec or outcome.end == "completed") else None,
        "end": outcome.end,
        "actor": {"type": "AGENT", "id": request.agent.agent_id},
        "intent_ref": request.input.intent,
        "subject_ids": list(outcome.subject_ids),
        "inputs_refs": _input_refs(request),
        "outputs": dict(outcome.outputs),
        "effects": [
            effect for effect in account.effects.values() if decision is None or effect["step_id"] in decision.steps
        ],
        "evidence_refs": account.evidence_refs(),
        "policy_decisions": list(account.decisions),
        "approvals": approvals,
        "controls_active": _controls(pinned, account),
        "confidence": _confidence(account, outcome),
        "rationale": {
            "strategy": outcome.strategy,
            "alternatives_considered": list(outcome.alternatives),
            "failures": [failure.to_json() for failure in outcome.failures],
        },
        "budget_usage": budget_usage(account.used()),
        "lineage": {
            "pack_version": pinned.pack_ref if pinned else request.context_pack_refs[0][:200],
            "snapshot_version": pinned.snapshot if pinned else "none",
            "runtime_version": runtime_version,
            **({"environment": environment} if environment else {}),
            "semantics": semantics,
            "pins_digest": content_address(pinned.pins if pinned else {}),
            "ledgers": account.ledger_heads(),
            "unsafe": sorted({*unsafe, *_unsafe_assertions(approvals)}),
            **({"unsafe_stated_by": list(unsafe_stated_by)} if unsafe_stated_by else {}),
            "asserted": account.raised("asserted"),
            **_models(account),
        },
        "trace_id": request.trace.trace_id,
        "revision": revision,
        "replay": {"replay_id": derive("rp_", run_id, "replay", 0), "run_id": run_id, **_hashes(account)},
    }
    if scope:
        body["agent_identity"] = _agent_identity(scope.identity)
    if outcome.scorecard:
        body["scorecard"] = dict(outcome.scorecard)
    body["record_hash"] = content_address(body)
    return body


def budget_usage(used: Usage) -> dict[str, Any]:
    """Return what a run has used as a `BudgetUsage`. It includes the use of models if one was called."""
    models = {"model_tokens": used.model_tokens, "model_calls": used.model_calls} if used.model_calls else {}
    return {
        "tokens": used.tokens,
        "tool_calls": used.tool_calls,
        "cost_usd_cents": used.cost_cents,
        "wall_clock_ms": used.wall_clock_us / 1_000,
        **models,
    }


def _models(account: RunAccount) -> dict[str, Any]:
    """Return the part of a lineage about models; empty for a run that had no question for a model."""
    if not account.routes:
        return {}
    questions = list[dict[str, Any]]()
    ids = [derive("route_", account.run_id, "route", key) for key in account.routes]
    for _, routes in groupby(account.routes.items(), key=lambda item: item[0].rpartition("/")[0]):
        calls = [call for _, call in routes]
        last = next((call for call in reversed(calls) if call.profile is not None), calls[-1])
        questions.append(
            {
                "operation": last.operation,
                "rules": last.rules,
                "profile": last.profile,
                "attempts": sum(call.profile is not None for call in calls),
                "outcome": last.outcome,
                "cost_usd_cents": cents(sum(call.cost_units for call in calls)),
            }
        )
    return {"routing_decisions": ids, "models": questions}


def _agent_identity(identity: RunIdentity) -> dict[str, Any]:
    return {
        "subject": identity.principals.agent.agent_urn,
        "claim_hash": identity.claim.claim_hash,
        "principal_chain": [principal.to_json() for principal in identity.chain],
    }


def build_packet(record: Mapping[str, Any], request: InvokeRequest) -> dict[str, Any]:
    """Build the packet from which a replay of the run starts: a `ReplayPacket` as JSON.

    For a run without a compiled context, `compiled_context_hash` is the digest of null.
    """
    replay, lineage = record["replay"], record["lineage"]
    return {
        "replay_packet_id": replay["replay_id"],
        "trace_id": record["trace_id"],
        "session_id": request.session_id,
        "source_kind": "decision_record",
        "source_ref": record["record_id"],
        "run_context_ref": replay["run_id"],
        "context_pack_ref": lineage["pack_version"],
        "knowledge_snapshot_ref": lineage["snapshot_version"],
        "compiled_context_hash": replay.get("compiled_context_hash") or content_address(None),
        "tool_transcript_chain_hash": replay["tool_transcript_chain_hash"],
        "side_effect_policy": "transcript_only",
        "expected": {"status": record["status"], "decision_record_hash": record["record_hash"]},
    }


def _input_refs(request: InvokeRequest) -> dict[str, str]:
    return {"request": request.request_id} | ({"session": request.session_id} if request.session_id else {})


def _confidence(account: RunAccount, outcome: RunOutcome) -> float | int:
    """Return how sure the outcome is, from 0 to 1: the lowest of the numbers on which it rests.

    They are the confidence with which the intent was resolved and, unless a rule or a person ended the run, the scores
    that judge the result: policy, utility and safety. Without any of them it is 1: the runtime itself refused.
    Latency and economics say what the run used, and nothing about the result.
    """
    scores = [entry.body["confidence"] for entry in account.of("intent.resolved")]
    if outcome.scorecard and outcome.end in ("completed", "escalated", "exhausted"):
        scores += [outcome.scorecard[axis]["score"] for axis in ("policy", "utility", "safety")]
    return min(scores, default=1)


def _approvals(account: RunAccount) -> list[dict[str, Any]]:
    questions = {entry.key: entry.body for entry in account.of("approval.asked")}
    rechecked = {entry.key: entry.body["other"] for entry in account.of("evidence.rechecked")}
    receipts, void = [], account.void_answers()
    for entry in account.of("approval.answered", "approval.expired"):
        question = questions[entry.key]
        is_answered = entry.kind == "approval.answered" and entry.seq not in void
        receipts.append(
            {
                "gate_id": question["gate_id"],
                "approver": entry.body["approver"] if is_answered else "nobody",
                "approval_mode_effective": question["binding"]["mode"],
                "evidence_snapshot_hash": question["binding"]["evidence_snapshot_hash"],
                "decided_at": rfc3339(entry.at_us),
                "verdict": entry.body["verdict"] if is_answered else "void" if entry.seq in void else "expired",
                "reason": entry.body["reason"] if is_answered else void.get(entry.seq, "the gate's deadline passed"),
                "binding_digest": question["binding_digest"],
                **({"assertion": entry.body["assertion"]["kind"]} if is_answered else {}),
                **(
                    {"moved": changes} if (changes := _changed_evidence(question, rechecked.get(entry.key, {}))) else {}
                ),
            }
        )
    return receipts


def _changed_evidence(question: Mapping[str, Any], rechecked_values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of volatile evidence that changed since the question, also beyond their tolerance."""
    changes = []
    for item in question["evidence"]:
        rechecked = rechecked_values.get(f"{item['ref']}#{item['name']}")
        for place, tolerance in item.get("volatile", {}).items():
            before = _number_at(item["value"], place)
            after = _number_at(rechecked["value"], place) if isinstance(rechecked, Mapping) else before
            if before != after:
                change = {"evidence": item["name"], "place": place, "was": before, "now": after}
                changes.append(change | {"tolerance": tolerance})
    return changes


def _number_at(value: Any, place: str) -> int | float | None:
    number: Any = resolve_pointer(value, place)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else None


def _unsafe_assertions(approvals: Sequence[Mapping[str, Any]]) -> set[str]:
    return {"unsafe_local_assertion" for receipt in approvals if receipt.get("assertion") == "unsafe_local"}


def _controls(pinned: PinnedInputs | None, account: RunAccount) -> dict[str, list[str]]:
    """Return the controls of all policy decisions of the run, and the redaction rules of its pack."""
    rules = list(pinned.pack.policy_layer.guardrails.redaction_rules) if pinned else []
    return {
        "must_refuse": account.raised("must_refuse"),
        "must_escalate": account.raised("must_escalate"),
        "approval_gates_active": account.raised("gates"),
        "redaction_rules_active": sorted(rules),
    }


def _hashes(account: RunAccount) -> dict[str, str]:
    compiled = account.last("context.compiled")
    transcripts = [entry.hash for entry in account.of("tool.returned")]
    hashes = {"tool_transcript_chain_hash": content_address(transcripts)}
    if compiled:
        hashes["compiled_context_hash"] = compiled.body["context_ledger"]["compiled_context_hash"]
    return hashes
