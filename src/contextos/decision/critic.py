"""Verify a plan before anything runs (the Critic). Its rules are one list; each returns the failures that it finds.

Source: How It Works, step 4; Reference Architecture, "Failure semantics".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from contextos.contracts.bindings import KnownStep, binding_of
from contextos.contracts.controls import CheckArgs, required_of
from contextos.contracts.encoding.defaults import without_null_defaults
from contextos.contracts.envelopes.plan import Plan, PlanStep, TaskTemplate
from contextos.contracts.envelopes.policy import APPROVAL_MODES, PolicyDecision
from contextos.contracts.envelopes.verdicts import Failure, FailureCode, VerifyVerdict
from contextos.contracts.model import final_fields
from contextos.contracts.scope import Capability, RunScope
from contextos.errors import Problem

CheckInput = Callable[[Capability, Mapping[str, Any]], Problem | None]


@final_fields
class Proposal:
    """A plan, and everything that it is checked against before it runs.

    `known` are the steps whose tools are registered, in the plan's order. `exposure` holds the policy decisions at
    `compile`, by tool. `evidence` holds the names of the available evidence. `decisions` holds the policy decisions
    about the steps, by step id. `calls_left` is the number of tool calls left in the budget. `before` holds, by step
    id, the ids of all steps that must be done before that step.
    """

    plan: Plan
    known: Sequence[KnownStep]
    scope: RunScope
    evidence: frozenset[str]
    decisions: Mapping[str, PolicyDecision]
    exposure: Mapping[str, PolicyDecision]
    check_input: CheckInput
    check_args: CheckArgs
    calls_left: int
    before: Mapping[str, frozenset[str]]

    def lacking(self, required: Collection[str], done: Collection[str]) -> list[str]:
        """Return the names of required evidence that is neither available nor produced by one of the steps `done`."""
        missing = frozenset(required) - self.evidence
        if not missing:
            return []
        produced = {name for item in self.known if item.step.id in done for name in item.capability.definition.produces}
        return sorted(missing - produced)


@dataclass(frozen=True, slots=True)
class PlanVerification:
    """The verdict about a plan before it runs, with every failure found."""

    verdict: VerifyVerdict
    failures: tuple[Failure, ...]


VERDICT_OF: Final[dict[FailureCode, VerifyVerdict]] = {
    "missing_evidence": "replan",
    "budget_exhausted": "escalate",
    "must_escalate": "escalate",
    "judge_objects": "replan",
    "no_model_route": "escalate",
    "model_failed": "escalate",
}
"""The verdict by failure code. Any other code rejects the plan."""


SENT_BACK: Final[frozenset[FailureCode]] = frozenset(
    {
        "missing_evidence",
        "tool_not_in_manifest",
        "schema_mismatch",
        "approval_mode_mismatch",
        "argument_out_of_bounds",
        "violates_decision_spec",
        "judge_objects",
    }
)
"""The failures that a model can correct: its plan goes back to it with them. A denial by policy does not go back."""


def sent_back(verified: PlanVerification) -> PlanVerification:
    """Return the verdict about a plan that a model made: `replan` if the model can correct every failure."""
    codes = {failure.code for failure in verified.failures}
    return PlanVerification("replan", verified.failures) if codes and codes <= SENT_BACK else verified


def verify_plan(proposal: Proposal) -> PlanVerification:
    """Check a plan by every rule of this module."""
    failures: list[Failure] = []
    for rule in PLAN_RULES:
        failures += rule(proposal)
    return verdict_on(tuple(failures))


def verdict_on(failures: tuple[Failure, ...]) -> PlanVerification:
    """Return the verdict about a plan with these failures: the strictest verdict of them, `ok` if there are none."""
    verdicts = {VERDICT_OF.get(failure.code, "reject") for failure in failures}
    for verdict in ("reject", "escalate", "replan"):
        if verdict in verdicts:
            return PlanVerification(verdict, failures)
    return PlanVerification("ok", ())


def governing_decisions(plan: Plan | TaskTemplate) -> Mapping[str, str]:
    """Return the decision key that applies to each step, by step id: the key of the last checkpoint before the step. A
    step without a checkpoint before it is left out.
    """
    return _governing(
        _depends(plan), tuple([(point.decision_id, point.after_step) for point in plan.decision_checkpoints])
    )


def ancestors(plan: Plan | TaskTemplate) -> Mapping[str, frozenset[str]]:
    """Return the ids of all steps that must be done before each step, by step id."""
    return _ancestors(_depends(plan))


Depends = tuple[tuple[str, tuple[str, ...]], ...]
"""The id of each step, with the ids of the steps that it depends on."""


def _depends(plan: Plan | TaskTemplate) -> Depends:
    return tuple([(step.id, step.depends_on) for step in plan.steps])


@lru_cache(256)
def _governing(depends: Depends, checkpoints: tuple[tuple[str, str | None], ...]) -> Mapping[str, str]:
    return {
        step_id: decision_id
        for step_id, before in _ancestors(depends).items()
        for decision_id, after_step in checkpoints
        if after_step is None or after_step in before
    }


@lru_cache(256)
def _ancestors(depends: Depends) -> Mapping[str, frozenset[str]]:
    direct = dict(depends)
    return {step_id: _closure(direct, step_id) for step_id in direct}


def _closure(depends: Mapping[str, Sequence[str]], step_id: str) -> frozenset[str]:
    visited: set[str] = set()
    pending = list(depends.get(step_id, ()))
    while pending:
        name = pending.pop()
        if name not in visited:
            visited.add(name)
            pending.extend(depends.get(name, ()))
    return frozenset(visited)


def well_ordered(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure for each duplicate step id, and for each step that depends on a step that is not before it."""
    failures, earlier = [], set()
    for step in proposal.plan.steps:
        unknown = [name for name in step.depends_on if name not in earlier]
        if step.id in earlier or unknown:
            fault = f"depends on `{unknown[0]}`, which is no earlier step" if unknown else "has the id of another step"
            failures.append(_failure("schema_mismatch", step, f"step `{step.id}` {fault}"))
        earlier.add(step.id)
    return failures


