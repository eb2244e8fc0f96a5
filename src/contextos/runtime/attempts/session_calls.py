"""Make the calls of a session: each becomes a plan of its own, and its result is recorded for the agent or the model.

Several reads that a model asks for at once are one plan, and run at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.contracts.bindings import binding_of
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.plan import DecisionCheckpoint, Plan, PlanStep, TaskTemplate
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure, FailureCode
from contextos.contracts.ids import derive
from contextos.contracts.journal import Logged
from contextos.contracts.ports.gates import REFUSED_ARGS
from contextos.contracts.scope import Fact, RunScope
from contextos.intelligence.retrieval import drop_stale_names
from contextos.runtime.admission import AdmittedRun
from contextos.runtime.attempts.one_plan import Surface, try_plan
from contextos.runtime.code_pins import recheck_preconditions
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.reopening import is_asked_again
from contextos.runtime.wiring import facts_by_name

AGENT_PLANNER: Final = "agent@1"
"""The planner of a plan that an agent asked for."""

MAX_STEP_NAME: Final = 60
"""How many characters of a step's id are in the id of a read that is made together with others."""

OF_TOOL: Final[frozenset[FailureCode]] = frozenset({"tool_failed", "unsafe_output", "output_disagrees"})
"""The failures of a call that reached its tool, whether the tool answered or not."""


@dataclass(slots=True)
class SessionProgress:
    """What a session has done so far.

    `results` has the last result of each step, by step id. `facts` has the evidence of its calls, oldest first.
    `retrieved` is the retrieved evidence with the facts that it states. `objected` has the digests of the calls to
    which a judge objected.
    """

    results: dict[str, ToolResultEnvelope] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    retrieved: tuple[Sequence[EvidenceItem], Sequence[Fact]] = ((), ())
    objected: set[str] = field(default_factory=set)

    def known(self, retrieved: Sequence[EvidenceItem], scope: RunScope) -> tuple[Fact, ...]:
        """Return all evidence, the oldest first: first the retrieved evidence, then the results of calls."""
        if self.retrieved[0] != retrieved:
            self.retrieved = retrieved, [*facts_by_name(retrieved, scope).values()]
        return (*self.retrieved[1], *self.facts)


async def make_call(
    request: InvokeRequest,
    admitted: AdmittedRun,
    surface: Surface,
    progress: SessionProgress,
    asked: Logged,
    revision: int,
    environment: RunEnvironment,
) -> tuple[tuple[Failure, ...], Any]:
    """Make one call that the agent asked for, and record its result. Returns the failures, and what the tool
    answered.
    """
    environment.barrier.forget()
    template = admitted.templates[0]
    planner = AGENT_PLANNER if template.chosen_by == "agent" else admitted.planner
    plan = _plan(environment.journal.run_id, template, asked.body, revision, planner)
    if isinstance(plan, Failure):
        return _record_answer(asked, "refused", None, (plan,), environment), None
    step = plan.steps[0]
    if objection := _earlier_objection(progress, asked, step):
        return _record_answer(asked, "refused", None, (objection,), environment), None
    known_tool = admitted.scope.tools.capabilities.get(step.tool)
    if known_tool is None or known_tool.definition.kind != "write":
        # The gateway checks the preconditions of each write itself, so every other call is checked here.
        changed, _ = await recheck_preconditions(environment, admitted.scope, f"{revision}/{step.id}", known_tool)
        if changed:
            return _record_answer(asked, "refused", None, (changed,), environment), None
    evidence = progress.known(fresh_items(admitted, environment), admitted.scope)
    execution, failures = await try_plan(request, admitted, template, plan, surface, evidence, environment)
    progress.facts += execution.facts[len(evidence) :]
    if _has_objection(failures):
        progress.objected.add(_call_digest(asked))
    if is_asked_again(failures, revision, environment.journal):
        return failures, None
    result = execution.results.get(step.id)
    if result is None:
        return _record_answer(asked, "refused", None, failures, environment), None
    is_done = result.status in ("ok", "completed")
    if is_done:
        progress.results[step.id] = result
    status = "done" if is_done else _failed_status(result, failures)
    return _record_answer(asked, status, f"{revision}/{step.id}", failures, environment), result.output


def _earlier_objection(progress: SessionProgress, call: Logged, step: PlanStep) -> Failure | None:
    """Return why a call is refused if a judge objected to it before: an agent cannot repeat it until a judge accepts
    it.
    """
    if not progress.objected or _call_digest(call) not in progress.objected:
        return None
    detail = f"a judge objected to the same call of `{step.tool}` before"
    return Failure(code="judge_objects", detail=detail, step_id=step.id, capability_id=step.tool)


def _has_objection(failures: Sequence[Failure]) -> bool:
    return any(failure.code == "judge_objects" for failure in failures)


def _call_digest(call: Logged) -> str:
    """Return the digest that equal calls share."""
    return content_address([call.body["tool"], call.body["args"]])


