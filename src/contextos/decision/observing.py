"""Record the Critic's refusals in a session whose pack observes, and let the calls go on.

`action.gateway.observing` does the same for the guards of the gateway.
Source: docs/adr/0036-a-pack-can-observe-first.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from contextos.contracts.entries.derived import ObservedCall, ObservedFinding
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.policy import PolicyDecision, RulesAbove
from contextos.contracts.envelopes.verdicts import Failure, FailureCode
from contextos.contracts.ports.seams import Journal
from contextos.decision.critic import PlanVerification, verdict_on

ALWAYS_ENFORCED: Final[frozenset[FailureCode]] = frozenset({"schema_mismatch", "budget_exhausted"})
"""The Critic's failures that stop a call also in a session whose pack observes."""


def observe_plan(
    verified: PlanVerification, plan: Plan, decisions: Iterable[PolicyDecision], above: RulesAbove, journal: Journal
) -> PlanVerification:
    """Record the failures that an observing pack lets pass, and return the verdict on the other failures.

    `decisions` are the policy decisions about the plan's steps and about the tools that the run can see. A denial by a
    rule above the pack stays a failure.
    """
    tools = {step.tool for step in plan.steps}
    denied = {one.capability_id for one in decisions if one.capability_id in tools and above.deny(one)}
    policed = ("policy_denied", "policy_eval_error")
    kept = tuple(
        one
        for one in verified.failures
        if one.code in ALWAYS_ENFORCED or (one.code in policed and one.capability_id in denied)
    )
    passed = [one for one in verified.failures if one not in kept]
    observe_failures(passed, f"{plan.revision}/{plan.steps[0].id}", "critic", journal)
    return verdict_on(kept)


def observe_failures(failures: Sequence[Failure], at: str, by: str, journal: Journal) -> None:
    """Record failures that an observing pack lets pass. `at` is the place in the run, `by` the name of the check."""
    if not failures:
        return
    findings = tuple(
        ObservedFinding(
            verdict="deny", code=one.code, detail=one.detail, rule_ids=tuple(one.rule_ids), facts=tuple(one.facts)
        )
        for one in failures
    )
    journal.derive("call.observed", f"{at}/{by}", ObservedCall(by=by, findings=findings).to_json())
