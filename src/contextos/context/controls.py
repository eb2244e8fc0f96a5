"""Build the runtime controls of a compile (refusals, escalations, approval gates, redactions) and list their rules.

A control that any policy decision raised is in force, even if its capability is not surfaced: controls only add up.
If a matched rule belongs to no bundle in force, the compile fails, because a policy manifest without the rule would be
false.
Source: API Contracts, "Compiled output"; docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextos.contracts.envelopes.pack import Guardrails
from contextos.contracts.envelopes.policy import PolicyBundle, PolicyDecision, Rule
from contextos.contracts.envelopes.verdicts import Failure

MatchedRules = dict[str, tuple[Rule, list[str]]]
"""By rule id: the rule, and the ids of the bundles in force that contain it."""


def runtime_controls(decisions: Iterable[PolicyDecision], guardrails: Guardrails) -> dict[str, list[str]]:
    """Build the `RuntimeControls` (refusals, escalations, approval gates, redaction rules) as JSON: sorted, no
    duplicates.
    """
    refuse: set[str] = set()
    escalate: set[str] = set()
    gates: set[str] = set()
    for decision in decisions:
        refuse.update(decision.must_refuse)
        escalate.update(decision.must_escalate)
        gates.update(decision.gates)
    return {
        "must_refuse": sorted(refuse),
        "must_escalate": sorted(escalate),
        "approval_gates_active": sorted(gates),
        "redaction_rules_active": sorted(set(guardrails.redaction_rules)),
    }


def matched_rules(decisions: Iterable[PolicyDecision], bundles: Sequence[PolicyBundle]) -> MatchedRules | Failure:
    """Return every policy rule that matched, with the bundles that contain it, or a `policy_eval_error` failure.

    Guardrail conditions belong to no bundle and are left out here; the runtime controls list them.
    """
    rule_ids: set[str] = set()
    guardrail_ids: set[str] = set()
    for decision in decisions:
        rule_ids.update(decision.matched_rule_ids, decision.denying_rule_ids)
        guardrail_ids.update(decision.must_refuse, decision.must_escalate)
    rules: MatchedRules = {}
    for bundle in bundles:
        for rule in bundle.policy_dsl.rules:
            if rule.rule_id in rule_ids:
                rules.setdefault(rule.rule_id, (rule, []))[1].append(bundle.bundle_id)
    unknown = sorted(rule_ids - rules.keys() - guardrail_ids)
    if unknown:
        detail = f"matched rule `{unknown[0]}` is in no bundle in force; pass its bundle to the compiler"
        return Failure(code="policy_eval_error", detail=detail, rule_ids=tuple(unknown))
    return rules


def policy_manifest(
    decisions: Iterable[PolicyDecision], bundles: Sequence[PolicyBundle], matched: MatchedRules
) -> list[dict[str, Any]]:
    """Build the list of evaluated policy bundles (`PolicyManifestEntry`) as JSON, by descending priority and then by
    id.
    """
    rules: dict[str, list[str]] = {bundle_id: [] for decision in decisions for bundle_id in decision.bundle_ids}
    for rule_id in sorted(matched):
        for bundle_id in matched[rule_id][1]:
            rules.setdefault(bundle_id, []).append(rule_id)
    priority: Mapping[str, int] = {bundle.bundle_id: bundle.priority for bundle in bundles}
    order = sorted(rules, key=lambda bundle_id: (-priority.get(bundle_id, 0), bundle_id))
    return [{"bundle_id": bundle_id, "rule_ids": rules[bundle_id]} for bundle_id in order]
