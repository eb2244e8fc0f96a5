"""Select the rules that apply to a policy question, and evaluate each of them once.

Rules are indexed by what they apply to (intent, capability, environment, point), so a rule that does not apply costs
nothing. If the intent or the environment is unknown, the rules that name one are indeterminate.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from datalogic_py import DataHandle

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import CapabilityView, Point
from contextos.contracts.facts import LATE_ROOTS, ROOTS, KnownFacts
from contextos.errors import InvalidInput, Problem
from contextos.trust.policy.rule_evaluation import Indeterminates, RuleGroup, RuleOutcome
from contextos.trust.policy.rules import CompiledRule

Selector = tuple[str | None, str | None, str | None, str | None]
"""What a rule applies to: (intent, capability, environment, point). None means every value."""

_SELECTOR_FACTS: Final = ("request.intent", "capability.capability_id", "run.environment", "point")
_CALLER_ROOTS: Final = frozenset(ROOTS) - {"capability"}


class RuleIndex:
    """Groups of policy rules, found by intent, capability, environment and point."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self._groups = _groups_by_selector(rules)
        # The outer key lists the selector fields that are not None, the inner key their values.
        self._by_fields: dict[tuple[int, ...], dict[tuple[str | None, ...], tuple[RuleGroup, ...]]] = defaultdict(dict)
        for selector, groups in self._groups.items():
            fields = tuple(field for field in range(4) if selector[field] is not None)
            self._by_fields[fields][tuple(selector[field] for field in fields)] = groups

    def groups(self, wanted: Selector) -> Iterator[RuleGroup]:
        """Yield the groups of rules that apply to these values of intent, capability, environment and point."""
        for fields, groups in self._by_fields.items():
            yield from groups.get(tuple([wanted[field] for field in fields]), ())

    def undecidable(self, wanted: Selector, unknown: frozenset[int]) -> Iterator[tuple[RuleGroup, tuple[str, ...]]]:
        """Yield the groups of rules that could apply, but name a field whose fact is unknown. Each comes with those
        facts.
        """
        for selector, groups in self._groups.items():
            lacking = tuple(_SELECTOR_FACTS[field] for field in unknown if selector[field] is not None)
            others = (field for field in range(4) if field not in unknown and selector[field] is not None)
            if lacking and all(selector[field] == wanted[field] for field in others):
                yield from ((group, lacking) for group in groups)


def _groups_by_selector(rules: Iterable[CompiledRule]) -> dict[Selector, tuple[RuleGroup, ...]]:
    members: dict[tuple[Selector, frozenset[str], frozenset[str], bool], list[CompiledRule]] = defaultdict(list)
    for rule in rules:
        applies = rule.applies_to
        selector: Selector = (applies.intent, applies.capability, applies.environment, applies.point)
        late = frozenset(fact.segments[0] for fact in rule.facts) & (LATE_ROOTS | {"capability"})
        args = frozenset(".".join(fact.segments[1:2]) for fact in rule.facts if fact.segments[0] == "args")
        members[selector, late, args, "capability" in late].append(rule)
    groups: dict[Selector, tuple[RuleGroup, ...]] = {}
    for (selector, late, args, _), group in members.items():
        groups[selector] = (*groups.get(selector, ()), RuleGroup(group, selector[3], late, args))
    return groups


class PolicyQuestion:
    """The facts at one point of a run, for policy decisions about one tool or several.

    Results of rules that do not read the tool are kept for the next one.

    Raises:
        InvalidInput: the facts have an unknown root. `evaluate_for` raises it for a value that is not JSON.
    """

    def __init__(self, index: RuleIndex, point: Point, facts: Mapping[str, Any]) -> None:
        if not _CALLER_ROOTS.issuperset(facts):
            unknown = sorted(facts.keys() - _CALLER_ROOTS)
            detail, known = f"`{unknown[0]}` is not a root of facts", " ".join(sorted(_CALLER_ROOTS))
            raise InvalidInput(Problem(pointer((unknown[0],)), "unknown_fact_root", detail, f"use {known}"))
        self._index, self.point = index, point
        self._facts = facts if isinstance(facts, KnownFacts) else KnownFacts(facts)
        self._intent = _intent(facts)
        self._environment = _text_at(facts, "run", "environment")
        selectors = ((0, self._intent), (2, self._environment))
        self._unknown = frozenset(field for field, value in selectors if value is None)
        self._outcomes: dict[RuleGroup, RuleOutcome] = {}
        self._shared: dict[tuple[RuleGroup, ...], RuleOutcome] = {}

    def evaluate_for(self, capability: CapabilityView | None) -> tuple[RuleOutcome, str]:
        """Evaluate all rules that apply to this tool. Returns (their outcome in rule order, digest of the facts)."""
        facts = self._facts if capability is None else self._facts.plus({"capability": dict(capability.facts)})
        capability_id = capability.capability_id if capability else None
        wanted: Selector = (self._intent, capability_id, self._environment, self.point)
        groups = tuple(group for group in self._index.groups(wanted) if group.applies(self.point, facts))
        undecidable: Indeterminates = []
        if self._unknown:
            undecidable = [
                (rule, lacking)
                for group, lacking in self._index.undecidable(wanted, self._unknown)
                if group.applies(self.point, facts)
                for rule in group.rules
            ]
        shared = not undecidable and not any(group.reads_capability for group in groups)
        if not shared:
            return self._evaluate(groups, facts, undecidable), facts.digest
        if groups not in self._shared:
            self._shared[groups] = self._evaluate(groups, facts, undecidable)
        return self._shared[groups], facts.digest

    def _evaluate(self, groups: tuple[RuleGroup, ...], facts: KnownFacts, undecidable: Indeterminates) -> RuleOutcome:
        handle = DataHandle(facts.text.decode())
        outcomes = []
        for group in groups:
            outcome = self._outcomes.get(group) or group.evaluate(facts, handle)
            if not group.reads_capability:
                self._outcomes[group] = outcome
            outcomes.append(outcome)
        if len(outcomes) == 1 and not undecidable:
            return outcomes[0]
        matched = sorted(chain.from_iterable(outcome.matched for outcome in outcomes), key=_order)
        indeterminate = [*undecidable, *chain.from_iterable(outcome.indeterminate for outcome in outcomes)]
        return RuleOutcome(matched, indeterminate)


def _order(rule: CompiledRule) -> tuple[int, str, str]:
    return rule.order


def _intent(facts: Mapping[str, Any]) -> str | None:
    """Return the intent that the run and its request state; None if they disagree or neither states one."""
    run, request = _text_at(facts, "run", "intent"), _text_at(facts, "request", "intent")
    return run or request if run is None or request is None or run == request else None


def _text_at(facts: Mapping[str, Any], root: str, name: str) -> str | None:
    found = facts.get(root)
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) and value else None
