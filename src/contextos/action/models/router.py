"""Choose the profile that one call of a model goes to, and state the reason for each candidate (the LLM router).

Pure: the same question, rules, profiles and state give the same decision on every machine. The first rule that applies
decides. A canary and a fallback are candidates like the others, so every limit of the rule holds for them too.
Source: Reference Architecture, "LLM Router"; Thaler and Ravishankar, "Using name-based mappings to increase hit rates"
(rendezvous hashing); Schindelhauer and Schomaker, "Weighted distributed hash tables" (the weights).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

from contextos.action.models.prices import worst_case_units
from contextos.contracts.entries.account import cost_units
from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.models import (
    LEAST_TIME_MS,
    NEEDED_CAPABILITIES,
    ModelCapability,
    ModelOperation,
    ModelProfile,
    RoutedCandidate,
    RouteReason,
    RoutingDecision,
    RoutingRule,
    RoutingRules,
)
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.model import final_fields

BY_THE_RULE: Final = ", by the rule"
"""The end of the detail of a reason if a limit of the routing rule decides, and not a limit of the run."""
WONT_CHANGE: Final = frozenset({"unauthorized", "unknown_model", "too_large"})
"""The outcomes after which the same profile is not asked the same question again."""

_HASH_BITS: Final = 64
_HASHES: Final = 1 << _HASH_BITS

RouteFault = tuple[RouteReason, str]
"""The reason why a candidate is not eligible (or is chosen or not), and a detail for the record."""


@final_fields
class RouteQuestion:
    """The properties of a question to a model that decide which model gets it.

    `data_class` is the highest classification of the content in the call. `input_tokens` is an estimate, and
    `most_input_tokens` the most tokens that the prompt can have. `units_left` is the amount that the run can still
    spend, in 1/10,000 US cent. `tried` has (profile, outcome) of each earlier call for this question, in order; an
    outcome is a `ModelOutcome`, or `lost`.
    """

    run_id: str
    operation: ModelOperation
    intent: str
    risk_class: ApprovalMode
    data_class: Classification
    input_tokens: int
    most_input_tokens: int
    units_left: int
    time_left_ms: int
    capabilities: frozenset[ModelCapability] = frozenset()
    tried: tuple[tuple[str, str], ...] = ()


@final_fields
class RouteState:
    """The state of the profiles when a call is routed, by the reference of the profile.

    `open_until_us`: when the profile's circuit admits the next call, in Unix microseconds. `refused`: the policy rules
    that refuse the profile. `withdrawn`: the profiles that were withdrawn after the run was admitted, by themselves or
    with the routing rules. `exhausted`: the profiles whose limit of calls is used up. `tokens`: the count of the
    profile's own tokenizer, used in place of `input_tokens`. `uncounted`: the profiles whose tokenizer is missing.
    """

    open_until_us: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, Sequence[str]] = field(default_factory=dict)
    withdrawn: frozenset[str] = frozenset()
    exhausted: frozenset[str] = frozenset()
    tokens: Mapping[str, int] = field(default_factory=dict)
    uncounted: frozenset[str] = frozenset()


@final_fields
class _Offer:
    """One candidate of a rule, and the limits of a call to it. `profile` is None if the run does not pin the profile.
    `in_share` is False for a canary if this run is not in its share.
    """

    pin: str
    profile: ModelProfile | None
    in_share: bool = True
    output_tokens: int = 0
    timeout_ms: int = 0
    units: int = 0


def rule_of(question: RouteQuestion, rules: RoutingRules) -> RoutingRule | None:
    """Return the first rule that applies to a question, or None."""
    for rule in rules.rules:
        conditions = (
            (rule.intents, question.intent),
            (rule.risk_classes, question.risk_class),
            (rule.data_classes, question.data_class),
        )
        if rule.operation == question.operation and all(not values or value in values for values, value in conditions):
            return rule
    return None


def _ordered_offers(question: RouteQuestion, rule: RoutingRule, profiles: Mapping[str, ModelProfile]) -> list[_Offer]:
    """Return each candidate of a rule once, in the order in which the run prefers them: the canary, then by weight."""
    weights = {candidate.profile: candidate.weight for candidate in reversed(rule.candidates)}
    order = sorted(weights, key=lambda pin: (weights[pin] == 0, _score(question.run_id, pin, weights[pin]), pin))
    outside = set[str]()
    if rule.canary is not None:
        pin = rule.canary.profile
        if _in_share(question.run_id, rule.rule_id, rule.canary.share):
            order = [pin, *(other for other in order if other != pin)]
        elif pin not in weights:
            order, outside = [*order, pin], {pin}
    return [_build_offer(question, rule, pin, profiles.get(pin), pin not in outside) for pin in order]


def route(
    question: RouteQuestion, rules: RoutingRules, profiles: Mapping[str, ModelProfile], state: RouteState
) -> RoutingDecision:
    """Decide which profile is asked. `profiles` are the profiles that the run pins, by reference.

    After earlier calls, the candidates that were asked least often come first.
    """
    rule = rule_of(question, rules)
    if rule is None:
        return RoutingDecision(operation=question.operation, rules=rules.pin)
    offers = _ordered_offers(question, rule, profiles)
    faults = {offer.pin: _fault(question, rule, offer, state) for offer in offers}
    attempts = Counter(pin for pin, _ in question.tried)
    eligible = [offer for offer in offers if not faults[offer.pin]]
    chosen = min(eligible, key=lambda offer: attempts[offer.pin], default=None)
    choice: dict[str, Any] = {}
    if chosen is not None:
        choice = {"profile": chosen.pin, "output_tokens": chosen.output_tokens, "timeout_ms": chosen.timeout_ms}
        choice["reserved_units"] = chosen.units
    reasons = {offer.pin: faults[offer.pin] or _eligible_reason(offer, chosen, attempts) for offer in offers}
    candidates = tuple(_candidate(pin, reason) for pin, reason in reasons.items())
    return RoutingDecision(
        operation=question.operation, rules=rules.pin, rule_id=rule.rule_id, candidates=candidates, **choice
    )


def _build_offer(
    question: RouteQuestion, rule: RoutingRule, pin: str, profile: ModelProfile | None, in_share: bool
) -> _Offer:
    if profile is None:
        return _Offer(pin, None, in_share)
    timeout_ms = max(0, min(profile.timeout_ms, rule.max_latency_ms or profile.timeout_ms, question.time_left_ms))
    units = reserved_units(question, rule, profile)
    return _Offer(pin, profile, in_share, _output_tokens(rule, profile), timeout_ms, units)


def reserved_units(question: RouteQuestion, rule: RoutingRule | None, profile: ModelProfile) -> int:
    """Return the worst cost of a call of a profile by a rule, in 1/10,000 US cent."""
    return worst_case_units(profile, question.most_input_tokens, _output_tokens(rule, profile))


def _output_tokens(rule: RoutingRule | None, profile: ModelProfile) -> int:
    return min(profile.max_output_tokens, (rule and rule.max_output_tokens) or profile.max_output_tokens)


def _fault(question: RouteQuestion, rule: RoutingRule, offer: _Offer, state: RouteState) -> RouteFault | None:
    """Return the first limit that a candidate does not meet, or None if the candidate is eligible."""
    if not offer.in_share:
        assert rule.canary is not None, "only a canary has a share"
        return "share", f"{rule.canary.share} of the runs"
    if offer.profile is None:
        return "unknown", ""
    if offer.pin in state.withdrawn:
        return "unknown", "withdrawn after the run was admitted"
    return (
        _incapable(question, rule, offer.profile)
        or _unavailable(offer.pin, state)
        or _over_limit(question, rule, offer, offer.profile, state)
        or _attempts_fault(question, rule, offer.pin)
    )


def _incapable(question: RouteQuestion, rule: RoutingRule, profile: ModelProfile) -> RouteFault | None:
    """Return why a profile can never answer this question, whatever the state: it cannot do it or see the data."""
    if profile.embeds and question.operation != "embed":
        return "capability", "it only embeds"
    needed = NEEDED_CAPABILITIES.get(question.operation)
    capabilities = question.capabilities | ({needed} if needed else set())
    if missing := sorted(capabilities.difference(profile.capabilities)):
        return "capability", ", ".join(missing)
    if rule.regions and (outside := sorted(set(profile.regions).difference(rule.regions))):
        return "region", ", ".join(outside)
    if not profile.may_see(question.data_class):
        return "data_class", f"{question.data_class} is above {profile.data_class}"
    return None


def _unavailable(pin: str, state: RouteState) -> RouteFault | None:
    if pin in state.refused:
        return "policy", ", ".join(state.refused[pin])
    if pin in state.open_until_us:
        return "health", f"open until {state.open_until_us[pin]}"
    if pin in state.exhausted:
        return "quota", "its limit of calls is used up"
    return None


def _over_limit(
    question: RouteQuestion, rule: RoutingRule, offer: _Offer, profile: ModelProfile, state: RouteState
) -> RouteFault | None:
    if offer.pin in state.uncounted:
        return "capability", f"its tokenizer `{profile.tokenizer}` is not installed"
    tokens = state.tokens.get(offer.pin, question.input_tokens)
    needed = max(tokens + offer.output_tokens, rule.min_context_tokens or 0)
    if needed > profile.context_window:
        return "context_size", f"{needed} tokens of {profile.context_window}"
    if offer.units > question.units_left:
        return "cost", f"{offer.units} units of {question.units_left}"
    if rule.max_cost_cents is not None and offer.units > (limit_units := cost_units(rule.max_cost_cents)):
        return "cost", f"{offer.units} units of {limit_units}{BY_THE_RULE}"
    if offer.timeout_ms < LEAST_TIME_MS:
        return "latency", f"{offer.timeout_ms} ms of at least {LEAST_TIME_MS}"
    return None


def _attempts_fault(question: RouteQuestion, rule: RoutingRule, pin: str) -> RouteFault | None:
    """Return why a profile gets no further call after the calls that were made, or None if it can get one."""
    if question.tried and (last := question.tried[-1][1]) not in rule.fallback_on:
        return "attempts", f"none after `{last}`"
    if len(question.tried) >= rule.max_attempts:
        return "attempts", f"{len(question.tried)} of {rule.max_attempts}"
    final = next((outcome for tried, outcome in question.tried if tried == pin and outcome in WONT_CHANGE), None)
    return ("tried", f"it was `{final}`") if final else None


def _eligible_reason(offer: _Offer, chosen: _Offer | None, attempts: Mapping[str, int]) -> RouteFault:
    """Return why an eligible candidate was chosen, or why another was preferred. `attempts` counts calls by profile."""
    assert chosen is not None, "one of the eligible candidates is chosen"
    if offer is chosen:
        return "chosen", ""
    return ("tried", "") if attempts[offer.pin] > attempts[chosen.pin] else ("weight", "")


def _candidate(pin: str, fault: RouteFault) -> RoutedCandidate:
    reason, detail = fault
    fields = {"detail": detail} if detail else {}
    return RoutedCandidate(profile=pin, reason=reason, **fields)


def _hash(*words: str) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(words).encode()).digest()[: _HASH_BITS // 8])


def _in_share(run_id: str, rule_id: str, share: float) -> bool:
    return _hash("canary", run_id, rule_id) < Fraction(share) * _HASHES


def _score(run_id: str, pin: str, weight: int) -> Decimal:
    """Return -ln(u) / weight, where u is a hash of run and profile between 0 and 1. The lowest score is preferred.

    `Decimal` rounds a logarithm correctly, so it is the same on every platform.
    """
    exact = Context(prec=17)
    u = exact.divide(Decimal(2 * _hash("candidate", run_id, pin) + 1), Decimal(2 * _HASHES))
    return exact.divide(-exact.ln(u), Decimal(weight or 1))
