"""Compute what the envelopes of a run say now, from its journal: a call that waits, and the budget used so far.

Source: API Contracts, "ToolResultEnvelope statuses"; Reference Architecture, "RunBudget".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.reading import logged, read_body
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.journal import Entry


def whole_result(entries: Sequence[Entry], stated: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the whole `ToolResultEnvelope` of the part `stated` in the journal; None if the request was erased."""
    if (body := read_body(entries[0])) is None:
        return None
    trace_id, session_id = body["request"]["trace"]["trace_id"], body["request"].get("session_id")
    return ToolResultEnvelope.of_run(entries[0].run, trace_id, session_id, stated).to_json()


def paused_result(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a call that waits for an approval, as the journal states one; `asked` is the body of its
    question. Nothing was sent, so it has neither output nor effects.
    """
    binding = asked["binding"]
    return {
        "tool_call_id": binding["tool_call_id"],
        "capability_id": binding["capability_id"],
        "status": "paused",
        "citations": [],
        "risk_tags": [binding["mode"]],
        "policy_decision_id": binding["policy_decision_id"],
        "latency_ms": 0,
        "metadata": {
            "waits_for": "approval",
            "approval_id": asked["approval_id"],
            "requires_approval_gate": asked["gate_id"],
            "deadline_us": asked["deadline_us"],
        },
    }


def run_budget(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Return the `BudgetInForce` of a run, with what it has used up to its last entry as `atomic_usage`.

    A limit that an operator raised has its raised value. `latency_ms` excludes waiting. None before the run has a
    context, and if entries with used amounts were erased.
    """
    log = logged(entries)
    if any(entry.body is None for entry in log):
        return None
    budget: dict[str, Any] | None = None
    account = account_of(entries[0].run if entries else "", log)
    for entry in account.of("run.context", "run.reopened"):
        if entry.kind == "run.context":
            budget = dict(entry.body["run_budget"])
        elif entry.kind == "run.reopened" and budget is not None and entry.body.get("limit"):
            budget[entry.body["limit"]] = entry.body["to"]
    if budget is None:
        return None
    usage = account.used()
    return {
        **budget,
        "atomic_usage": {
            "tokens": usage.tokens,
            "tool_calls": usage.tool_calls,
            "latency_ms": usage.wall_clock_us / 1_000,
            "cost_cents": usage.cost_cents,
        },
    }
