"""Combine the results of all rules into one policy decision.

`combine` collects the results without looking at the capability; `resolve_verdict` applies them to one capability.
Any deny wins. Gates, requirements, prohibitions and constraints of all matching rules apply, and the strictest of
several approval modes. A `non_enforcing` rule never allows a call and never lowers a mode; it can only restrict.
Source: docs/design/contracts.md, "Policy", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from contextos.contracts.envelopes.policy import APPROVAL_MODES, ArgConstraint, CapabilityView, Indeterminate, Point
from contextos.trust.policy.rule_evaluation import Indeterminates
from contextos.trust.policy.rules import MODE_RANK, CompiledRule


@dataclass(slots=True)
class CombinedDecision:
    """The results of all rules that apply, combined but not yet applied to a capability (tool).

    Modes are ranks of `MODE_RANK`: `mode` is the strictest that enforcing rules set, `raised_to` the strictest that
    `non_enforcing` rules set, `lowest_unbounded` the lowest set by a rule that bounds no argument. `prohibits` has the
    rules by the tool that they prohibit.
    """

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
    prohibits: dict[str, list[str]] = field(default_factory=dict)
    asserted: dict[str, None] = field(default_factory=dict)
    constraints: dict[tuple[str, str], ArgConstraint] = field(default_factory=dict)


def combine(matched: Sequence[CompiledRule], indeterminate: Indeterminates) -> CombinedDecision:
    """Combine the rules that matched, in rule order, and the rules that could not be evaluated, in any order."""
    others = [rule for rule in matched if not rule.only_allows]
    combined = CombinedDecision(allows=len(others) < len(matched))
    combined.matched = [rule.rule_id for rule in matched if rule.bundle_enforces]
    for rule in others:
        if rule.bundle_enforces:
            _add_match(combined, rule)
        else:
            combined.observed.append(rule.rule_id)
    for rule, facts in sorted(indeterminate, key=lambda item: item[0].order):
        _add_indeterminate(combined, rule, facts)
    return combined


def _add_match(combined: CombinedDecision, rule: CompiledRule) -> None:
    if rule.refuses or rule.escalates:
        _add_guardrail(combined, rule)
    if rule.allow is None:
        return
    if not rule.allow:
        combined.denying.append(rule.rule_id)
    elif not rule.non_enforcing:
        combined.allows = True
    if rule.mode is not None:
        _add_mode(combined, rule, rule.mode)
    if rule.gate is not None:
        combined.gates[rule.gate] = None
    for collected, names in ((combined.requires, rule.requires), (combined.asserted, rule.asserted)):
        for name in names:
            collected[name] = None
    for name in rule.prohibits:
        combined.prohibits.setdefault(name, []).append(rule.rule_id)
    for name, digest, constraint in rule.constraints:
        combined.constraints[name, digest] = constraint


def _add_mode(combined: CombinedDecision, rule: CompiledRule, mode: int) -> None:
    if rule.non_enforcing:
        combined.raised_to = max(combined.raised_to, mode)
        return
    combined.mode = mode if combined.mode is None else max(combined.mode, mode)
    if not rule.bounded:
        combined.lowest_unbounded = min(combined.lowest_unbounded, mode)


def _add_indeterminate(combined: CombinedDecision, rule: CompiledRule, facts: tuple[str, ...]) -> None:
    if not rule.bundle_enforces:
        combined.observed.append(rule.rule_id)
    elif rule.non_enforcing:
        combined.passed_over.append(rule.rule_id)
    else:
        _add_guardrail(combined, rule)
        combined.indeterminate.append(Indeterminate.model_construct(rule_id=rule.rule_id, facts=facts))


def _add_guardrail(combined: CombinedDecision, rule: CompiledRule) -> None:
    if rule.refuses:
        combined.refusing.append(rule.rule_id)
    if rule.escalates:
        combined.escalating.append(rule.rule_id)


def resolve_verdict(
    combined: CombinedDecision,
    point: Point,
    capability: CapabilityView | None,
    *,
    granted: bool,
    bundle_ids: tuple[str, ...],
) -> dict[str, Any]:
    """Return the fields of the policy decision about the tool `capability` at one point of a run: all but its id and
    the digest of its facts.
    """
    mode = _effective_mode(combined, capability)
    reason = _denial(combined, capability, mode) or _allowance(combined, capability, granted)
    # The rule that sets the gate can read arguments, so before `execute` a missing gate means nothing.
    if reason == "allowed" and mode == MODE_RANK["destructive"] and point == "execute" and not combined.gates:
        reason = "gate_missing"
    constraints: dict[str, list[ArgConstraint]] = {}
    for (name, _), constraint in combined.constraints.items():
        constraints.setdefault(name, []).append(constraint)
    return {
        "point": point,
        "capability_id": capability.capability_id if capability else None,
        "allowed": reason in ("allowed", "allowed_by_default"),
        "reason": reason,
        "effective_approval_mode": None if mode is None else APPROVAL_MODES[mode],
        "gates": tuple(combined.gates),
        "requires": tuple(combined.requires),
        "prohibits": tuple(combined.prohibits),
        "arg_constraints": {name: tuple(bounds) for name, bounds in constraints.items()},
        "bundle_ids": bundle_ids,
        "matched_rule_ids": tuple(combined.matched),
        "denying_rule_ids": _denying_rules(combined, capability, reason),
        "indeterminate": tuple(combined.indeterminate),
        "passed_over": tuple(combined.passed_over),
        "observed": tuple(combined.observed),
        "must_refuse": tuple(combined.refusing),
        "must_escalate": tuple(combined.escalating),
        "asserted": tuple(combined.asserted),
    }


def _denying_rules(combined: CombinedDecision, capability: CapabilityView | None, reason: str) -> tuple[str, ...]:
    """Return the rules behind a denial: the rules that deny, or the rules that prohibit the tool."""
    if reason == "prohibited" and capability is not None:
        return tuple(combined.prohibits[capability.capability_id])
    return tuple(combined.denying)


def _effective_mode(combined: CombinedDecision, capability: CapabilityView | None) -> int | None:
    """Return the rank of the strictest mode that rules set, else the declared one.

    A rule that bounds no argument cannot lower the mode.
    """
    if capability is None:
        return None
    declared = MODE_RANK[capability.declared_mode]
    mode = declared if combined.mode is None else combined.mode
    if combined.lowest_unbounded < declared:
        mode = max(mode, declared)
    return max(mode, combined.raised_to)


def _denial(combined: CombinedDecision, capability: CapabilityView | None, mode: int | None) -> str:
    """Return the first reason that denies in spite of every allow, or an empty string."""
    if combined.refusing:
        return "must_refuse"
    if combined.denying:
        return "denied_by_rule"
    if combined.indeterminate:
        return "indeterminate"
    if capability is None or mode is None:
        return ""
    declared = MODE_RANK[capability.declared_mode]
    if capability.capability_id in combined.prohibits:
        return "prohibited"
    if mode > declared:
        return "mode_above_declared"
    if combined.lowest_unbounded < declared:
        return "mode_not_bounded"
    return ""


def _allowance(combined: CombinedDecision, capability: CapabilityView | None, granted: bool) -> str:
    """Return the reason where nothing denies: a rule allows it, a granted read is allowed by default, or neither."""
    if combined.allows:
        return "allowed"
    is_read = capability is not None and capability.declared_mode == "read_only"
    return "allowed_by_default" if is_read and granted else "no_rule_allows"
