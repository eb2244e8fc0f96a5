"""Run a verified plan, step by step, through the tool gateway. The executor has no other way to the outside.

Source: How It Works, step 5; docs/design/contracts.md, "Loop guard".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from contextos.contracts.bindings import KnownStep, resolve_params
from contextos.contracts.encoding.defaults import without_defaults, without_null_defaults
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.plan import DecisionCheckpoint, DecisionSpec, Plan, PlanStep
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure, FailureCode
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.seams import Journal, Tools
from contextos.contracts.refs import tool_ref
from contextos.contracts.scope import Fact, RunScope, ToolAccess
from contextos.decision.critic import governing_decisions
from contextos.decision.observing import observe_failures
from contextos.decision.parallel_reads import independent_reads
from contextos.errors import InvalidInput

LOOP_LIMIT: Final = 3
"""The third identical (capability, arguments) step within one plan revision trips the loop guard."""

_FAILURE_CODES: Final[frozenset[str]] = frozenset(get_args(FailureCode))
_TOOL_STATUSES: Final = ("error", "paused")
"""The failed statuses that a tool itself states. A write of unknown outcome is settled before it has a result here."""


Arguments = tuple[Mapping[str, Any], Mapping[str, str], Sequence[str]]
"""The arguments of a step, the origin of each argument, and the names of the arguments that do not resolve."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The outcome of running a plan: results by step, all known evidence (the oldest first), and the failure that
    stopped the plan, or None.
    """

    results: Mapping[str, ToolResultEnvelope]
    facts: Sequence[Fact]
    failure: Failure | None

    @property
    def evidence(self) -> Mapping[str, Fact]:
        """Return the newest evidence of each name."""
        return _newest_by_name(self.facts)


async def execute_plan(
    plan: Plan,
    known: Sequence[KnownStep],
    scope: RunScope,
    tools: Tools,
    journal: Journal,
    evidence: Sequence[Fact],
    sources: Mapping[str, Any],
) -> Execution:
    """Run the steps of a plan in order, and independent reads at the same time. Stops at the first failure in plan
    order.

    A failure is a refusal, a failed step or a checkpoint without its evidence. The results include the failed step and
    the steps before it. Answers of reads that were sent together with the failed step are in the journal but not used.
    `known` holds the arguments of the steps as they were resolved for the Critic. Arguments that an earlier step can
    change are resolved again.
    """
    facts, results, counts = list(evidence), dict[str, ToolResultEnvelope](), dict[tuple[str, str], int]()
    specs = scope.pinned.specs
    for point in plan.decision_checkpoints:
        if point.after_step is None and (failure := _check_evidence(point, f"{plan.revision}", specs, facts, journal)):
            if not scope.observes:
                return Execution(results, facts, failure)
            observe_failures((failure,), f"{plan.revision}/{plan.steps[0].id}", "checkpoint", journal)
    known_args = {item.step.id: (item.args, item.provenance, item.missing) for item in known if item.is_final}
    outputs, produced = dict[str, Any](), dict(sources.get("evidence", {}))
    views = {**sources, "evidence": produced, "step": outputs}
    governing = {step_id: (key, specs[key]) for step_id, key in governing_decisions(plan).items() if key in specs}
    position = 0
    while position < len(plan.steps):
        group = independent_reads(plan, scope.tools, position, results)
        group = group[: max(1, tools.sent_together(group))] if len(group) > 1 else group
        calls, fault = _prepare_calls(plan, scope.tools, known_args, governing, group, facts, views, counts)
        answers = await tools.call_all(calls) if len(calls) > 1 else [await tools.call(call) for call in calls]
        for call, result in zip(calls, answers, strict=False):
            results[call.step.id] = result
            if result.output is not None:
                outputs[call.step.id] = result.output
            if new_facts := produced_evidence(scope.tools, call, result, journal.now_us):
                facts += new_facts
                produced.update(evidence_view(_newest_by_name(new_facts)))
            failure = (
                _refusal(call.step, result)
                or _overrun_failure(call.step, scope, tools.overrun())
                or _step_failure(call.step, result)
                or _check_after_step(plan, specs, call, facts, journal)
            )
            if failure:
                return Execution(results, facts, failure)
        if fault:
            return Execution(results, facts, fault)
        position += len(group)
    return Execution(results, facts, None)


def _newest_by_name(facts: Sequence[Fact]) -> dict[str, Fact]:
    """Return the newest evidence of each name."""
    return {fact.name: fact for fact in facts}


def evidence_view(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """Return the evidence in the form that a plan's bindings read: by name, then `value`, `subject` or
    `evidence_ref`.
    """
    return {
        name: {"value": fact.value, "subject": fact.subject, "evidence_ref": fact.evidence_ref}
        for name, fact in facts.items()
    }


def _prepare_calls(
    plan: Plan,
    tools: ToolAccess,
    known_args: Mapping[str, Arguments],
    governing: Mapping[str, tuple[str, DecisionSpec]],
    group: Sequence[PlanStep],
    facts: Sequence[Fact],
    sources: Mapping[str, Any],
    counts: dict[tuple[str, str], int],
) -> tuple[list[ToolCall], Failure | None]:
    """Return the calls of a group up to the first step that cannot be called, and the failure of that step or None."""
    calls, evidence = list[ToolCall](), tuple(facts)
    for step in group:
        tool, fault = tools.capabilities.get(step.tool), ""
        try:
            schema = tool.definition.input_schema if tool else {}
            args, provenance, missing = known_args.get(step.id) or resolve_params(step.params, sources, schema)
        except InvalidInput as error:
            fault = f"`{step.tool}` at {error.problems[0]}"
        else:
            fault = f"argument `{missing[0]}` of `{step.tool}` does not resolve to a value" if missing else ""
        if fault:
            return calls, Failure(code="schema_mismatch", detail=fault, step_id=step.id, capability_id=step.tool)
        call = ToolCall(f"{plan.revision or 0}/{step.id}", step, args, provenance, evidence, governing.get(step.id))
        call.occurrence = counts.get((step.tool, call.args_digest), 0)
        counts[step.tool, call.args_digest] = call.occurrence + 1
        if call.occurrence + 1 >= LOOP_LIMIT:
            detail = f"`{step.tool}` is called {LOOP_LIMIT} times with the same arguments"
            return calls, Failure(code="loop_guard", detail=detail, step_id=step.id, capability_id=step.tool)
        calls.append(call)
    return calls, None


def produced_evidence(tools: ToolAccess, call: ToolCall, result: ToolResultEnvelope, now_us: int) -> list[Fact]:
    """Return the named evidence that a successful call's result provides. `now_us` is Unix time in microseconds."""
    tool = call.step.tool
    if result.status not in ("ok", "completed") or result.withheld or tool not in tools.capabilities:
        return []
    call_id = result.metadata.get("made_by", {}).get("tool_call_id", result.tool_call_id)
    definition = tools.capabilities[tool].definition
    if not definition.produces:
        return []
    ref, digest = tool_ref(result.capability_id, call_id), content_address(result.output)
    args = without_null_defaults(definition.input_schema, call.args)
    by_default = frozenset(args.keys() - without_defaults(definition.input_schema, args).keys())
    common = (ref, tool, result.output, digest, now_us, args, by_default, definition.volatile)
    return [Fact(name, *common) for name in definition.produces]


