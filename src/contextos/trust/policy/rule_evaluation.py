"""What each rule answers: it matches, it does not match, or it is indeterminate.

Rules that apply to the same questions form a `RuleGroup`. The presence, non-nullness and type of every fact are checked
here, once per part and fact, before the engine is asked; then the engine answers the whole part in one call. When a
fact fails its check or the engine raises, the part is asked rule by rule, and what cannot be decided is indeterminate.
Source: shared/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

from datalogic_py import DataHandle, DataLogicError, Engine
from datalogic_py import Rule as EngineRule

from contextos.contracts.encoding.jcs import MAX_INT
from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.envelopes.policy import Point
from contextos.trust.policy.conditions import FactPath
from contextos.trust.policy.rules import CompiledRule

OPS_BUDGET: Final = 1_000_000
"""Operations of one engine call. A rule that passes within a part therefore passes alone, too."""

RULES_PER_CALL: Final = 200

_ENGINE: Final = Engine(
    families=[],
    config={
        "missing_var": "error",
        "ops_budget": OPS_BUDGET,
        "division_by_zero": "throw_error",
        "arithmetic_nan_handling": "throw_error",
    },
)

Indeterminates = list[tuple[CompiledRule, tuple[str, ...]]]


@dataclass(slots=True)
class RuleOutcome:
    """The rules that matched, and those that could not be decided with the facts they lacked."""

    matched: list[CompiledRule] = field(default_factory=list)
    indeterminate: Indeterminates = field(default_factory=list)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_INT <= value <= MAX_INT


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


_FITS: Final[dict[str | None, Callable[[Any], bool]]] = {
    "boolean": lambda value: isinstance(value, bool),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": _is_list,
    "object": lambda value: isinstance(value, dict),
    "array<boolean>": lambda value: _is_list(value) and all(isinstance(element, bool) for element in value),
    "array<number>": lambda value: _is_list(value) and all(map(_is_number, value)),
    "array<string>": lambda value: _is_list(value) and all(isinstance(element, str) for element in value),
    None: lambda value: value is not None,
}


def _holds(fact: FactPath, segments: Sequence[str], facts: Mapping[str, Any]) -> bool:
    """Whether a fact is there, not null and of its type; an optional one may be absent."""
    node: Any = facts
    for segment in segments:
        if not isinstance(node, dict):
            return False
        node = node.get(segment, MISSING)
        if node is MISSING:
            return not fact.required
    return _FITS[fact.type](node)


class RuleGroup:
    """Rules that apply to the same questions and need the same roots of facts."""

    def __init__(
        self, rules: Sequence[CompiledRule], point: str | None, late: frozenset[str], args: frozenset[str]
    ) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.order))
        self.point, self.late, self.args = point, late, args
        self.reads_capability = any(fact.segments[0] == "capability" for rule in rules for fact in rule.facts)
        self._checks = [(fact, fact.segments) for fact in dict.fromkeys(f for rule in self.rules for f in rule.facts)]
        self._calls = [
            _ENGINE.compile([rule.condition for rule in self.rules[start : start + RULES_PER_CALL]])
            for start in range(0, len(self.rules), RULES_PER_CALL)
        ]
        self._alone: dict[str, EngineRule] = {}

    def applies(self, point: Point, facts: Mapping[str, Any]) -> bool:
        """Whether this point is not before the first at which all roots of the facts exist.

        At plan only literal arguments exist; at model, memory and commit what the caller was able to give.
        """
        if point == "execute" or self.point is not None or not self.late:
            return True
        if point == "compile":
            return self.late <= {"capability"}
        if point == "plan":
            given = facts.get("args")
            return self.late <= {"args", "capability"} and isinstance(given, dict) and self.args <= given.keys()
        return self.late <= facts.keys()

    def ask(self, facts: Mapping[str, Any], handle: DataHandle) -> RuleOutcome:
        """What the rules answer. `handle` holds `facts`, and nothing else."""
        bad = {fact for fact, segments in self._checks if not _holds(fact, segments, facts)}
        if not bad:
            answers: list[Any] = []
            try:
                for call in self._calls:
                    answers += call.evaluate_data(handle)
            except DataLogicError:
                return self._ask_each(bad, facts, handle)
            if set(map(type, answers)) <= {bool}:
                return RuleOutcome(list(compress(self.rules, answers)))
        return self._ask_each(bad, facts, handle)

    def _ask_each(self, bad: set[FactPath], facts: Mapping[str, Any], handle: DataHandle) -> RuleOutcome:
        outcome = RuleOutcome()
        for rule in self.rules:
            lacking = tuple(fact.path for fact in rule.facts if fact in bad)
            answer = self._ask_one(rule, handle) if not lacking else None
            if answer is True:
                outcome.matched.append(rule)
            elif answer is not False:
                outcome.indeterminate.append((rule, lacking or _suspects(rule, facts)))
        return outcome

    def _ask_one(self, rule: CompiledRule, handle: DataHandle) -> Any:
        if rule.rule_id not in self._alone:
            self._alone[rule.rule_id] = _ENGINE.compile(rule.condition)
        try:
            return self._alone[rule.rule_id].evaluate_data(handle)
        except DataLogicError:
            return None


def _suspects(rule: CompiledRule, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the engine gave no answer although every check held: what is absent, else everything that is read."""
    absent = tuple(f.path for f in rule.facts if not _holds(FactPath(f.path, f.type, True), f.segments, facts))
    return absent or tuple(fact.path for fact in rule.facts)