def in_manifest(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure for each step whose tool is not in the manifest (the list of tools that the run can use).
    The failure is a policy denial if policy removed the tool.
    """
    failures = []
    for step in proposal.plan.steps:
        if step.tool in proposal.scope.tools.surfaced:
            continue
        hidden = step.tool in proposal.scope.tools.granted
        decision = proposal.exposure.get(step.tool)
        if hidden and decision is not None and not decision.allowed:
            failures.append(_denial(step, decision, f"`{step.tool}` is hidden from this run"))
            continue
        if not hidden and (missing := proposal.scope.platform_scope_missing(step.tool)):
            failures.append(_failure("platform_scope_missing", step, missing))
            continue
        code: FailureCode = "policy_denied" if hidden else "tool_not_in_manifest"
        fallback = f"`{step.tool}` is not in the tool manifest"
        detail = proposal.scope.why_not_in_manifest(step.tool, fallback)
        failures.append(_failure(code, step, f"`{step.tool}` is hidden from this run by policy" if hidden else detail))
    return failures


def modes_match(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure for each step that states an approval mode other than its tool declares."""
    failures = []
    for step, capability, *_ in proposal.known:
        declared = capability.definition.approval_mode
        if step.approval_mode != declared:
            failures.append(
                _failure(
                    "approval_mode_mismatch",
                    step,
                    f"`{step.tool}` declares `{declared}`, and the step states `{step.approval_mode}`",
                )
            )
    return failures


def arguments_fit(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure for each argument that does not fit its schema, and each binding to a step that is not a
    dependency.

    Only arguments that are known before the plan runs are checked.
    """
    failures = []
    for step, capability, args, missing, *_ in proposal.known:
        before = proposal.before[step.id]
        for name in missing:
            binding = binding_of(step.params[name])
            if not (binding and binding.source == "step" and binding.pointer.split("/")[1] in before):
                failures.append(
                    _failure("schema_mismatch", step, f"argument `{name}` of `{step.tool}` does not resolve")
                )
        if missing:
            continue
        problem = proposal.check_input(capability, args)
        if problem:
            place = f" at `{problem.pointer}`" if problem.pointer else ""
            failures.append(_failure("schema_mismatch", step, f"`{step.tool}`{place}: {problem.detail}"))
    return failures


def bound_to_specs(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure for each check that names no decision spec, and each step with effects that no spec allows to
    run.
    """
    specs, governing = proposal.scope.pinned.specs, governing_decisions(proposal.plan)
    failures = [
        Failure(code="violates_decision_spec", detail=f"`{point.decision_id}` is not a DecisionSpec of the pack")
        for point in proposal.plan.decision_checkpoints
        if point.decision_id not in specs
    ]
    for step, capability, *_ in proposal.known:
        if capability.definition.approval_mode == "read_only":
            continue
        key = governing.get(step.id)
        spec = specs.get(key) if key else None
        if spec is None:
            failures.append(
                _failure("violates_decision_spec", step, f"`{step.tool}` is not bound to a decision checkpoint")
            )
        elif spec.decision_right != "execute":
            failures.append(
                _failure("violates_decision_spec", step, f"`{key}` can {spec.decision_right} and not execute")
            )
        elif APPROVAL_MODES.index(spec.approval_mode) < APPROVAL_MODES.index(capability.definition.approval_mode):
            failures.append(_failure("violates_decision_spec", step, f"`{key}` allows at most `{spec.approval_mode}`"))
    return failures


def evidence_in_reach(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure for each checkpoint whose required evidence is neither available nor produced by an earlier
    step.
    """
    specs, failures = proposal.scope.pinned.specs, []
    for point in proposal.plan.decision_checkpoints:
        spec = specs.get(point.decision_id)
        last = point.after_step
        done = proposal.before.get(last, frozenset()) | {last} if last else frozenset[str]()
        missing = proposal.lacking(spec.required_evidence, done) if spec else []
        if missing:
            names = proposal.scope.lacking(missing)
            failures.append(
                Failure(
                    code="missing_evidence", detail=f"`{point.decision_id}` requires {names}", step_id=point.after_step
                )
            )
    return failures


def policy_permits(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure for each step that policy does not permit: first guardrails, then denials."""
    failures = []
    for step in proposal.plan.steps:
        decision = proposal.decisions.get(step.id)
        if decision is None:
            continue
        if decision.must_escalate:
            failures.append(
                _failure("must_escalate", step, "a guardrail escalates: " + ", ".join(decision.must_escalate))
            )
        if not decision.allowed:
            failures.append(_denial(step, decision, f"`{step.tool}`"))
    return failures


def _denial(step: PlanStep, decision: PolicyDecision, subject: str) -> Failure:
    """Return a failure that names what policy denied, with the rules and the missing facts."""
    return Failure(
        code="policy_eval_error" if decision.reason == "indeterminate" else "policy_denied",
        detail=f"{subject}: {decision.why_denied}",
        step_id=step.id,
        capability_id=step.tool,
        rule_ids=decision.denying_rule_ids,
        facts=decision.missing_facts,
    )


def controls_hold(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure for each control in force that the plan cannot satisfy: an escalation, a gate that cannot be
    asked, required evidence that no earlier step produces, or a known argument out of bounds.
    """
    escalating = proposal.scope.controls.must_escalate
    failures = []
    if escalating:
        failures.append(Failure(code="must_escalate", detail="a guardrail escalates: " + ", ".join(escalating)))
    for step, capability, args, unresolved, *_ in proposal.known:
        controls = proposal.scope.controls.on_call(step.tool, f"{proposal.plan.revision}/{step.id}")
        gates = sorted({*controls.gates, *step.requires}) if controls.gates or step.requires else []
        if gates and (reason := _gate_fault(gates, capability, proposal)):
            failures.append(_failure("policy_denied", step, reason))
        missing = proposal.lacking(required_of(capability.definition, controls.requires), proposal.before[step.id])
        if missing:
            names = proposal.scope.lacking(missing)
            failures.append(_failure("missing_evidence", step, f"policy requires {names} for `{step.tool}`"))
        bounds = {name: bound for name, bound in controls.arg_constraints.items() if name not in unresolved}
        if not bounds:
            continue
        final_args = without_null_defaults(capability.definition.input_schema, args)
        for problem in proposal.check_args(bounds, final_args, bool(gates)):
            detail = f"`{step.tool}` at `{problem.pointer.removeprefix('/args')}`: {problem.detail}"
            failures.append(_failure("argument_out_of_bounds", step, detail))
    return failures


def _gate_fault(gates: Sequence[str], capability: Capability, proposal: Proposal) -> str | None:
    """Return why nobody can be asked for an approval by these gates, or None if a person can be asked."""
    if capability.definition.kind == "read":
        return f"`{capability.capability_id}` is a read, and a gate is only for writes"
    if len(gates) > 1:
        return "more than one gate is active; this version can ask only one person"
    return None if gates[0] in proposal.scope.pinned.gates else f"`{gates[0]}` is not a gate of the pack"


def within_call_budget(proposal: Proposal) -> Sequence[Failure]:
    """Return a failure if the plan needs more tool calls than the budget has left. A plan of one call always passes:
    the tool gateway checks the budget for that call, after it has asked policy about the final arguments.
    """
    steps = len(proposal.plan.steps)
    if steps <= max(proposal.calls_left, 1):
        return ()
    return (
        Failure(
            code="budget_exhausted",
            detail=f"the plan needs {steps} tool calls, and {proposal.calls_left} are left; "
            + proposal.scope.run.run_budget.stated("max_tool_calls"),
            facts=("max_tool_calls",),
        ),
    )


PlanRule = Callable[[Proposal], Sequence[Failure]]

PLAN_RULES: Final[tuple[PlanRule, ...]] = (
    well_ordered,
    in_manifest,
    modes_match,
    arguments_fit,
    bound_to_specs,
    evidence_in_reach,
    policy_permits,
    controls_hold,
    within_call_budget,
)


def _failure(code: FailureCode, step: PlanStep, detail: str) -> Failure:
    return Failure(code=code, detail=detail, step_id=step.id, capability_id=step.tool)
