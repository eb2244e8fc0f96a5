"""Many answers to one policy decision.

`combine` folds what the rules answered and knows nothing of the capability; `resolve_decision` applies the result to
a capability. Any
deny wins; gates, needs, prohibitions and bounds are united; of several modes the strictest counts. A rule that is
`non_enforcing` can be passed over, so it is never what allows or lowers: a match of it can only tighten.
Source: shared/design/contracts.md, "Policy", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from contextos.contracts.envelopes.policy import (
    APPROVAL_MODES,
    ArgConstraint,
    CapabilityView,
    Indeterminate,
    Point,
    PolicyDecision,
)
from contextos.trust.policy.rule_evaluation import Indeterminates
from contextos.trust.policy.rules import MODE_RANK, CompiledRule


@dataclass(slots=True)
class CombinedDecision:
    """What all rules say together. `mode` is the strictest one stated, `lowest_unbounded` the lowest without bounds."""

    allows: bool = False
    mode: int | None = None
    raised_to: int = 0
    lowest_unbounded: int = len(APPROVAL_MODES)
    matched: list[str] = field(default_factory=list)
    denying: list[str] = field(default_factory=list)
    refusing: list[str] = field(default_factory=list)
    escalating: list[str] = field(default_factory=list)
    observed: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    indeterminate: list[Indeterminate] = field(default_factory=list)
    gates: dict[str, None] = field(default_factory=dict)
    requires: dict[str, None] = field(default_factory=dict)
    prohibits: dict[str, None] = field(default_factory=dict)
    asserted: dict[str, None] = field(default_factory=dict)
    says: dict[tuple[str, str], ArgConstraint] = field(default_factory=dict)


def combine(matched: Sequence[CompiledRule], indeterminate: Indeterminates) -> CombinedDecision:
    """Fold the answers; `matched` comes in the order of the rules, so the result does not depend on any other."""
    saying_more = [rule for rule in matched if not rule.only_allows]
    united = CombinedDecision(allows=len(saying_more) < len(matched))
    united.matched = [rule.rule_id for rule in matched if rule.enforcing]
    for rule in saying_more:
        if rule.enforcing:
            _add_match(united, rule)
        else:
            united.observed.append(rule.rule_id)
    for rule, facts in sorted(indeterminate, key=lambda item: item[0].order):
        _add_indeterminate(united, rule, facts)
    return united


def _add_match(united: CombinedDecision, rule: CompiledRule) -> None:
    if rule.refuses or rule.escalates:
        _add_guardrail(united, rule)
    if rule.allow is None:
        return
    if not rule.allow:
        united.denying.append(rule.rule_id)
    elif not rule.passable:
        united.allows = True
    if rule.mode is not None:
        _add_mode(united, rule, rule.mode)
    if rule.gate is not None:
        united.gates[rule.gate] = None
    for needs, names in (
        (united.requires, rule.requires),
        (united.prohibits, rule.prohibits),
        (united.asserted, rule.asserted),
    ):
        for name in names:
            needs[name] = None
    for name, digest, constraint in rule.says:
        united.says[name, digest] = constraint


def _add_mode(united: CombinedDecision, rule: CompiledRule, mode: int) -> None:
    if rule.passable:
        united.raised_to = max(united.raised_to, mode)
        return
    united.mode = mode if united.mode is None else max(united.mode, mode)
    if not rule.bounded:
        united.lowest_unbounded = min(united.lowest_unbounded, mode)


def _add_indeterminate(united: CombinedDecision, rule: CompiledRule, facts: tuple[str, ...]) -> None:
    if not rule.enforcing:
        united.observed.append(rule.rule_id)
    elif rule.passable:
        united.passed_over.append(rule.rule_id)
    else:
        _add_guardrail(united, rule)
        united.indeterminate.append(Indeterminate.model_construct(rule_id=rule.rule_id, facts=facts))


def _add_guardrail(united: CombinedDecision, rule: CompiledRule) -> None:
    if rule.refuses:
        united.refusing.append(rule.rule_id)
    if rule.escalates:
        united.escalating.append(rule.rule_id)


def resolve_decision(
    united: CombinedDecision,
    point: Point,
    capability: CapabilityView | None,
    *,
    granted: bool,
    decision_id: str,
    bundle_ids: tuple[str, ...],
    facts_digest: str,
) -> PolicyDecision:
    """The decision of one enforcement point. Every field is set, and made of values that were validated before."""
    mode = _effective(united, capability)
    reason = _denial(united, capability, mode) or _allowance(united, capability, granted)
    # A rule that gives the gate may read arguments, so it is only at execute that none can be missing.
    if reason == "allowed" and mode == MODE_RANK["destructive"] and point == "execute" and not united.gates:
        reason = "gate_missing"
    constraints: dict[str, list[ArgConstraint]] = {}
    for (name, _), constraint in united.says.items():
        constraints.setdefault(name, []).append(constraint)
    return PolicyDecision.construct_trusted(
        {
            "policy_decision_id": decision_id,
            "point": point,
            "capability_id": capability.capability_id if capability else None,
            "allowed": reason in ("allowed", "allowed_by_default"),
            "reason": reason,
            "effective_approval_mode": None if mode is None else APPROVAL_MODES[mode],
            "gates": tuple(united.gates),
            "requires": tuple(united.requires),
            "prohibits": tuple(united.prohibits),
            "arg_constraints": {name: tuple(bounds) for name, bounds in constraints.items()},
            "bundle_ids": bundle_ids,
            "matched_rule_ids": tuple(united.matched),
            "denying_rule_ids": tuple(united.denying),
            "indeterminate": tuple(united.indeterminate),
            "passed_over": tuple(united.passed_over),
            "observed": tuple(united.observed),
            "must_refuse": tuple(united.refusing),
            "must_escalate": tuple(united.escalating),
            "asserted": tuple(united.asserted),
            "facts_digest": facts_digest,
        }
    )


def _effective(united: CombinedDecision, capability: CapabilityView | None) -> int | None:
    """The strictest mode stated, else the declared one; what lowers without a bound lowers nothing."""
    if capability is None:
        return None
    declared = MODE_RANK[capability.declared_mode]
    stated = declared if united.mode is None else united.mode
    if united.lowest_unbounded < declared:
        stated = max(stated, declared)
    return max(stated, united.raised_to)


def _denial(united: CombinedDecision, capability: CapabilityView | None, mode: int | None) -> str:
    """Why this is denied whatever allows it; empty if it is not. The first reason in this order is the one reported."""
    if united.refusing:
        return "must_refuse"
    if united.denying:
        return "denied_by_rule"
    if united.indeterminate:
        return "indeterminate"
    if capability is None or mode is None:
        return ""
    declared = MODE_RANK[capability.declared_mode]
    if capability.capability_id in united.prohibits:
        return "prohibited"
    if mode > declared:
        return "mode_above_declared"
    if united.lowest_unbounded < declared:
        return "mode_not_bounded"
    return ""


def _allowance(united: CombinedDecision, capability: CapabilityView | None, granted: bool) -> str:
    """What is not denied is allowed by a rule or, as a granted read, by default; all else is not."""
    if united.allows:
        return "allowed"
    read = capability is not None and capability.declared_mode == "read_only"
    return "allowed_by_default" if read and granted else "no_rule_allows"
