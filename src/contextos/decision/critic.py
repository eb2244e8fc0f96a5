"""The Critic verifies a plan before anything runs. Its rules are one list; each returns the failures that it finds.

Source: How It Works, step 4; Reference Architecture, "Failure semantics"; contextos-facts.md, section 12.
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
    """A plan and what it is verified against.

    `sources` are what bindings may read at plan time; `evidence` the names at hand. `decisions` are policy's answers
    at the plan point, by step id. `calls_left` is what the budget still allows.
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
    """The verdict of verify, with every failure found."""

    verdict: VerifyVerdict
    failures: tuple[Failure, ...]


VERDICT_OF: Final[dict[FailureCode, VerifyVerdict]] = {
    "missing_evidence": "replan",
    "budget_exhausted": "escalate",
    "must_escalate": "escalate",
}
"""What a failure amounts to; any other rejects the plan."""


def verify_plan(proposal: Proposal) -> PlanVerification:
    """Every rule looks at the plan; the strictest verdict counts. No failure at all is the only `ok`."""
    failures = tuple(failure for rule in PLAN_RULES for failure in rule(proposal))
    verdicts = {VERDICT_OF.get(failure.code, "reject") for failure in failures}
    for verdict in ("reject", "escalate", "replan"):
        if verdict in verdicts:
            return PlanVerification(verdict, failures)
    return PlanVerification("ok", ())


def spec_of(plan: Plan, step_id: str) -> str | None:
    """The decision that a step is bound to: that of the last checkpoint among what it depends on."""
    before = ancestors(plan, step_id)
    bound = [point.decision_id for point in plan.decision_checkpoints if point.after_step in before]
    return bound[-1] if bound else None


def ancestors(plan: Plan, step_id: str) -> frozenset[str]:
    """Every step that must be done before this one."""
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
            what = f"depends on `{unknown[0]}`, which is no earlier step" if unknown else "has an id that is taken"
            failures.append(_failure("schema_mismatch", step, f"step `{step.id}` {what}"))
        seen.add(step.id)
    return failures


def in_manifest(proposal: Proposal) -> Sequence[Failure]:
    """Every tool is in the tool manifest; one that policy hid is a policy denial."""
    failures = []
    for step in proposal.plan.steps:
        if step.tool in proposal.scope.surfaced:
            continue
        hidden = step.tool in proposal.scope.granted
        code: FailureCode = "policy_denied" if hidden else "tool_not_in_manifest"
        why = "is hidden from this run by policy" if hidden else "is not in the tool manifest"
        failures.append(_failure(code, step, f"`{step.tool}` {why}"))
    return failures


def modes_match(proposal: Proposal) -> Sequence[Failure]:
    """A step states the declared approval mode of its capability."""
    failures = []
    for step, capability in _known(proposal):
        declared = capability.definition.approval_mode
        if step.approval_mode != declared:
            failures.append(
                _failure(
                    "approval_mode_mismatch",
                    step,
                    f"`{step.tool}` declares `{declared}`, the step says `{step.approval_mode}`",
                )
            )
    return failures


def arguments_fit(proposal: Proposal) -> Sequence[Failure]:
    """Arguments that are known at plan time satisfy their schema; bindings to steps point to earlier dependencies."""
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
    """Checkpoints resolve; whatever may change the world is bound to a spec that may execute it at that mode."""
    scope = proposal.scope
    failures = [
        Failure(code="violates_decision_spec", detail=f"`{point.decision_id}` is no DecisionSpec of the pack")
        for point in proposal.plan.decision_checkpoints
        if point.decision_id not in scope.specs
    ]
    failures += [
        # What is done can only be recorded as approved; a spec that does not know the word would find out too late.
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
                _failure("violates_decision_spec", step, f"`{step.tool}` is bound to no decision checkpoint")
            )
        elif spec.decision_right != "execute":
            failures.append(
                _failure("violates_decision_spec", step, f"`{key}` may only {spec.decision_right}, not execute")
            )
        elif APPROVAL_MODES.index(spec.approval_mode) < APPROVAL_MODES.index(capability.definition.approval_mode):
            failures.append(_failure("violates_decision_spec", step, f"`{key}` allows at most `{spec.approval_mode}`"))
    return failures


def evidence_in_reach(proposal: Proposal) -> Sequence[Failure]:
    """Each checkpoint's required evidence is at hand, or a step before it produces it."""
    scope, failures = proposal.scope, []
    for point in proposal.plan.decision_checkpoints:
        spec = scope.specs.get(point.decision_id)
        done = ancestors(proposal.plan, point.after_step) | {point.after_step}
        produced = {
            name for step, capability in _known(proposal) if step.id in done for name in capability.definition.produces
        }
        lacking = sorted(set(spec.required_evidence) - produced - proposal.evidence) if spec else []
        if lacking:
            names = ", ".join(f"`{name}`" for name in lacking)
            failures.append(
                Failure(
                    code="missing_evidence", detail=f"`{point.decision_id}` requires {names}", step_id=point.after_step
                )
            )
    return failures


def policy_permits(proposal: Proposal) -> Sequence[Failure]:
    """Policy's answer at the plan point: guardrails first, then denials."""
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
            facts = tuple(fact for lack in decision.indeterminate for fact in lack.facts)
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
    """The plan fits the tool calls that are left."""
    steps = len(proposal.plan.steps)
    if steps <= proposal.calls_left:
        return ()
    return (
        Failure(
            code="budget_exhausted", detail=f"the plan needs {steps} tool calls and {proposal.calls_left} are left"
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
