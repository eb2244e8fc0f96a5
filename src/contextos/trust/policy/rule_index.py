"""Select the rules that apply to a policy question, and evaluate each of them once.

Rules are indexed by what they apply to (intent, capability, environment, point), so a rule that does not apply costs
nothing. If the intent or the environment is unknown, the rules that name one are indeterminate.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import CapabilityView, Point
from contextos.contracts.facts import EXECUTE_ROOTS, LATE_ROOTS, ROOTS, KnownFacts
from contextos.errors import InvalidInput, Problem
from contextos.trust.policy.rule_evaluation import Indeterminates, RuleGroup, RuleOutcome
from contextos.trust.policy.rules import CompiledRule

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

Selector = tuple[str | None, str | None, str | None, str | None]
"""What a rule applies to: (intent, capability, environment, point). None means every value."""

_SELECTOR_FACTS: Final = ("request.intent", "capability.capability_id", "run.environment", "point")
_CALLER_ROOTS: Final = frozenset(ROOTS) - {"capability"}
MAX_KEPT: Final = 512
"""How many selections of rules, and how many outcomes, one set of rules keeps."""

Selection = tuple[RuleGroup, Indeterminates]
"""The rules that apply, and those that could apply."""


@dataclass(frozen=True, slots=True)
class Scoped:
    """Rules with the same scope that read the same roots of facts.

    `late` holds the roots among them that do not exist at every point, `args` the argument names that are read.
    """

    rules: tuple[CompiledRule, ...]
    point: str | None
    late: frozenset[str]
    args: frozenset[str]

    def applies(self, point: Point, facts: Mapping[str, Any]) -> bool:
        """Return whether all facts that these rules read can exist at this point of a run.

        At `plan` only literal arguments exist; at `model`, `memory` and `commit` exactly the roots in `facts`.
        """
        if self.point is not None or not self.late:
            return True
        if point == "execute":
            return self.late <= EXECUTE_ROOTS
        if point == "compile":
            return self.late <= {"capability"}
        if point == "plan":
            args = facts.get("args")
            literal = isinstance(args, dict) and self.args <= args.keys()
            return self.late <= {"args", "capability"} and (literal or "args" not in self.late)
        return self.late <= facts.keys()


class RuleIndex:
    """Policy rules, found by intent, capability, environment and point, and evaluated together.

    Which rules apply is kept by all that it depends on, and their outcome by the digest of the facts that they can
    read: those of the run alone where they read no capability.
    """

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self._scoped = _scoped_rules(rules)
        # The outer key lists the selector fields that are not None, the inner key their values.
        self._by_fields: dict[tuple[int, ...], dict[tuple[str | None, ...], list[Scoped]]] = defaultdict(dict)
        for selector, scoped in self._scoped.items():
            fields = tuple(field for field in range(4) if selector[field] is not None)
            self._by_fields[fields][tuple(selector[field] for field in fields)] = scoped
        self._selections: dict[tuple[Any, ...], Selection] = {}
        self._groups: dict[tuple[str, ...], RuleGroup] = {}
        self._outcomes: dict[tuple[RuleGroup, str], RuleOutcome] = {}

    def evaluate(
        self, point: Point, facts: Mapping[str, Any], capability: CapabilityView | None
    ) -> tuple[RuleOutcome, str]:
        """Evaluate all rules that apply to a tool. Returns (their outcome in rule order, digest of the facts).

        Raises:
            InvalidInput: the facts have an unknown root, or a value that is not JSON.
        """
        own = facts if isinstance(facts, KnownFacts) else KnownFacts(facts)
        if not _CALLER_ROOTS.issuperset(own):
            unknown = sorted(own.keys() - _CALLER_ROOTS)
            detail, known = f"`{unknown[0]}` is not a root of facts", " ".join(sorted(_CALLER_ROOTS))
            raise InvalidInput(Problem(pointer((unknown[0],)), "unknown_fact_root", detail, f"use {known}"))
        complete = own if capability is None else own.about(capability)
        group, undecidable = self._selection(point, complete, capability)
        key = (group, complete.digest if group.reads_capability else own.digest)
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = _kept(self._outcomes, key, group.evaluate(complete))
        if undecidable:
            outcome = RuleOutcome(outcome.matched, [*undecidable, *outcome.indeterminate])
        return outcome, complete.digest

    def _selection(self, point: Point, facts: KnownFacts, capability: CapabilityView | None) -> Selection:
        args = facts.get("args") if point == "plan" else None
        intent, environment = _intent_and_environment(facts)
        wanted: Selector = (intent, capability.capability_id if capability else None, environment, point)
        key = (wanted, tuple(facts), tuple(args) if isinstance(args, dict) else None)
        return self._selections.get(key) or _kept(self._selections, key, self._select(wanted, point, facts))

    def _select(self, wanted: Selector, point: Point, facts: KnownFacts) -> Selection:
        found = (one for fields, by in self._by_fields.items() for one in by.get(tuple(wanted[f] for f in fields), ()))
        rules = sorted((rule for one in found if one.applies(point, facts) for rule in one.rules), key=_order)
        unknown = frozenset(field for field in (0, 2) if wanted[field] is None)
        could = [one for one in self._undecidable(wanted, unknown) if one[0].applies(point, facts)]
        ids = tuple(rule.rule_id for rule in rules)
        group = self._groups.get(ids) or _kept(self._groups, ids, RuleGroup(rules))
        return group, [(rule, lacking) for one, lacking in could for rule in one.rules]

    def _undecidable(self, wanted: Selector, unknown: frozenset[int]) -> Iterator[tuple[Scoped, tuple[str, ...]]]:
        """The rules that could apply, but name a field whose fact is unknown. Each comes with those facts."""
        for selector, scoped in self._scoped.items():
            lacking = tuple(_SELECTOR_FACTS[field] for field in unknown if selector[field] is not None)
            others = (field for field in range(4) if field not in unknown and selector[field] is not None)
            if lacking and all(selector[field] == wanted[field] for field in others):
                yield from ((one, lacking) for one in scoped)


def _kept(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> ValueT:
    """Keep `value`, and forget all others where there are too many."""
    if len(kept) >= MAX_KEPT:
        kept.clear()
    kept[key] = value
    return value


def _scoped_rules(rules: Iterable[CompiledRule]) -> dict[Selector, list[Scoped]]:
    members: dict[tuple[Selector, frozenset[str], frozenset[str]], list[CompiledRule]] = defaultdict(list)
    for rule in rules:
        applies = rule.applies_to
        selector: Selector = (applies.intent, applies.capability, applies.environment, applies.point)
        late = frozenset(fact.segments[0] for fact in rule.facts) & (LATE_ROOTS | {"capability"})
        args = frozenset(".".join(fact.segments[1:2]) for fact in rule.facts if fact.segments[0] == "args")
        members[selector, late, args].append(rule)
    scoped: dict[Selector, list[Scoped]] = {}
    for (selector, late, args), group in members.items():
        scoped.setdefault(selector, []).append(Scoped(tuple(sorted(group, key=_order)), selector[3], late, args))
    return scoped


def _order(rule: CompiledRule) -> tuple[int, str, str]:
    return rule.order


def _intent_and_environment(facts: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """What the run and its request state; no intent if they disagree or neither states one."""
    run, request = ({} if not isinstance(one, dict) else one for one in (facts.get("run"), facts.get("request")))
    intents = {one for one in (run.get("intent"), request.get("intent")) if isinstance(one, str) and one}
    environment = run.get("environment")
    known = isinstance(environment, str) and environment
    return intents.pop() if len(intents) == 1 else None, environment if known else None