async def make_reads(
    request: InvokeRequest,
    admitted: AdmittedRun,
    surface: Surface,
    progress: SessionProgress,
    asked: Sequence[Logged],
    revision: int,
    environment: RunEnvironment,
) -> tuple[list[tuple[Logged, Any]], tuple[Failure, ...], int]:
    """Make several reads at the same time, and record the result of each. Returns each read with its tool's answer, the
    failures, and the revision of the last plan.

    The reads are one plan. If it is not accepted, the reads at fault are refused, and the others become another plan.
    """
    environment.barrier.forget()
    template, run_id = admitted.templates[0], environment.journal.run_id
    outputs, steps, all_failures = dict[str, Any](), dict[str, PlanStep](), list[Failure]()
    step_ids = dict[str, str]()
    refusals = dict[str, Failure]()
    for number, call in enumerate(asked):
        plan = _plan(run_id, template, call.body, revision, admitted.planner)
        if isinstance(plan, Failure):
            refusals[call.key] = plan
            continue
        step = plan.steps[0]
        if objection := _earlier_objection(progress, call, step):
            refusals[call.key] = objection
            continue
        tool, name = admitted.scope.tools.capabilities.get(step.tool), f"{step.id[:MAX_STEP_NAME]}-{number}"
        changed, _ = await recheck_preconditions(environment, admitted.scope, f"{revision}/{name}", tool)
        if changed:
            refusals[call.key] = changed
        else:
            steps[call.key], step_ids[name] = step.model_copy(update={"id": name}), step.id
    for call in asked:
        if call.key in refusals:
            _record_answer(call, "refused", None, (refusals[call.key],), environment)
    calls = {call.key: call for call in asked}
    while steps:
        evidence = progress.known(fresh_items(admitted, environment), admitted.scope)
        plan = _build_plan(run_id, template, tuple(steps.values()), (), revision, admitted.planner)
        execution, failures = await try_plan(request, admitted, template, plan, surface, evidence, environment)
        progress.facts += execution.facts[len(evidence) :]
        all_failures += failures
        if _has_objection(failures):
            progress.objected |= {_call_digest(calls[key]) for key in steps}
        faulty_keys = {key for key, step in steps.items() if any(failure.step_id == step.id for failure in failures)}
        is_over = bool(execution.results) or not faulty_keys
        for key in [*steps] if is_over else [*faulty_keys]:
            step = steps.pop(key)
            step_failures = tuple(failure for failure in failures if failure.step_id == step.id)
            result = execution.results.get(step.id)
            if result is None:
                _record_answer(calls[key], "refused", None, step_failures or failures, environment)
                continue
            outputs[key], is_done = result.output, result.status in ("ok", "completed")
            if is_done:
                progress.results[step_ids[step.id]] = result
            status = "done" if is_done else _failed_status(result, step_failures)
            _record_answer(calls[key], status, f"{revision}/{step.id}", step_failures, environment)
        revision += bool(steps)
    return [(call, outputs.get(call.key)) for call in asked], tuple(all_failures), revision


def _failed_status(result: ToolResultEnvelope, failures: Sequence[Failure]) -> str:
    """Return whether a call that was not done failed at its tool (`failed`) or was refused before (`refused`)."""
    of_tool = result.status in ("error", "paused") or any(failure.code in OF_TOOL for failure in failures)
    return "failed" if of_tool else "refused"


def _record_answer(
    call: Logged, status: str, step: str | None, failures: tuple[Failure, ...], environment: RunEnvironment
) -> tuple[Failure, ...]:
    body = {"status": status, "step": step, "failures": [failure.to_json() for failure in failures]}
    if environment.secret_values is not None and not environment.journal.on_tape:
        environment.secret_values.forget(environment.journal.run_id, call.body["args"])
    environment.journal.derive("call.answered", call.key, body)
    return failures


def _plan(run_id: str, template: TaskTemplate, call: Mapping[str, Any], revision: int, planner: str) -> Plan | Failure:
    """Return the plan of one step for the call that the agent asks for, with the approvals that the template
    requires.
    """
    tool, args = call["tool"], call["args"]
    step = next((candidate for candidate in template.steps if candidate.tool == tool), None)
    if step is None:
        names = ", ".join(f"`{candidate.tool}`" for candidate in template.steps)
        return Failure(code="tool_not_in_manifest", detail=f"`{tool}` is no tool of this session; use one of {names}")
    if REFUSED_ARGS in args:
        detail = f"the call of `{tool}` could not be taken ({str(args[REFUSED_ARGS])[:40]})"
        return Failure(code="schema_mismatch", detail=detail, step_id=step.id, capability_id=tool)
    for name, value in args.items():
        if _is_binding(value):
            detail = f"argument `{name}` of `{tool}` refers to another value; send the value itself"
            return Failure(code="schema_mismatch", detail=detail, step_id=step.id, capability_id=tool)
    # A read can provide the evidence that the decision requires, so its plan has no checkpoint.
    points = template.decision_checkpoints if step.approval_mode != "read_only" else ()
    return _build_plan(run_id, template, (step.model_copy(update={"params": dict(args)}),), points, revision, planner)


def _build_plan(
    run_id: str,
    template: TaskTemplate,
    steps: tuple[PlanStep, ...],
    points: tuple[DecisionCheckpoint, ...],
    revision: int,
    planner: str,
) -> Plan:
    return Plan(
        plan_id=derive("plan_", run_id, "plan", revision),
        intent=template.intent,
        steps=steps,
        decision_checkpoints=points,
        revision=revision,
        planner=planner,
        template_id=f"{template.template_id}@{template.version}",
    )


def _is_binding(value: Any) -> bool:
    try:
        return binding_of(value) is not None
    except ValueError:
        return True


def fresh_items(admitted: AdmittedRun, environment: RunEnvironment) -> Sequence[EvidenceItem]:
    """Return the retrieved evidence; an item that has become too old loses its name."""
    return drop_stale_names(admitted.items, admitted.query.named, environment.journal.now_us)
