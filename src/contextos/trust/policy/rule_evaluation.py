"""Evaluate rules against facts: each rule matches, does not match, or is indeterminate.

The rules that apply to a question form a `RuleGroup`. Each fact that a group reads is first checked: it must be
present, not null and of its type. Then the JsonLogic engine evaluates the whole group in one call. If a check fails or
the engine raises, the rules are evaluated one by one, and a rule that cannot be evaluated is indeterminate.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import compress
from typing import Any, Final

from datalogic_py import DataHandle, DataLogicError, Engine
from datalogic_py import Rule as EngineRule

from contextos.contracts.encoding.jcs import MAX_INT, canonical
from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.facts import LATE_ROOTS
from contextos.trust.policy.conditions import FactPath, analyse_condition
from contextos.trust.policy.operators import without_presence_tests
from contextos.trust.policy.rules import CompiledRule

OPS_BUDGET: Final = 1_000_000
"""The most operations of one engine call. A rule that fits the budget within a group also fits it alone."""

RULES_PER_CALL: Final = 200
LONGEST_KEPT: Final = 64
"""The longest text (characters), list or object (bytes of JSON) that a memo keeps as it is; else its SHA-256."""

_ENGINE: Final = Engine(
    families=[],
    config={
        "missing_var": "error",
        "ops_budget": OPS_BUDGET,
        "division_by_zero": "throw_error",
        "arithmetic_nan_handling": "throw_error",
    },
)


def is_never_true(condition: Any, declared: Mapping[str, str]) -> bool:
    """Return whether a valid condition reads no fact and is not true."""
    analysis = analyse_condition(condition, declared)
    if analysis.facts or analysis.problems:
        return False
    try:
        return _ENGINE.compile(without_presence_tests(condition)).evaluate({}) is not True
    except DataLogicError:
        return True


Indeterminates = list[tuple[CompiledRule, tuple[str, ...]]]


@dataclass(slots=True)
class RuleOutcome:
    """The rules that matched, and the rules that could not be evaluated, with the facts that were missing or mistyped.

    `key` has the ids of both.
    """

    matched: Sequence[CompiledRule] = ()
    indeterminate: Indeterminates = field(default_factory=list)
    key: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        indeterminate = tuple([(rule.rule_id, facts) for rule, facts in self.indeterminate])
        self.key = tuple([rule.rule_id for rule in self.matched]), indeterminate


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_INT <= value <= MAX_INT


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


_TYPE_CHECKS: Final[dict[str | None, Callable[[Any], bool]]] = {
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
    """Return whether a fact is present, not null and of its type. An optional fact can be absent."""
    node: Any = facts
    for segment in segments:
        if not isinstance(node, dict):
            return False
        node = node.get(segment, MISSING)
        if node is MISSING:
            return not fact.required
    return _TYPE_CHECKS[fact.type](node)


def reads_known_facts(rule: CompiledRule, facts: Mapping[str, Any]) -> bool:
    """Return whether each fact that a rule reads, except facts that always exist, exists already with a value of its
    type.
    """
    late_facts = (fact for fact in rule.facts if fact.segments[0] in LATE_ROOTS)
    return all(_holds(FactPath(fact.path, fact.type, True), fact.segments, facts) for fact in late_facts)


class RuleGroup:
    """Rules that are evaluated together, in their order."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self._checks = [
            (fact, fact.segments) for fact in dict.fromkeys(fact for rule in self.rules for fact in rule.facts)
        ]
        self._paths = tuple(dict.fromkeys(segments for _, segments in self._checks))
        self._calls = [
            _ENGINE.compile(
                [without_presence_tests(rule.condition) for rule in self.rules[start : start + RULES_PER_CALL]]
            )
            for start in range(0, len(self.rules), RULES_PER_CALL)
        ]
        self._single_rules: dict[str, EngineRule] = {}

    def read(self, facts: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of all facts that the rules read. The outcome of the rules follows from these alone.

        A path adds the type and value of a leaf, or the canonical JSON of an object or list; a long value is replaced
        by its SHA-256. An absent path adds `MISSING`, and a path through a value that is not an object adds None.
        """
        values: list[Any] = []
        for segments in self._paths:
            node: Any = facts
            try:
                for segment in segments:
                    node = node[segment]
            except KeyError:
                values.append(MISSING)
            except TypeError:
                values.append(None)
            else:
                if isinstance(node, (dict, list, tuple)):
                    values.append(_shorten(canonical(node)))
                else:
                    is_long = type(node) is str and len(node) > LONGEST_KEPT
                    values += (type(node), _shorten(node.encode(errors="surrogatepass")) if is_long else node)
        return tuple(values)

    def evaluate(self, facts: Mapping[str, Any]) -> RuleOutcome:
        """Evaluate all rules of the group."""
        if not self.rules:
            return RuleOutcome()
        handle = DataHandle(canonical(facts).decode())
        failed = {fact for fact, segments in self._checks if not _holds(fact, segments, facts)}
        if not failed:
            answers: list[Any] = []
            try:
                for call in self._calls:
                    answers += call.evaluate_data(handle)
            except DataLogicError:
                return self._evaluate_each(failed, facts, handle)
            if set(map(type, answers)) <= {bool}:
                return RuleOutcome(list(compress(self.rules, answers)))
        return self._evaluate_each(failed, facts, handle)

    def _evaluate_each(self, failed: set[FactPath], facts: Mapping[str, Any], handle: DataHandle) -> RuleOutcome:
        matched, indeterminate = list[CompiledRule](), Indeterminates()
        for rule in self.rules:
            failed_paths = tuple(fact.path for fact in rule.facts if fact in failed)
            answer = self._evaluate_one(rule, handle) if not failed_paths else None
            if answer is True:
                matched.append(rule)
            elif answer is not False:
                indeterminate.append((rule, failed_paths or _suspect_facts(rule, facts)))
        return RuleOutcome(matched, indeterminate)

    def _evaluate_one(self, rule: CompiledRule, handle: DataHandle) -> Any:
        if rule.rule_id not in self._single_rules:
            self._single_rules[rule.rule_id] = _ENGINE.compile(without_presence_tests(rule.condition))
        try:
            return self._single_rules[rule.rule_id].evaluate_data(handle)
        except DataLogicError:
            return None


def _shorten(content: bytes) -> bytes:
    """Return the content as a memo keeps it: long content, such as a tenant's text, as its SHA-256."""
    return content if len(content) <= LONGEST_KEPT else sha256(content).digest()


def _suspect_facts(rule: CompiledRule, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the facts to report when the engine failed although all checks passed: absent facts, else all facts."""
    absent = tuple(
        fact.path for fact in rule.facts if not _holds(FactPath(fact.path, fact.type, True), fact.segments, facts)
    )
    return absent or tuple(fact.path for fact in rule.facts)
