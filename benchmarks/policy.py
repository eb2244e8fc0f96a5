"""The policy engine beside Cedar, and its growth: `python -m benchmarks.policy`.

The sides alternate in rounds of one run, so that the machine cancels out of the ratios. The bars: a decision under 100
applicable rules, warm and with combination, takes at most 50 us and half the time of Cedar with the same rules parsed
before; time grows at most linearly up to 1,000 rules; rules that do not apply cost nothing. Both sides only compute, so
the CPU time of the thread is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from statistics import median
from typing import Any

import cedarpy

from benchmarks.bars import is_quick, note, ratio, report_bar
from contextos.contracts.envelopes.policy import CapabilityView, LeveledBundle, PolicyBundle
from contextos.contracts.facts import Vocabulary
from contextos.trust.policy.policy_set import PolicySet, compile_policy

ROUNDS, CALLS = 60, 20
BAR_US, BAR_CEDAR, BAR_IDLE = 50.0, 0.5, 1.10
ID = "pol_0123456789abcdef"
REFUND = CapabilityView("adp_payments.issue_refund", "destructive", {"kind": "write"})
FACTS: dict[str, Any] = {
    "request": {"intent": "support.refund", "channel": "app_chat", "message": "please", "context": {"order_id": "o1"}},
    "user": {"user_id": "u1", "role": "support_agent"},
    "agent": {"agent_id": "a1"},
    "tenant": {"tenant_id": "t1"},
    "run": {"run_id": "run_a1b2c3d4e5f60718", "environment": "prod"},
    "args": {"amount_inr": 2500, "currency": "INR"},
    "evidence": {"identity_verified": True},
}


def ours(applicable: int, idle: int = 0) -> PolicySet:
    """Return a policy in which every tenth rule has obligations; `idle` rules apply to other calls."""
    rules: list[dict[str, Any]] = []
    for index in range(applicable + idle):
        conditions = [
            {"in": [{"var": "user.role"}, ["support_agent", f"lead_{index}"]]},
            {"<=": [{"var": "args.amount_inr"}, 3000 + index]},
            {"==": [{"var": "evidence.identity_verified"}, True]},
        ]
        then: dict[str, Any] = {"allow": True}
        if index % 10 == 0:
            then |= {
                "requires_approval_gate": "GATE_FINANCE",
                "requires": ["order_lookup"],
                "arg_constraints": {"amount_inr": {"max": 3000 + index}},
            }
        applies = {}
        if index >= applicable:
            applies = {"intent": f"other.{index}"} if index % 2 else {"capability": f"adp_other.act_{index}"}
        rules.append({"rule_id": f"R_{index:05}", "applies_to": applies, "if": {"and": conditions}, "then": then})
    raw = {"bundle_id": "POLICY_BENCH", "policy_dsl": {"language": "jsonlogic", "rules": rules}}
    leveled = LeveledBundle("platform", PolicyBundle.model_validate(raw), "1.0.0", "sha256:" + "0" * 64)
    return compile_policy([leveled], gates=["GATE_FINANCE"], must_refuse=(), must_escalate=(), vocabulary=Vocabulary())


def our_call(policies: PolicySet) -> Callable[[], object]:
    decision = policies.decide("execute", FACTS, capability=REFUND, granted=True, decision_id=ID)
    assert decision.allowed, decision.reason
    runs = count()

    def decide() -> object:
        # No two runs have the same facts.
        facts = {**FACTS, "run": {**FACTS["run"], "run_id": f"run_{next(runs):016x}"}}
        return policies.decide("execute", facts, capability=REFUND, granted=True, decision_id=ID)

    return decide


def cedar_call(rules: int) -> Callable[[], object]:
    """Return a call that asks Cedar with the same rules, parsed before, and with schema-free entities and context."""
    policies = cedarpy.PolicySet.from_str(
        "\n".join(
            f'@id("R_{index:05}") permit(principal, action, resource) when {{ '
            f'["support_agent", "lead_{index}"].contains(context.user.role) && '
            f"context.args.amount_inr <= {3000 + index} && context.evidence.identity_verified == true }};"
            for index in range(rules)
        )
    )
    request = {
        "principal": 'User::"u1"',
        "action": 'Action::"execute"',
        "resource": 'Capability::"adp_payments.issue_refund"',
        "context": FACTS,
    }
    entities = cedarpy.Entities.from_json_str("[]")
    assert cedarpy.is_authorized(request, policies, entities).decision == cedarpy.Decision.Allow
    return lambda: cedarpy.is_authorized(request, policies, entities)


def measure(rounds: int, **calls: Callable[[], object]) -> dict[str, list[float]]:
    """Return the median CPU µs of each call by round. Calls alternate, so that a slow moment affects all alike."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            samples = []
            for _ in range(CALLS):
                start = time.thread_time_ns()
                call()
                samples.append((time.thread_time_ns() - start) / 1000)
            taken[name].append(median(samples))
    return taken


def report(rounds: int) -> None:
    sizes = measure(rounds, **{f"{count:,} rules": our_call(ours(count)) for count in (1, 10, 100, 1000)})
    for name, taken in sizes.items():
        note(f"policy decision, {name}, p50", f"{median(taken):9.2f} us")
    against = measure(rounds, ours=our_call(ours(100)), cedar=cedar_call(100))
    note("cedar, 100 rules, parsed before, p50", f"{median(against['cedar']):9.2f} us")
    ours_us = against["ours"]
    report_bar("policy decision, 100 rules, p50", median(ours_us), BAR_US, " us", best=min(ours_us), against=ours_us)
    middle, best = ratio(against["ours"], against["cedar"])
    report_bar("policy decision, 100 rules, ours / cedar", middle, BAR_CEDAR, best=best)
    for more, fewer in ((100, 10), (1000, 100), (1000, 1)):
        middle, best = ratio(sizes[f"{more:,} rules"], sizes[f"{fewer:,} rules"])
        report_bar(f"policy decision, {fewer:,} -> {more:,} rules, growth", middle, more / fewer, best=best)
    idle = measure(rounds, crowd=our_call(ours(10, idle=1000)), alone=our_call(ours(10)))
    middle, best = ratio(idle["crowd"], idle["alone"])
    report_bar("policy decision, 1,000 rules that do not apply / none", middle, BAR_IDLE, best=best)


def main() -> None:
    report(ROUNDS // 4 if is_quick() else ROUNDS)


if __name__ == "__main__":
    main()
