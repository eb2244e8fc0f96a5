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
    denied = {item.capability_id for item in decisions if item.capability_id in tools and above.deny(item)}
    policy_codes = ("policy_denied", "policy_eval_error")
    enforced = tuple(
        failure
        for failure in verified.failures
        if failure.code in ALWAYS_ENFORCED or (failure.code in policy_codes and failure.capability_id in denied)
    )
    observed = [failure for failure in verified.failures if failure not in enforced]
    observe_failures(observed, f"{plan.revision}/{plan.steps[0].id}", "critic", journal)
    return verdict_on(enforced)


def observe_failures(failures: Sequence[Failure], at: str, by: str, journal: Journal) -> None:
    """Record failures that an observing pack lets pass. `at` is the place in the run, `by` the name of the check."""
    if not failures:
        return
    findings = tuple(
        ObservedFinding(
            verdict="deny", code=item.code, detail=item.detail, rule_ids=tuple(item.rule_ids), facts=tuple(item.facts)
        )
        for item in failures
    )
    journal.derive("call.observed", f"{at}/{by}", ObservedCall(by=by, findings=findings).to_json())