def _refusal(step: PlanStep, result: ToolResultEnvelope) -> Failure | None:
    return _step_failure(step, result) if result.status in ("blocked", "rejected") else None


def _overrun_failure(step: PlanStep, scope: RunScope, limit: str | None) -> Failure | None:
    """Return the failure of a run whose last call broke a limit, whatever the call answered: its effect is recorded."""
    if limit is None:
        return None
    detail = f"{scope.run.run_budget.stated(limit)}, and the run is above it after this call"
    return Failure(code="budget_exhausted", detail=detail, step_id=step.id, capability_id=step.tool, facts=(limit,))


def _step_failure(step: PlanStep, result: ToolResultEnvelope) -> Failure | None:
    """Return why the run stops after this result, or None. An error that a read-only tool states does not stop it: the
    next checkpoint notices the missing evidence.

    A withheld answer stops the run, although a write was then made, because a later step could need the answer.
    """
    if result.status in ("ok", "completed"):
        if result.withheld is None:
            return None
        withheld_code: Any = result.withheld.code
        return Failure(code=withheld_code, detail=result.withheld.detail, step_id=step.id, capability_id=step.tool)
    error = result.error
    assert error is not None, "a result that is not good says why"
    if result.status in _TOOL_STATUSES and step.approval_mode == "read_only":
        return None
    # An adapter chooses the code of its error freely, so only the gateway's own codes are passed on.
    is_gateway_code = result.status not in _TOOL_STATUSES and error.code in _FAILURE_CODES
    code: Any = error.code if is_gateway_code else "tool_failed"
    extra: Any = {"facts": error.facts} if is_gateway_code and error.facts else {}
    return Failure(code=code, detail=error.message, step_id=step.id, capability_id=step.tool, **extra)


def _check_after_step(
    plan: Plan, specs: Mapping[str, DecisionSpec], call: ToolCall, evidence: Sequence[Fact], journal: Journal
) -> Failure | None:
    """Check the decision checkpoints after this step; return the first failure, or None. Required evidence must exist
    before the next step runs. Evidence about another value of an argument of the step does not count.
    """
    step, key = call.step, f"{plan.revision}/{call.step.id}"
    for point in plan.decision_checkpoints:
        if point.after_step != step.id:
            continue
        required = specs[point.decision_id].required_evidence
        relevant = [fact for fact in evidence if fact.name in required and fact.agrees_with(call.args)]
        if failure := _check_evidence(point, key, specs, relevant, journal):
            return failure
    return None


def _check_evidence(
    point: DecisionCheckpoint, key: str, specs: Mapping[str, DecisionSpec], evidence: Sequence[Fact], journal: Journal
) -> Failure | None:
    """Record which evidence a decision requires and has. Returns a failure if any is missing."""
    facts, required = _newest_by_name(evidence), specs[point.decision_id].required_evidence
    satisfied = {name: facts[name].evidence_ref for name in required if name in facts}
    unresolved = [name for name in required if name not in facts]
    journal.derive(
        "checkpoint.checked",
        key,
        {
            "decision_key": point.decision_id,
            "decision_version": specs[point.decision_id].version,
            "satisfied": satisfied,
            "unresolved": unresolved,
        },
    )
    if not unresolved:
        return None
    names = ", ".join(f"`{name}`" for name in unresolved)
    suffix = f" about what `{point.after_step}` is about" if point.after_step else ""
    detail = f"`{point.decision_id}` lacks {names}{suffix}"
    return Failure(code="missing_evidence", detail=detail, step_id=point.after_step)
