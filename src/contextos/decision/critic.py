"""The Critic verifies a plan before anything runs. Its rules are one list; each returns the failures that it finds.

Source: How It Works, step 4; Reference Architecture, "Failure semantics".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.bindings import binding_of, resolve_params
from contextos.contracts.envelopes.plan import Plan, PlanStep
from contextos.contracts.envelopes.policy import APPROVAL_MODES, PolicyDecision
from contextos.contracts.envelopes.verdicts import Failure, FailureCode, VerifyVerdict
from contextos.contracts.scope import Capability, RunScope
from contextos.errors import Problem

CheckInput = Callable[[Capability, Mapping[str, Any]], Problem | None]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan and everything that it is verified against.

    `sources` holds what bindings can read at plan time, `evidence` the names of the available evidence. `decisions`
    holds the policy decisions at the plan point, by step id. `calls_left` is the number of tool calls left in the
    budget.
    """

    plan: Plan
    scope: RunScope
    sources: Mapping[str, Any]
    evidence: frozenset[str]
    decisions: Mapping[str, PolicyDecision]
    check_input: CheckInput
    calls_left: int


@dataclass(frozen=True, slots=True)
class PlanVerification:
    """The verdict about a plan, with every failure found."""

    verdict: VerifyVerdict
    failures: tuple[Failure, ...]


VERDICT_OF: Final[dict[FailureCode, VerifyVerdict]] = {
    "missing_evidence": "replan",
    "budget_exhausted": "escalate",
    "must_escalate": "escalate",
}
"""The verdict by failure code. Any other code rejects the plan."""


def verify_plan(proposal: Proposal) -> PlanVerification:
    """Apply every rule to the plan. The strictest verdict counts; the verdict is `ok` only without any failure."""
    failures = tuple(failure for rule in PLAN_RULES for failure in rule(proposal))
    verdicts = {VERDICT_OF.get(failure.code, "reject") for failure in failures}
    for verdict in ("reject", "escalate", "replan"):
        if verdict in verdicts:
            return PlanVerification(verdict, failures)
    return PlanVerification("ok", ())


def spec_of(plan: Plan, step_id: str) -> str | None:
    """Return the decision key that a step is bound to: that of the last checkpoint among its ancestors, or None."""
    before = ancestors(plan, step_id)
    bound = [point.decision_id for point in plan.decision_checkpoints if point.after_step in before]
    return bound[-1] if bound else None


def ancestors(plan: Plan, step_id: str) -> frozenset[str]:
    """Return the ids of all steps that must be done before this one."""
    depends = {step.id: step.depends_on for step in plan.steps}
    found: set[str] = set()
    waiting = list(depends.get(step_id, ()))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(depends.get(name, ()))
    return frozenset(found)


def well_ordered(proposal: Proposal) -> Sequence[Failure]:
    """Step ids are unique, and a step depends only on steps before it, so the plan is a graph without cycles."""
    failures, seen = [], set()
    for step in proposal.plan.steps:
        unknown = [name for name in step.depends_on if name not in seen]
        if step.id in seen or unknown:
            fault = f"depends on `{unknown[0]}`, which is no earlier step" if unknown else "has the id of another step"
            failures.append(_failure("schema_mismatch", step, f"step `{step.id}` {fault}"))
        seen.add(step.id)
    return failures


def in_manifest(proposal: Proposal) -> Sequence[Failure]:
    """Every tool is in the tool manifest. A tool that policy hid is a policy denial."""
    failures = []
    for step in proposal.plan.steps:
        if step.tool in proposal.scope.surfaced:
            continue
        hidden = step.tool in proposal.scope.granted
        code: FailureCode = "policy_denied" if hidden else "tool_not_in_manifest"
        reason = "is hidden from this run by policy" if hidden else "is not in the tool manifest"
        failures.append(_failure(code, step, f"`{step.tool}` {reason}"))
    return failures


