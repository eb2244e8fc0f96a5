"""Policy at the point `model`: asked about each profile before a call of a model is routed.

Policy is asked if a rule is about models, by its point or by a fact that it reads. Each profile then needs an allow, as
each call of a tool does. Without such a rule all profiles are allowed, because profiles and routing rules are signed
and pinned by the run.
"""

from __future__ import annotations

from collections.abc import Mapping

from contextos.contracts.controls import KnownFacts
from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.models import ModelOperation, ModelProfile
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.facts import supplied
from contextos.contracts.ids import derive
from contextos.contracts.model import UNITS_PER_CENT
from contextos.contracts.scope import RunScope
from contextos.trust.policy.policy_set import PolicySet


def refused_models(
    scope: RunScope,
    policy: PolicySet,
    operation: ModelOperation,
    shown: Classification,
    profiles: Mapping[str, ModelProfile],
    costs: Mapping[str, int],
    key: str,
) -> dict[str, tuple[str, ...]]:
    """Return the profiles that policy refuses, each with the rules that refuse it, or else the reason of the decision.

    Policy is asked about `profiles` by reference, for a question with this `key` whose messages have the classification
    `shown` at most; `costs` has the highest cost of a call, in 1/10,000 US cent. A guardrail that escalates also
    refuses: no model is asked while a person has to decide.
    """
    if not policy.asked_at("model"):
        return {}
    denials: dict[str, tuple[str, ...]] = {}
    for pin, profile in profiles.items():
        decision_id = derive("pol_", scope.run.run_id, "policy.model", f"{key}/{pin}")
        decision = decide_model(policy, scope.facts, operation, shown, profile, costs[pin], decision_id)
        if decision.allowed and not decision.must_escalate:
            continue
        unknown_rules = [rule.rule_id for rule in decision.indeterminate]
        rules = dict.fromkeys(
            (*decision.must_refuse, *decision.must_escalate, *decision.denying_rule_ids, *unknown_rules)
        )
        denials[pin] = tuple(rules) or (decision.reason,)
    return denials


def decide_model(
    policy: PolicySet,
    facts: KnownFacts,
    operation: ModelOperation,
    shown: Classification,
    profile: ModelProfile,
    cost_units: int,
    decision_id: str,
) -> PolicyDecision:
    """Return the policy decision about one profile, for a run with these facts."""
    model_facts = {
        "profile_id": profile.profile_id,
        "model": profile.model,
        "wire": profile.wire,
        "regions": list(profile.regions),
        "data_class": profile.data_class,
        "retention": profile.retention,
        "operation": operation,
        "shown_class": shown,
        "cost_cents": cost_units / UNITS_PER_CENT,
    }
    all_facts = facts.also({"model": supplied("model", model_facts)})
    return policy.decide("model", all_facts, capability=None, granted=False, decision_id=decision_id)
