"""The Executor runs a verified plan, step by step, through the Tool Gateway; it can reach nothing else.

Source: How It Works, step 5; docs/design/contracts.md, "Loop guard".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from contextos.contracts.bindings import resolve_params
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.plan import Plan, PlanStep
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure, FailureCode
from contextos.contracts.ports.seams import Journal, Tools
from contextos.contracts.refs import tool_ref
from contextos.contracts.scope import Fact, RunScope, StepCall
from contextos.decision.critic import spec_of
from contextos.decision.parallel_reads import independent_reads

LOOP_LIMIT: Final = 3
"""The third identical (capability, arguments) step within one plan revision trips the loop guard."""

_REFUSALS: Final[frozenset[str]] = frozenset(get_args(FailureCode))


@dataclass(frozen=True, slots=True)
class Execution:
    """What became of a plan: results by step, evidence gathered, and the failure that stopped it, if one did."""

    results: Mapping[str, ToolResultEnvelope]
    evidence: Mapping[str, Fact]
    failure: Failure | None


async def execute_plan(
    plan: Plan,
    scope: RunScope,
    tools: Tools,
    journal: Journal,
    evidence: Mapping[str, Fact],
    sources: Mapping[str, Any],
) -> Execution:
    """Run the steps in order, and independent reads at the same time. Stops at the first failure in plan order.

    A failure is a refusal, a failed step or an unresolved checkpoint. The results are those of the steps up to it;
    what other members of its group answered is in the journal and counts for nothing.
    """
    facts, results, seen = dict(evidence), dict[str, ToolResultEnvelope](), dict[str, int]()
    at = 0
    while at < len(plan.steps):
        group = independent_reads(plan, scope, at, results)
        group = group[: max(1, tools.sent_together(group))] if len(group) > 1 else group
        outputs = {name: result.output for name, result in results.items() if result.output is not None}
        views = {**sources, "evidence": evidence_view(facts), "step": outputs}
        calls, unprepared = _prepare_all(plan, scope, group, facts, views, seen)
        answers = await tools.call_all(calls) if len(calls) > 1 else [await tools.call(call) for call in calls]
        for call, result in zip(calls, answers, strict=False):
            results[call.step.id] = result
            facts |= produced_evidence(scope, call.step, result, journal.now_us)
            failure = _stopped(call.step, result) or _checkpoint(plan, scope, call.step, facts, journal)
            if failure:
                return Execution(results, facts, failure)
        if unprepared:
            return Execution(results, facts, unprepared)
        at += len(group)
    return Execution(results, facts, None)


def evidence_view(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """Evidence as bindings read it: by name, then `value`, `subject` or `evidence_ref`."""
    return {
        name: {"value": fact.value, "subject": fact.subject, "evidence_ref": fact.evidence_ref}
        for name, fact in facts.items()
    }


def _prepare_all(
    plan: Plan,
    scope: RunScope,
    group: Sequence[PlanStep],
    facts: Mapping[str, Fact],
    sources: Mapping[str, Any],
    seen: dict[str, int],
) -> tuple[list[StepCall], Failure | None]:
    """The calls of a group up to the first step that cannot be called, and why it cannot."""
    calls: list[StepCall] = []
    for step in group:
        call, failure = _prepare(plan, scope, step, facts, sources, seen)
        if call is None:
            return calls, failure
        calls.append(call)
    return calls, None


def _prepare(
    plan: Plan,
    scope: RunScope,
    step: PlanStep,
    facts: Mapping[str, Fact],
    sources: Mapping[str, Any],
    seen: dict[str, int],
) -> tuple[StepCall | None, Failure | None]:
    args, provenance, missing = resolve_params(step.params, sources)
    if missing:
        detail = f"argument `{missing[0]}` of `{step.tool}` does not resolve to a value"
        return None, Failure(code="schema_mismatch", detail=detail, step_id=step.id, capability_id=step.tool)
    identity = content_address([step.tool, args])
    occurrence = seen.get(identity, 0)
    seen[identity] = occurrence + 1
    if occurrence + 1 >= LOOP_LIMIT:
        detail = f"`{step.tool}` is called {LOOP_LIMIT} times with the same arguments"
        return None, Failure(code="loop_guard", detail=detail, step_id=step.id, capability_id=step.tool)
    key = spec_of(plan, step.id)
    spec = scope.specs.get(key) if key else None
    return StepCall(
        revision=plan.revision or 0,
        step=step,
        args=args,
        provenance=provenance,
        evidence=dict(facts),
        required_evidence=tuple(spec.required_evidence) if spec else (),
        spec_key=key if spec else None,
        occurrence=occurrence,
    ), None


def produced_evidence(scope: RunScope, step: PlanStep, result: ToolResultEnvelope, now_us: int) -> dict[str, Fact]:
    """The evidence that a good result is."""
    if result.status not in ("ok", "completed") or step.tool not in scope.capabilities:
        return {}
    ref = tool_ref(result.capability_id, result.tool_call_id)
    digest = content_address(result.output)
    return {
        name: Fact(name, ref, step.tool, result.output, digest, now_us)
        for name in scope.capabilities[step.tool].definition.produces
    }


def _stopped(step: PlanStep, result: ToolResultEnvelope) -> Failure | None:
    """A business error is an answer and stops nothing by itself: the checkpoint notices what it did not give."""
    if result.status in ("ok", "completed"):
        return None
    error = result.error
    assert error is not None, "a result that is not good says why"
    if result.status == "error" and step.approval_mode == "read_only":
        return None
    # What an adapter calls its error is the adapter's own: it cannot speak for the gateway.
    code: Any = error.code if result.status != "error" and error.code in _REFUSALS else "tool_failed"
    return Failure(code=code, detail=error.message, step_id=step.id, capability_id=step.tool)


def _checkpoint(
    plan: Plan, scope: RunScope, step: PlanStep, facts: Mapping[str, Fact], journal: Journal
) -> Failure | None:
    """After this step: required evidence resolves before anything riskier runs."""
    for point in plan.decision_checkpoints:
        if point.after_step != step.id:
            continue
        required: Sequence[str] = scope.specs[point.decision_id].required_evidence
        satisfied = {name: facts[name].evidence_ref for name in required if name in facts}
        unresolved = [name for name in required if name not in facts]
        journal.derive(
            "checkpoint.checked",
            f"{plan.revision}/{step.id}",
            {
                "decision_key": point.decision_id,
                "decision_version": scope.specs[point.decision_id].version,
                "satisfied": satisfied,
                "unresolved": unresolved,
            },
        )
        if unresolved:
            names = ", ".join(f"`{name}`" for name in unresolved)
            return Failure(code="missing_evidence", detail=f"`{point.decision_id}` lacks {names}", step_id=step.id)
    return None
