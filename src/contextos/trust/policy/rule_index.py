"""Which rules a question is put to.

Rules stand in an index by what they apply to, so one that does not apply costs nothing. Where a fact that selects rules
(intent, environment) is missing, nobody can say whether they apply, and they are indeterminate.
Source: shared/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from datalogic_py import DataHandle

from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import CapabilityView, Point
from contextos.errors import InvalidInput, Problem
from contextos.trust.policy.conditions import ROOTS
from contextos.trust.policy.decision_combining import CombinedDecision, combine
from contextos.trust.policy.rule_evaluation import Indeterminates, RuleGroup, RuleOutcome
from contextos.trust.policy.rules import LATE_ROOTS, CompiledRule

Selector = tuple[str | None, str | None, str | None, str | None]
"""What rules apply to: intent, capability, environment, point; None means every value."""

_SELECTING: Final = ("request.intent", "capability.capability_id", "run.environment", "point")
_GIVEN: Final = frozenset(ROOTS) - {"capability"}
_BEFORE: Final = tuple(root for root in ROOTS if root < "capability")


class RuleIndex:
    """Parts by what they apply to."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self._parts = _parts(rules)
        # By the places that a selector names, and there by what it names: a value that is unknown finds nothing.
        self._named: dict[tuple[int, ...], dict[tuple[str | None, ...], tuple[RuleGroup, ...]]] = defaultdict(dict)
        for selector, parts in self._parts.items():
            places = tuple(place for place in range(4) if selector[place] is not None)
            self._named[places][tuple(selector[place] for place in places)] = parts

    def parts(self, wanted: Selector) -> Iterator[RuleGroup]:
        """The parts for a question whose intent, capability, environment and point are given."""
        for places, parts in self._named.items():
            yield from parts.get(tuple([wanted[place] for place in places]), ())

    def undecidable(self, wanted: Selector, unknown: frozenset[int]) -> Iterator[tuple[RuleGroup, tuple[str, ...]]]:
        """Parts of which nobody can say whether they apply, because a fact that selects them is unknown."""
        for selector, parts in self._parts.items():
            open_ = tuple(_SELECTING[place] for place in unknown if selector[place] is not None)
            others = (place for place in range(4) if place not in unknown and selector[place] is not None)
            if open_ and all(selector[place] == wanted[place] for place in others):
                yield from ((part, open_) for part in parts)


def _parts(rules: Iterable[CompiledRule]) -> dict[Selector, tuple[RuleGroup, ...]]:
    groups: dict[tuple[Selector, frozenset[str], frozenset[str], bool], list[CompiledRule]] = defaultdict(list)
    for rule in rules:
        applies = rule.applies_to
        selector: Selector = (applies.intent, applies.capability, applies.environment, applies.point)
        late = frozenset(fact.segments[0] for fact in rule.facts) & (LATE_ROOTS | {"capability"})
        args = frozenset(".".join(fact.segments[1:2]) for fact in rule.facts if fact.segments[0] == "args")
        groups[selector, late, args, "capability" in late].append(rule)
    parts: dict[Selector, tuple[RuleGroup, ...]] = {}
    for (selector, late, args, _), members in groups.items():
        parts[selector] = (*parts.get(selector, ()), RuleGroup(members, selector[3], late, args))
    return parts


class PolicyQuestion:
    """One question to the index, about one capability or several.

    What does not read the capability is asked once and kept for the next one.

    Raises:
        InvalidInput: the facts have a root that is none; `about` also, where a value is not JSON.
    """

    def __init__(self, index: RuleIndex, point: Point, facts: Mapping[str, Any]) -> None:
        if not _GIVEN.issuperset(facts):
            unknown = sorted(facts.keys() - _GIVEN)
            detail, known = f"`{unknown[0]}` is no root of facts", " ".join(sorted(_GIVEN))
            raise InvalidInput(Problem(pointer((unknown[0],)), "unknown_fact_root", detail, f"use {known}"))
        self._index, self.point, self._facts = index, point, facts
        self._texts: tuple[bytes, bytes] | None = None
        self._alone = True
        self._intent = _intent(facts)
        self._environment = _text_at(facts, "run", "environment")
        selecting = ((0, self._intent), (2, self._environment))
        self._unknown = frozenset(place for place, value in selecting if value is None)
        self._outcomes: dict[RuleGroup, RuleOutcome] = {}
        self._united: dict[tuple[RuleGroup, ...], CombinedDecision] = {}

    def about(self, capability: CapabilityView | None) -> tuple[CombinedDecision, str]:
        """What all rules say about a capability, and the digest of the facts they had."""
        facts, text = self._complete(capability)
        named = capability.capability_id if capability else None
        wanted: Selector = (self._intent, named, self._environment, self.point)
        parts = tuple(part for part in self._index.parts(wanted) if part.applies(self.point, facts))
        undecidable: Indeterminates = []
        if self._unknown:
            undecidable = [
                (rule, lacking)
                for part, lacking in self._index.undecidable(wanted, self._unknown)
                if part.applies(self.point, facts)
                for rule in part.rules
            ]
        shared = not undecidable and not any(part.reads_capability for part in parts)
        if not shared:
            return self._ask(parts, facts, text, undecidable), digest(text)
        if parts not in self._united:
            self._united[parts] = self._ask(parts, facts, text, undecidable)
        return self._united[parts], digest(text)

    def _ask(
        self, parts: tuple[RuleGroup, ...], facts: Mapping[str, Any], text: bytes, open_: Indeterminates
    ) -> CombinedDecision:
        handle = DataHandle(text.decode())
        outcomes = []
        for part in parts:
            outcome = self._outcomes.get(part) or part.ask(facts, handle)
            if not part.reads_capability:
                self._outcomes[part] = outcome
            outcomes.append(outcome)
        if len(outcomes) == 1:
            return combine(outcomes[0].matched, [*open_, *outcomes[0].indeterminate])
        matched = sorted(chain.from_iterable(outcome.matched for outcome in outcomes), key=_order)
        return combine(matched, [*open_, *chain.from_iterable(outcome.indeterminate for outcome in outcomes)])

    def _complete(self, capability: CapabilityView | None) -> tuple[Mapping[str, Any], bytes]:
        """All facts and their canonical form. From the second capability on only its own part is spelled anew."""
        if capability is None:
            return self._facts, canonical(dict(self._facts))
        about = dict(capability.facts)
        complete = {**self._facts, "capability": about}
        if self._alone:
            self._alone = False
            return complete, canonical(complete)
        before, after = self._texts = self._texts or self._around_capability()
        return complete, b"{%b}" % b",".join(filter(None, (before, canonical({"capability": about})[1:-1], after)))

    def _around_capability(self) -> tuple[bytes, bytes]:
        before = {root: self._facts[root] for root in _BEFORE if root in self._facts}
        after = {root: value for root, value in self._facts.items() if root not in before}
        return canonical(before)[1:-1], canonical(after)[1:-1]


def _order(rule: CompiledRule) -> tuple[int, str, str]:
    return rule.order


def _intent(facts: Mapping[str, Any]) -> str | None:
    """The intent of the run, which is that of the request; None where they disagree."""
    run, request = _text_at(facts, "run", "intent"), _text_at(facts, "request", "intent")
    return run or request if run is None or request is None or run == request else None


def _text_at(facts: Mapping[str, Any], root: str, name: str) -> str | None:
    found = facts.get(root)
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) and value else None