def modes_match(proposal: Proposal) -> Sequence[Failure]:
    """Every step states the declared approval mode of its capability."""
    failures = []
    for step, capability in _known(proposal):
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
    """Arguments known at plan time satisfy their schema, and bindings to steps refer to earlier dependencies."""
    failures = []
    for step, capability in _known(proposal):
        args, _, missing = resolve_params(step.params, proposal.sources)
        before = ancestors(proposal.plan, step.id)
        later = []
        for name in missing:
            binding = binding_of(step.params[name])
            if binding and binding.source == "step" and binding.pointer.split("/")[1] in before:
                later.append(name)
            else:
                failures.append(
                    _failure("schema_mismatch", step, f"argument `{name}` of `{step.tool}` does not resolve")
                )
        if later or len(later) != len(missing):
            continue
        problem = proposal.check_input(capability, args)
        if problem:
            failures.append(
                _failure("schema_mismatch", step, f"`{step.tool}` at `{problem.pointer}`: {problem.detail}")
            )
    return failures


def bound_to_specs(proposal: Proposal) -> Sequence[Failure]:
    """Checkpoints resolve, and every step with effects is bound to a spec that is allowed to execute at its mode."""
    scope = proposal.scope
    failures = [
        Failure(code="violates_decision_spec", detail=f"`{point.decision_id}` is not a DecisionSpec of the pack")
        for point in proposal.plan.decision_checkpoints
        if point.decision_id not in scope.specs
    ]
    failures += [
        # A completed run is recorded as `approved`, so every spec must allow that outcome.
        Failure(code="violates_decision_spec", detail=f"`{point.decision_id}` does not allow the outcome `approved`")
        for point in proposal.plan.decision_checkpoints
        if point.decision_id in scope.specs and "approved" not in scope.specs[point.decision_id].allowed_outcomes
    ]
    for step, capability in _known(proposal):
        if capability.definition.approval_mode == "read_only":
            continue
        key = spec_of(proposal.plan, step.id)
        spec = scope.specs.get(key) if key else None
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
    """The required evidence of each checkpoint is available, or a step before it produces it."""
    scope, failures = proposal.scope, []
    for point in proposal.plan.decision_checkpoints:
        spec = scope.specs.get(point.decision_id)
        done = ancestors(proposal.plan, point.after_step) | {point.after_step}
        produced = {
            name for step, capability in _known(proposal) if step.id in done for name in capability.definition.produces
        }
        missing = sorted(set(spec.required_evidence) - produced - proposal.evidence) if spec else []
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            failures.append(
                Failure(
                    code="missing_evidence", detail=f"`{point.decision_id}` requires {names}", step_id=point.after_step
                )
            )
    return failures


def policy_permits(proposal: Proposal) -> Sequence[Failure]:
    """Policy permits every step at the plan point: first guardrails, then denials."""
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
            code: FailureCode = "policy_eval_error" if decision.reason == "indeterminate" else "policy_denied"
            facts = tuple(fact for unknown in decision.indeterminate for fact in unknown.facts)
            failures.append(
                Failure(
                    code=code,
                    detail=f"policy denies `{step.tool}`: {decision.reason}",
                    step_id=step.id,
                    capability_id=step.tool,
                    rule_ids=decision.denying_rule_ids,
                    facts=facts,
                )
            )
    return failures


def within_call_budget(proposal: Proposal) -> Sequence[Failure]:
    """The plan needs no more tool calls than the budget has left."""
    steps = len(proposal.plan.steps)
    if steps <= proposal.calls_left:
        return ()
    return (
        Failure(
            code="budget_exhausted", detail=f"the plan needs {steps} tool calls, and {proposal.calls_left} are left"
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
    within_call_budget,
)


def _known(proposal: Proposal) -> list[tuple[PlanStep, Capability]]:
    capabilities = proposal.scope.capabilities
    return [(step, capabilities[step.tool]) for step in proposal.plan.steps if step.tool in capabilities]


def _failure(code: FailureCode, step: PlanStep, detail: str) -> Failure:
    return Failure(code=code, detail=detail, step_id=step.id, capability_id=step.tool)
