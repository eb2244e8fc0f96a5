"""How a run ends: its outcome, the memories it proposes, its DecisionRecord and its ReplayPacket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contextos.contracts.bindings import binding_of, resolve_binding
from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.record import DecisionRecord
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import End, Failure
from contextos.contracts.scope import RunScope
from contextos.decision import executor, scoring
from contextos.decision.executor import Execution
from contextos.intelligence.memory import BoundMemory, candidate_writes, propose_memories
from contextos.runtime.admission import AdmittedRun, bound_ceids
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.wiring import current_record
from contextos.trust.journal.record import RunOutcome, build_packet


def decide_outcome(admitted: AdmittedRun, attempt: Attempt) -> RunOutcome:
    """What the last score amounts to: an end, with outputs only of what was accepted."""
    failures = attempt.failures
    accepted = attempt.scorecard["verdict"] == "accept"
    end: End = "completed" if accepted else scoring.end_of(failures) if failures else "escalated"
    template = admitted.template(attempt.plan)
    sources = _sources(admitted, attempt)
    values = {name: resolve_binding(binding, sources) for name, binding in template.outputs.items()}
    return RunOutcome(
        end,
        failures,
        {name: value for name, value in values.items() if value is not MISSING} if accepted else {},
        bound_ceids(template.subjects, sources),
        strategy=f"{admitted.planner}:{template.template_id}@{template.version}",
        alternatives=tuple(f"{t.template_id}@{t.version}" for t in admitted.templates if t is not template),
        scorecard=attempt.scorecard,
    )


def consolidate(admitted: AdmittedRun, attempt: Attempt, outcome: RunOutcome, environment: RunEnvironment) -> None:
    """Step 14: propose what might be remembered. It stays a candidate until a person promotes it."""
    if outcome.end != "completed":
        return
    results, sources = attempt.execution.results.values(), _sources(admitted, attempt)
    refs = tuple(citation.evidence_ref for result in results for citation in result.citations)
    bound = []
    for remembered in admitted.template(attempt.plan).memory:
        entity = bound_ceids((remembered.entity,), sources)
        binding = binding_of(remembered.value)
        value = remembered.value if binding is None else resolve_binding(binding, sources)
        if entity and value is not MISSING:
            bound.append(BoundMemory(remembered, entity[0], value, refs, 1))
    consent = attempt.execution.evidence.get("memory_consent")
    proposals = propose_memories(
        bound,
        run_id=environment.journal.run_id,
        layer=admitted.loaded.pack.memory_layer,
        recalled=admitted.memory,
        classification=admitted.loaded.pack.pack_meta.data_classification,
        consent_given=consent is not None and consent.value is True,
        at_us=environment.journal.now_us,
    )
    environment.journal.derive("memory.proposed", "", {"proposals": [proposal.to_json() for proposal in proposals]})
    environment.journal.stage(*candidate_writes(proposals))


async def conclude(
    request: InvokeRequest, scope: RunScope | None, outcome: RunOutcome, environment: RunEnvironment
) -> DecisionRecord:
    """Step 15 of `runtime.loop`: commit the record, the replay packet and the entry that ends the run, together."""
    journal = environment.journal
    record, wire = current_record(environment, request, scope, outcome)
    journal.derive("record.revised", "final", wire)
    journal.derive("replay.packed", "", build_packet(record, request).to_json())
    journal.derive(
        "run.ended",
        "",
        {
            "end": outcome.end,
            "record_id": record.record_id,
            "record_hash": record.record_hash,
            "entries": len(journal.log()) + 1,
        },
    )
    await journal.commit(wake_at_us=0)
    return record


def _sources(admitted: AdmittedRun, attempt: Attempt) -> dict[str, Any]:
    """The sources that bindings can read after the plan ran."""
    outputs = {name: result.output for name, result in attempt.execution.results.items() if result.output is not None}
    return {
        "request": admitted.scope.request_fields,
        "evidence": executor.evidence_view(attempt.execution.evidence),
        "step": outputs,
    }


@dataclass(frozen=True, slots=True)
class Attempt:
    """One plan revision that ran: its execution, its failures and its scorecard."""

    plan: Plan | None
    execution: Execution
    failures: tuple[Failure, ...]
    scorecard: Mapping[str, Any]
