"""Steps 7 to 13 for one plan: what the run can see and use, whether the plan is verified, its result and its score.

`loop.decision_loop` tries plans of templates and planners. `agent_session` tries each call of an agent as a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from contextos.action.gateway.delivery import DispatchPorts
from contextos.context.compiler import compile_context, recorded_context
from contextos.context.inputs import CompileInput, KnowledgeInputs, PackInputs, SurfaceInputs, TaskInputs
from contextos.contracts.bindings import KnownStep, known_steps, plan_with_defaults, steps_of_plan
from contextos.contracts.controls import RunControls
from contextos.contracts.envelopes.plan import Plan, TaskTemplate
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import changed
from contextos.contracts.scope import Fact, RunScope
from contextos.decision import critic, executor, scoring
from contextos.decision.executor import Execution
from contextos.decision.judging import SCORE, VERIFY
from contextos.decision.observing import observe_plan
from contextos.decision.planners.model import MODEL_PLANNER
from contextos.decision.planners.template import PLANNER
from contextos.errors import InvalidInput
from contextos.runtime.admission import AdmittedRun, within_token_budget
from contextos.runtime.attempts.announcing import announce_steps
from contextos.runtime.checkpoints import checkpoint
from contextos.runtime.conclusion import Attempt, waiting_record
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.inputs.slot_steps import fill_slots
from contextos.runtime.models import judge_plan, judge_score
from contextos.runtime.wiring import build_gateway, call_ports, decide_exposure, decide_plan_steps, facts_by_name
from contextos.trust.policy.constraints import check_args

NOTHING_DONE = Execution({}, (), None)


@dataclass(frozen=True, slots=True)
class Surface:
    """What a plan can be made from: the policy decision about each tool, the controls that these decisions raised, and
    the compiled context, or why there is none. `gates` are the gates announced for steps of the template, by step id,
    and `facts` the retrieved evidence by name. `steps` are the steps of the template, resolved from `sources`; a
    session has neither, because its agent states the arguments. `ports` are what calls need.
    """

    decisions: Mapping[str, PolicyDecision]
    controls: RunControls
    compiled: dict[str, Any] | Failure
    gates: Mapping[str, Sequence[str]]
    facts: Mapping[str, Fact]
    steps: Sequence[KnownStep]
    sources: Mapping[str, Any]
    ports: DispatchPorts

    @property
    def tools(self) -> frozenset[str]:
        """Return the ids of the tools that the run can use."""
        compiled = self.compiled
        return frozenset() if isinstance(compiled, Failure) else frozenset(compiled["context_ledger"]["tools"])


async def go_on(
    request: InvokeRequest,
    admitted: AdmittedRun,
    before: Attempt,
    template: TaskTemplate,
    revision: int,
    environment: RunEnvironment,
) -> AdmittedRun:
    """Return the run for the next attempt. A control that an earlier attempt raised still binds, and the context slots
    are filled anew.
    """
    admitted = changed(admitted, scope=changed(admitted.scope, controls=before.controls))
    # A person can be asked for a slot, which takes time, so earlier look-ups no longer count.
    environment.barrier.forget()
    return await fill_slots(request, admitted, template, revision, environment)


def compile_surface(
    request: InvokeRequest, admitted: AdmittedRun, template: TaskTemplate, revision: int, environment: RunEnvironment
) -> Surface:
    """Steps 7 and 8: decide which tools the run can see, and compile its context within the token budget."""
    journal, policy = environment.journal, admitted.policy
    decisions = decide_exposure(admitted.scope, policy, admitted.surface)  # 7
    journal.derive(
        "policy.decided", f"compile/{revision}", {"decisions": [decision.stated() for decision in decisions.values()]}
    )
    controls = admitted.scope.controls.with_compiled(decisions)
    facts = facts_by_name(admitted.items, admitted.scope)
    steps, sources = tuple[KnownStep, ...](), dict[str, Any]()
    if not template.is_session:
        sources = _binding_sources(admitted, facts)
        steps = known_steps(admitted.prepared.templates[template.template_id], sources)
    announced = announce_steps(admitted, steps, facts)
    specs = [
        admitted.scope.pinned.specs[point.decision_id]
        for point in template.decision_checkpoints
        if point.decision_id in admitted.scope.pinned.specs
    ]
    compiled = compile_context(  # 8
        CompileInput(
            task=TaskInputs(request, admitted.scope.run, admitted.loaded.intents[request.input.intent], template),
            pack=PackInputs(
                admitted.loaded.pack,
                admitted.scope.pinned.pack_ref,
                [leveled.bundle for leveled in admitted.loaded.bundles],
            ),
            knowledge=KnowledgeInputs(
                evidence=(*admitted.items, *admitted.chosen),
                memory=admitted.memory,
                required_evidence={name for spec in specs for name in spec.required_evidence},
                required_digests=admitted.needed,
            ),
            surface=SurfaceInputs(admitted.surface, decisions, tuple(announced.values())),
            estimator=environment.artifacts.estimator,
        ),
        admitted.prepared.compiled,
    )
    compiled = within_token_budget(admitted.scope.run.run_budget, compiled, environment)
    if not isinstance(compiled, Failure):
        is_read = not template.is_session and admitted.planner not in (PLANNER, MODEL_PLANNER)
        journal.derive("context.compiled", str(revision), compiled if is_read else recorded_context(compiled))
        if environment.at_compiled is not None:
            environment.at_compiled(str(revision), compiled)
    gates, ports = {name: item.gates for name, item in announced.items()}, call_ports(environment, admitted.scope)
    return Surface(decisions, controls, compiled, gates, facts, steps, sources, ports)


def _binding_sources(admitted: AdmittedRun, facts: Mapping[str, Fact]) -> dict[str, Any]:
    """Return the sources that the bindings of steps can read before any step ran."""
    return {
        "request": admitted.scope.received.fields,
        "parameter": admitted.scope.parameter_values,
        "pack": admitted.prepared.pack,
        "evidence": executor.evidence_view(facts),
    }


async def try_plan(
    request: InvokeRequest,
    admitted: AdmittedRun,
    template: TaskTemplate,
    plan: Plan,
    surface: Surface,
    facts: Sequence[Fact],
    environment: RunEnvironment,
) -> tuple[Execution, tuple[Failure, ...]]:
    """Steps 10 to 12: record a proposed plan, verify it, and run it if it is verified.

    `facts` is the evidence so far, the oldest first. Returns what was done, and the failures.
    """
    journal, policy, revision = environment.journal, admitted.policy, plan.revision or 0
    tools = admitted.scope.tools.capabilities
    is_of_template = template.is_session or admitted.planner == PLANNER
    try:
        completed = plan_with_defaults(plan, tools, surface.steps)
    except InvalidInput as error:
        return Execution({}, facts, None), (Failure(code="schema_mismatch", detail=str(error.problems[0])),)
    by_name = {fact.name: fact for fact in facts}
    sources = surface.sources if is_of_template and completed is plan else _binding_sources(admitted, by_name)
    plan = completed
    steps = steps_of_plan(plan, tools, sources, surface.steps)
    journal.derive("plan.proposed", str(revision), plan.to_json())
    decisions = decide_plan_steps(admitted.scope, policy, steps, revision, surface.decisions)
    if recorded := [decision.stated() for decision in decisions.values() if decision.point == "plan"]:
        journal.derive("policy.decided", f"plan/{revision}", {"decisions": recorded})
    scope = changed(
        admitted.scope,
        tools=changed(admitted.scope.tools, surfaced=surface.tools),
        controls=surface.controls.with_planned(revision, decisions),
    )
    verified = _verify(scope, plan, steps, decisions, surface.decisions, frozenset(by_name), environment)  # 10
    if plan.planner == MODEL_PLANNER and not template.is_session:
        verified = critic.sent_back(verified)
    if verified.verdict == "ok" and VERIFY in scope.pinned.models and not scope.observes:
        assert not isinstance(surface.compiled, Failure), "a plan is made from a compiled context"
        verified = critic.verdict_on(await judge_plan(admitted, plan, surface.compiled, environment))
    if scope.observes:
        verified = observe_plan(
            verified, plan, (*decisions.values(), *surface.decisions.values()), policy.above, journal
        )
    journal.derive(
        "plan.verified",
        str(revision),
        {"verdict": verified.verdict, "failures": [failure.to_json() for failure in verified.failures]},
    )
    await checkpoint(admitted.scope, plan, verified.verdict, {}, environment)
    if verified.verdict != "ok":
        return Execution({}, facts, None), verified.failures
    deferred = partial(waiting_record, request, scope, template, plan, environment)
    guards, query = admitted.prepared.guards, admitted.query
    gateway = build_gateway(environment, scope, policy, guards, query, deferred, surface.ports)
    execution = await executor.execute_plan(plan, steps, scope, gateway, journal, facts, sources)  # 11, 12
    return execution, (execution.failure,) if execution.failure else ()


async def score_attempt(
    admitted: AdmittedRun,
    controls: RunControls,
    plan: Plan | None,
    execution: Execution,
    failures: tuple[Failure, ...],
    revision: int,
    environment: RunEnvironment,
    *,
    finished: bool | None = None,
    compiled: Mapping[str, Any] | None = None,
) -> Attempt:
    """Step 13: score what was done. `finished`: whether the agent of a session finished it; None for a plan. If the
    pack names `judge.score`, a model judges what was done, with the context `compiled`.
    """
    usage = environment.used()
    done = sum(result.status in ("ok", "completed") for result in execution.results.values())
    steps = len(plan.steps) if plan else 0
    if finished is not None:
        done, steps = int(finished), 1
    card = scoring.score(
        admitted.loaded.pack,
        admitted.scope.received.request.input.intent,
        admitted.scope.run.run_budget,
        wall_clock_us=usage.wall_clock_us,
        cost_cents=usage.cost_cents,
        steps=steps,
        done=done,
        failures=failures,
        acted=has_acted(environment),
        instructions=list(environment.journal.account.instructing),
        again=critic.SENT_BACK if plan is not None and plan.planner == MODEL_PLANNER else scoring.REPLANNED,
    )
    is_judged = SCORE in admitted.scope.pinned.models and not admitted.scope.observes
    if card["verdict"] == "accept" and compiled is not None and is_judged:
        card, ended = await judge_score(admitted, card, execution.results, compiled, environment)
        failures = (*failures, *ended)
    environment.journal.derive("run.scored", str(revision), card)
    await checkpoint(admitted.scope, plan, card["verdict"], execution.results, environment)
    return Attempt(plan, execution, failures, card, controls, revision)


def _verify(
    scope: RunScope,
    plan: Plan,
    steps: Sequence[KnownStep],
    decisions: Mapping[str, PolicyDecision],
    exposure: Mapping[str, PolicyDecision],
    evidence: frozenset[str],
    environment: RunEnvironment,
) -> critic.PlanVerification:
    remaining = scope.run.run_budget.max_tool_calls - environment.journal.account.tool_calls
    registry = environment.artifacts.registry
    return critic.verify_plan(
        critic.Proposal(
            plan=plan,
            known=steps,
            scope=scope,
            evidence=evidence,
            decisions=decisions,
            exposure=exposure,
            check_input=lambda capability, args: registry.check(capability, "input", dict(args)),
            check_args=check_args,
            calls_left=remaining,
            before=critic.ancestors(plan),
        )
    )


def has_acted(environment: RunEnvironment) -> bool:
    """Return whether any effect of this run happened or may have happened, whatever mutations an adapter lists."""
    return bool(environment.journal.account.effects)
