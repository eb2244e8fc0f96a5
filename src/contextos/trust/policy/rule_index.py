"""Select the rules that apply to a policy question, and evaluate each of them once.

Which rules apply (by intent, capability, environment and point) is found once, so a rule that does not apply costs
nothing. If the intent or the environment is unknown, the rules that name one are indeterminate.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from contextos.contracts.controls import Served
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import CapabilityView, Point
from contextos.contracts.facts import EXECUTE_ROOTS, LATE_ROOTS, ROOTS
from contextos.errors import InvalidInput, Problem
from contextos.trust.policy.rule_evaluation import Indeterminates, RuleGroup, RuleOutcome, reads_known_facts
from contextos.trust.policy.rules import CompiledRule

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

Selector = tuple[str | None, str | None, str | None, str | None]
"""What a rule applies to: (intent, capability, environment, point). None means every value."""

_SELECTOR_FACTS: Final = {0: "request.intent", 2: "run.environment"}
"""By index of a selector field: the fact compared with it. If the fact is unknown, a rule with the field can apply."""
_CALLER_ROOTS: Final = frozenset(ROOTS) - {"capability"}
MAX_ANSWERS_KEPT: Final = 512
"""The most selections of rules, and the most outcomes, that one set of rules keeps."""

Selection = tuple[RuleGroup, Indeterminates]
"""The rules that apply, and the rules that could apply if an unknown fact were known."""


class RuleScope(NamedTuple):
    """What a rule applies to (`selector`), the roots of its facts that do not exist at every point (`late`), and the
    names of the arguments that it reads (`args`).
    """

    selector: Selector
    late: frozenset[str]
    args: frozenset[str]

    @classmethod
    def of(cls, rule: CompiledRule) -> RuleScope:
        applies = rule.applies_to
        roots = frozenset(fact.segments[0] for fact in rule.facts)
        args = frozenset(".".join(fact.segments[1:2]) for fact in rule.facts if fact.segments[0] == "args")
        selector = (applies.intent, applies.capability, applies.environment, applies.point)
        return cls(selector, roots & (LATE_ROOTS | {"capability"}), args)

    def applies(self, point: Point, facts: Mapping[str, Any]) -> bool:
        """Return whether all facts that the rule reads can exist at this point of a run.

        At `plan` only literal arguments exist; at `model`, `memory` and `commit` exactly the roots in `facts`.
        """
        if self.selector[3] is not None or not self.late:
            return True
        if point == "execute":
            return self.late <= EXECUTE_ROOTS
        if point == "compile":
            return self.late <= {"capability"}
        if point == "plan":
            args = facts.get("args")
            is_literal = isinstance(args, dict) and self.args <= args.keys()
            return self.late <= {"args", "capability"} and (is_literal or "args" not in self.late)
        return self.late <= facts.keys()


class RuleIndex:
    """Policy rules, found by intent, capability, environment and point, and evaluated together.

    A selection is kept by all that it depends on, and its outcome by the values of the facts that its rules read.
    """

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self._rules = [(rule, RuleScope.of(rule)) for rule in sorted(rules, key=lambda rule: rule.order)]
        self._selections: dict[tuple[Any, ...], Selection] = {}
        self._groups: dict[tuple[str, ...], RuleGroup] = {}
        self._outcomes: dict[tuple[RuleGroup, tuple[Any, ...], bool], RuleOutcome] = {}

    def outcome(
        self, point: Point, facts: Mapping[str, Any], served: Served, tool: CapabilityView | None, known: bool = False
    ) -> RuleOutcome:
        """Evaluate all rules that apply to a tool, in their order. With `known` only the rules that match and whose
        facts all exist already are part of the outcome.

        Raises:
            InvalidInput: the facts have an unknown root.
        """
        if not _CALLER_ROOTS.issuperset(facts):
            unknown = sorted(facts.keys() - _CALLER_ROOTS)
            detail, remedy = f"`{unknown[0]}` is not a root of facts", f"use {' '.join(sorted(_CALLER_ROOTS))}"
            raise InvalidInput(Problem(pointer((unknown[0],)), "unknown_fact_root", detail, remedy))
        complete = {**facts, "capability": tool.facts} if tool else {**facts}
        intent, environment = served
        selector: Selector = (intent, tool.capability_id if tool else None, environment, point)
        group, undecidable = self._selection(selector, point, complete)
        key = (group, group.read(complete), known)
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = group.evaluate(complete)
            if known:
                outcome = RuleOutcome([rule for rule in outcome.matched if reads_known_facts(rule, complete)])
            kept(self._outcomes, key, outcome)
        if undecidable and not known:
            outcome = RuleOutcome(outcome.matched, [*undecidable, *outcome.indeterminate])
        return outcome

    def _selection(self, selector: Selector, point: Point, facts: Mapping[str, Any]) -> Selection:
        args = facts.get("args") if point == "plan" else None
        key = (selector, tuple(facts), tuple(args) if isinstance(args, dict) else None)
        return self._selections.get(key) or kept(self._selections, key, self._select(selector, point, facts))

    def _select(self, selector: Selector, point: Point, facts: Mapping[str, Any]) -> Selection:
        rules, undecidable = list[CompiledRule](), Indeterminates()
        for rule, scope in self._rules:
            differing = [at for at, value in enumerate(scope.selector) if value not in (None, selector[at])]
            if all(at in _SELECTOR_FACTS and selector[at] is None for at in differing) and scope.applies(point, facts):
                if differing:
                    undecidable.append((rule, tuple(_SELECTOR_FACTS[at] for at in differing)))
                else:
                    rules.append(rule)
        ids = tuple(rule.rule_id for rule in rules)
        return self._groups.get(ids) or kept(self._groups, ids, RuleGroup(rules)), undecidable


def kept(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> ValueT:
    """Store `value` under `key` and return it. A dict with `MAX_ANSWERS_KEPT` values is emptied first."""
    if len(kept) >= MAX_ANSWERS_KEPT:
        kept.clear()
    kept[key] = value
    return value
