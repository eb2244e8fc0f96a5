"""The end of a run: its outcome, the memories it proposes, its DecisionRecord and its ReplayPacket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from contextos.contracts.bindings import binding_of, resolve_binding
from contextos.contracts.controls import RunControls
from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.envelopes.plan import Plan, TaskTemplate
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import End, Failure
from contextos.contracts.journal import Logged
from contextos.contracts.model import changed
from contextos.contracts.ports.seams import Journal
from contextos.contracts.scope import RunScope
from contextos.decision import executor, scoring
from contextos.decision.critic import governing_decisions
from contextos.decision.executor import Execution
from contextos.intelligence.memory import BoundMemory, candidate_writes, propose_memories
from contextos.runtime.admission import AdmittedRun, bound_ceids
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.memory_policy import permitted_proposals
from contextos.runtime.wiring import current_record
from contextos.trust.journal.effects import end_contradiction
from contextos.trust.journal.record import Decision, RunOutcome


def end_contradictions(
    end: End, scope: RunScope | None, journal: Journal, made: Set[str] = frozenset()
) -> tuple[Failure, ...]:
    """Return why the run cannot end as `end` after what it did, or nothing. `made` are the steps of decisions that were
    made before; this end is not about them.
    """
    effects = [effect for effect in journal.account.effects.values() if effect["step_id"] not in made]
    tools = scope.tools.capabilities.items() if scope and journal.account.last("call.asked") else ()
    writes = {name for name, capability in tools if capability.definition.kind == "write"}
    missed_call = journal.account.undone_call(writes) if writes else None
    reason = end_contradiction(end, effects, missed_call)
    return (Failure(code="must_escalate", detail=reason),) if reason else ()


def agreed(outcome: RunOutcome, scope: RunScope | None, journal: Journal, made: Set[str] = frozenset()) -> RunOutcome:
    """Return `outcome` if it agrees with what the run did; else the outcome as `escalated`, with the contradictions."""
    assert outcome.end is not None, "a run that ends has an end"
    failures = end_contradictions(outcome.end, scope, journal, made)
    return replace(outcome, end="escalated", failures=(*outcome.failures, *failures)) if failures else outcome


def decide_outcome(
    admitted: AdmittedRun, attempt: Attempt, environment: RunEnvironment
) -> tuple[RunOutcome, list[RunOutcome]]:
    """Step 14: return how the run ends, with its outputs, and how each decision before the last one ended.

    The run also proposes what is to be remembered of it.
    """
    sources, decisions = _sources(admitted, attempt), decisions_of(admitted.template(attempt.plan), attempt.plan)
    outcome = _run_outcome(admitted, attempt, decisions, sources, environment.journal)
    outcome = _consolidate(admitted, attempt, outcome, sources, environment)
    return outcome, _earlier_outcomes(attempt, outcome, decisions)


def _run_outcome(
    admitted: AdmittedRun, attempt: Attempt, decisions: Sequence[Decision], sources: Mapping[str, Any], journal: Journal
) -> RunOutcome:
    """Return how the run ends, from its last score and what it did."""
    failures = attempt.failures
    accepted = attempt.scorecard["verdict"] == "accept"
    end: End = "completed" if accepted else scoring.end_of(failures) if failures else "escalated"
    # Only a score can stop what an agent approves; it can always deny and escalate.
    end = end if attempt.stated in (None, "completed") else attempt.stated
    template = admitted.template(attempt.plan)
    by = "agent" if template.chosen_by == "agent" else admitted.planner
    values = {name: resolve_binding(binding, sources) for name, binding in template.outputs.items()}
    outcome = RunOutcome(
        end,
        failures,
        {name: value for name, value in values.items() if value is not MISSING},
        bound_ceids(template.subjects, sources),
        strategy=f"{by}:{template.template_id}@{template.version}",
        alternatives=tuple(f"{item.template_id}@{item.version}" for item in admitted.templates if item is not template),
        scorecard=attempt.scorecard,
        decision=last_decision(template, attempt.plan, decisions),
    )
    done_steps = [decision.steps for decision in decisions[:-1] if _is_made(decision, attempt, failures)]
    return agreed(outcome, admitted.scope, journal, frozenset[str]().union(*done_steps))


def decisions_of(template: TaskTemplate, plan: Plan | None) -> tuple[Decision, ...]:
    """Return the decisions of a run in the order of its plan, or of its template if it has no plan. Each decision
    governs the steps above `read_only` after its checkpoint.
    """
    source = plan or template
    keys = list(dict.fromkeys(point.decision_id for point in source.decision_checkpoints))
    governing = governing_decisions(source)
    keys_by_step = {step.id: governing.get(step.id) for step in source.steps if step.approval_mode != "read_only"}
    return tuple(
        Decision(key, frozenset(step for step, by in keys_by_step.items() if by == key), last=key == keys[-1])
        for key in keys
    )


def last_decision(template: TaskTemplate, plan: Plan | None, decisions: Sequence[Decision]) -> Decision | None:
    """Return the last of `decisions`, with which the run ends, or None if there is no checkpoint. It also governs every
    step that no other decision governs.
    """
    if not decisions:
        return None
    steps = {step.id for step in (plan or template).steps}
    return changed(decisions[-1], steps=frozenset(steps.difference(*[decision.steps for decision in decisions[:-1]])))


def waiting_decision(template: TaskTemplate, plan: Plan, step_id: str) -> Decision | None:
    """Return the decision that governs a step that waits."""
    decisions = decisions_of(template, plan)
    governing = [decision for decision in decisions[:-1] if step_id in decision.steps]
    return governing[0] if governing else last_decision(template, plan, decisions)


def waiting_record(
    request: InvokeRequest,
    scope: RunScope,
    template: TaskTemplate,
    plan: Plan,
    environment: RunEnvironment,
    why: str,
    call: str,
) -> dict[str, Any]:
    """Return the record of a decision that waits: for an approval, or for a person to say what became of an effect."""
    uncertain = Failure(code="effect_uncertain", detail="it is not known whether the effect happened; settle it")
    failures = (uncertain,) if why == "effect_uncertain" else ()
    decision = waiting_decision(template, plan, call.split("/")[1])
    return current_record(environment, request, scope, RunOutcome(None, failures, decision=decision))


def _earlier_outcomes(attempt: Attempt, outcome: RunOutcome, decisions: Sequence[Decision]) -> list[RunOutcome]:
    """Return how each decision before the last one ended. A decision whose steps are all done is made, even if a later
    step failed; every other one ends as the run does.
    """
    outcomes = []
    for decision in decisions[:-1]:
        is_made = _is_made(decision, attempt, outcome.failures)
        end: End | None = "completed" if is_made else outcome.end
        failures = () if is_made else outcome.failures
        outcomes.append(replace(outcome, end=end, failures=failures, decision=decision))
    return outcomes


def _is_made(decision: Decision, attempt: Attempt, failures: Sequence[Failure]) -> bool:
    """Return whether a decision before the last one is made although the run failed after it."""
    done = {step for step, result in attempt.execution.results.items() if result.status in ("ok", "completed")}
    failed_steps = {failure.step_id for failure in failures}
    return bool(failures) and bool(decision.steps) and decision.steps <= done and not decision.steps & failed_steps


def _consolidate(
    admitted: AdmittedRun,
    attempt: Attempt,
    outcome: RunOutcome,
    sources: Mapping[str, Any],
    environment: RunEnvironment,
) -> RunOutcome:
    """Propose statements to remember. A proposal stays a candidate until a person accepts it.

    Policy is asked about each proposal; if policy escalates one, the run ends as escalated.
    """
    if outcome.end != "completed":
        return outcome
    results = attempt.execution.results.values()
    refs = tuple(citation.evidence_ref for result in results for citation in result.citations)
    bound = []
    for memory in admitted.template(attempt.plan).memory:
        entity = bound_ceids((memory.entity,), sources)
        binding = binding_of(memory.value)
        value = memory.value if binding is None else resolve_binding(binding, sources)
        if entity and value is not MISSING:
            bound.append(BoundMemory(memory, entity[0], value, refs, 1))
    evidence = attempt.execution.evidence
    consent = evidence.get("memory_consent")
    proposals = propose_memories(
        bound,
        run_id=environment.journal.run_id,
        layer=admitted.loaded.pack.memory_layer,
        recalled=admitted.memory,
        classification=admitted.loaded.pack.pack_meta.data_classification,
        consent_given=consent is not None and consent.value is True,
        at_us=environment.journal.now_us,
    )
    proposals, escalating = permitted_proposals(proposals, admitted, evidence.keys(), environment.journal)
    environment.journal.derive("memory.proposed", "", {"proposals": [proposal.to_json() for proposal in proposals]})
    environment.journal.stage(*candidate_writes(proposals))
    if not escalating:
        return outcome
    failure = Failure(code="must_escalate", detail="a guardrail escalates a memory: " + ", ".join(escalating))
    return replace(outcome, end="escalated", failures=(failure,))


async def conclude(
    request: InvokeRequest,
    scope: RunScope | None,
    outcome: RunOutcome,
    environment: RunEnvironment,
    earlier: Sequence[RunOutcome] = (),
) -> dict[str, Any]:
    """Step 15: commit the records, the replay packet and the entry `run.ended` together; return the last record as
    JSON.

    `earlier` are the decisions before the last one; each gets a record of its own. An end that contradicts what the run
    did becomes an escalation.
    """
    journal = environment.journal
    done_steps = frozenset[str]().union(
        *(previous.decision.steps for previous in earlier if previous.end == "completed" and previous.decision)
    )
    outcome = agreed(outcome, scope, journal, done_steps)
    for previous in earlier:
        assert previous.decision is not None, "an earlier decision has a key"
        record = current_record(environment, request, scope, previous)
        journal.derive("record.revised", f"final/{previous.decision.key}", record)
    record = current_record(environment, request, scope, outcome)
    journal.derive("record.revised", "final", record)
    journal.derive("replay.packed", "", {"replay_packet_id": record["replay"]["replay_id"]})
    journal.derive(
        "run.ended",
        "",
        {
            "end": outcome.end,
            "record_id": record["record_id"],
            "record_hash": record["record_hash"],
            "entries": len(journal.log()) + 1,
        },
    )
    await journal.commit(wake_at_us=0)
    return record


def _sources(admitted: AdmittedRun, attempt: Attempt) -> dict[str, Any]:
    """Return the sources that bindings can read after the plan ran."""
    outputs = {name: result.output for name, result in attempt.execution.results.items() if result.output is not None}
    return {
        "request": admitted.scope.received.fields,
        "parameter": admitted.scope.parameter_values,
        "evidence": executor.evidence_view(attempt.execution.evidence),
        "step": outputs,
    }


@dataclass(frozen=True, slots=True)
class Attempt:
    """One plan that was tried: the results of its steps, its failures, its scores, and the controls raised so far.

    `template` is the number of its template, and `revision` the number of the plan; both count from 0. A session has no
    plan of its own; `stated` is how its agent ended it, or None. `again` is the call of a session if the call's
    question is asked again.
    """

    plan: Plan | None
    execution: Execution
    failures: tuple[Failure, ...]
    scorecard: Mapping[str, Any]
    controls: RunControls
    revision: int = 0
    template: int = 0
    stated: End | None = None
    again: Logged | None = None

    @property
    def next_template(self) -> int:
        """Return the number of the template that a reopened run tries."""
        return self.template + int(self.scorecard["verdict"] == "replan")
