"""Static analysis of a rule's JsonLogic condition: which facts it reads, of which types, and what is wrong with it.

JsonLogic coerces types and so fails open: `null > 3000` is false, but `"4000" > 3000` and `"true" == true` are true.
Every condition is therefore typed when it is compiled. Each operand has one type, and so has each fact that is read
(declared, or derived from the operator and its literals). Refuses a condition that cannot be typed, operators outside
`KNOWN`, iterators, computed paths, unknown fact roots, conditions beyond the size limits, and possible overflow.
Source: docs/design/contracts.md, "Policy".

>>> [fact.path for fact in analyse_condition({">": [{"var": "args.amount"}, 3000]}).facts]
['args.amount']
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.encoding.display_escape import an
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.facts import FACTS, ROOTS, nearest_name
from contextos.errors import Problem
from contextos.trust.policy.operators import (
    EQUALITIES,
    ITERATORS,
    KNOWN,
    OPERATORS,
    PRESENCE,
    SCALARS,
    UNARY,
    JsonPath,
    compatible,
    element_type,
    literal_type,
    magnitude,
    operands_of,
    oversized,
    result_type,
    value_type,
)

MAX_PATH_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class FactPath:
    """A dotted fact path that a policy condition reads. If not `required`, the fact can be absent, but not null or
    mistyped.

    `type` is a `FactType`, `array<scalar>` where elements are compared, or None where only presence is tested.
    """

    path: str
    type: str | None
    required: bool

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.split("."))


@dataclass(frozen=True, slots=True)
class ConditionAnalysis:
    """The facts that a policy condition reads, sorted by path, and the problems found in it.

    A condition with a problem is refused.
    """

    facts: tuple[FactPath, ...]
    problems: tuple[Problem, ...]

    @property
    def reads(self) -> dict[str, str | None]:
        return {fact.path: fact.type for fact in self.facts}


def analyse_condition(
    condition: Any, declared: Mapping[str, str] | None = None, *, at: JsonPath = ("if",)
) -> ConditionAnalysis:
    """Find out which facts a JsonLogic condition reads, and what is wrong with the condition.

    `declared` maps fact paths to types and has precedence; `at` is the condition's own path in the bundle.
    """
    if detail := oversized(condition):
        return ConditionAnalysis((), (Problem(pointer(at), "condition_too_large", detail, "split the rule"),))
    reader = _Reader(declared or {})
    reader.read(condition, at, "boolean")
    for path in reader.declared.keys() - reader.types.keys():
        reader.refuse(
            at, "fact_not_read", f"`{path}` is declared in `facts` but not read", "remove or correct the path"
        )
    overflows: list[JsonPath] = []
    if not reader.problems:
        magnitude(condition, at, overflows)
    for operation in overflows:
        reader.refuse(operation, "overflow", "the result may be too large for a number", "use smaller factors")
    facts = (
        FactPath(path, kind, path in reader.without_default and path not in reader.presence_tested)
        for path, kind in sorted(reader.types.items())
    )
    return ConditionAnalysis(tuple(facts), tuple(reader.problems))


class _Reader:
    """Walks one condition tree and collects the types of its paths, and its problems."""

    def __init__(self, declared: Mapping[str, str]) -> None:
        self.declared = declared
        self.types: dict[str, str | None] = {}
        self.without_default: set[str] = set()
        self.presence_tested: set[str] = set()
        self.problems: list[Problem] = []

    def refuse(self, at: JsonPath, code: str, detail: str, remedy: str) -> None:
        self.problems.append(Problem(pointer(at), code, detail, remedy))

    def read(self, node: Any, at: JsonPath, needed: str) -> None:
        """Check that `node` has the type `needed`."""
        if not isinstance(node, dict):
            self._check_literal(node, at, needed)
            return
        if len(node) != 1:
            self.refuse(at, "not_an_operation", "an operation is an object with exactly one key", "name one operator")
            return
        ((name, raw),) = node.items()
        operands = operands_of(raw)
        place = (*at, name)
        if name == "var":
            self._check_var(operands, place, needed)
        elif name in PRESENCE:
            self.refuse(place, "not_a_condition", f"`{name}` returns a list", "put it directly under `!`, `!!` or `if`")
        elif name in KNOWN and name not in UNARY and not isinstance(raw, list | tuple):
            self.refuse(
                place, "operands_not_a_list", f"`{name}` takes its operands as a list", f'write {{"{name}": […]}}'
            )
        elif name in KNOWN:
            self._check_operation(name, operands, place, needed)
        elif name in ITERATORS:
            self.refuse(
                place, "iterator", f"`{name}` iterates over facts", "compute the aggregate as a fact of `history`"
            )
        else:
            operators = " ".join(sorted(KNOWN))
            self.refuse(place, "unknown_operator", f"`{name}` is not an operator here", f"use one of {operators}")

    def _check_literal(self, node: Any, at: JsonPath, needed: str) -> None:
        kind = literal_type(node)
        if kind is None:
            self.refuse(at, "not_a_literal", "this literal is not allowed", "use a boolean, number or string")
        elif kind != needed:
            detail = f"`{json.dumps(node)[:40]}` is {an(kind)} where {an(needed)} is needed"
            self.refuse(at, "type_mismatch", detail, f"write {an(needed)} there")

    def _check_operation(self, name: str, operands: Any, at: JsonPath, needed: str) -> None:
        if name in EQUALITIES:
            self._check_equality(name, operands, at)
        elif name == "in":
            self._check_membership(operands, at)
        elif name == "if":
            self._check_choice(operands, at, needed)
            return
        else:
            self._check_uniform(name, operands, at)
        if (result := result_type(name)) != needed:
            detail = f"`{name}` returns {an(str(result))} where {an(needed)} is needed"
            self.refuse(at, "type_mismatch", detail, f"write {an(needed)}")

    def _check_uniform(self, name: str, operands: Any, at: JsonPath) -> None:
        signature = OPERATORS[name]
        if not self._check_count(name, operands, at, signature.least, signature.most):
            return
        if name in ("/", "%") and (literal_type(operands[1]) != "number" or not operands[1]):
            self.refuse(at, "divisor", f"`{name}` needs a literal divisor other than 0", "multiply the other side")
        for index, operand in enumerate(operands):
            if name in ("!", "!!"):
                self._check_truth_value(operand, (*at, index))
            else:
                self.read(operand, (*at, index), signature.operand)

    def _check_count(self, name: str, operands: Any, at: JsonPath, minimum: int, maximum: int) -> bool:
        if minimum <= len(operands) <= maximum:
            return True
        count = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
        self.refuse(at, "argument_count", f"`{name}` takes {count} arguments, not {len(operands)}", "correct the list")
        return False

    def _check_truth_value(self, node: Any, at: JsonPath) -> None:
        """Check an operand that is used as a truth value: a boolean, or `missing`, whose empty list means false."""
        if isinstance(node, dict) and len(node) == 1 and (name := next(iter(node))) in PRESENCE:
            self._check_presence(name, node[name], (*at, name))
        else:
            self.read(node, at, "boolean")

    def _check_presence(self, name: str, raw: Any, at: JsonPath) -> None:
        paths = operands_of(raw)
        if name == "missing_some":
            if len(paths) != 2 or literal_type(paths[0]) != "number" or not isinstance(paths[1], list | tuple):
                self.refuse(
                    at, "argument_count", "`missing_some` takes a number and a list of paths", "correct the list"
                )
                return
            paths = paths[1]
        for path in paths:
            if self._check_path(path, at):
                self.types.setdefault(path, self.declared.get(path))
                self.presence_tested.add(path)

    def _check_equality(self, name: str, operands: Any, at: JsonPath) -> None:
        if not self._check_count(name, operands, at, 2, 2):
            return
        kinds = {kind for operand in operands if (kind := self._static_type(operand))}
        if len(kinds) != 1 or not kinds <= SCALARS:
            known_types = " and ".join(sorted(kinds)) or "nothing"
            detail = f"the type that `{name}` compares cannot be derived ({known_types} known)"
            self.refuse(at, "type_not_derivable", detail, "compare two scalars of one type, or declare it in `facts`")
            return
        for index, operand in enumerate(operands):
            self.read(operand, (*at, index), next(iter(kinds)))

    def _check_membership(self, operands: Any, at: JsonPath) -> None:
        if not self._check_count("in", operands, at, 2, 2):
            return
        needle, haystack = operands
        kind = self._static_type(haystack)
        if kind == "string" and isinstance(haystack, dict) and isinstance(needle, str) and needle:
            self.read(haystack, (*at, 1), "string")
            return
        element = element_type(haystack) if isinstance(haystack, list | tuple) else self._static_type(needle)
        if kind is None or not kind.startswith("array") or element not in SCALARS:
            # An empty text is part of every text, so a fact is never searched for inside a text.
            detail, remedy = (
                "the type of an operand of `in` cannot be derived",
                "use a list, or a fact declared as array",
            )
            if isinstance(haystack, list | tuple) and haystack:
                kinds = sorted({str(literal_type(value)) for value in haystack})
                detail = f"the values after `in` (an `enum`) have no common type: {', '.join(kinds)}"
                remedy = "write values of one type; a text such as `no` in quotes"
            self.refuse(at, "type_not_derivable", detail, remedy)
            return
        self.read(needle, (*at, 0), element)
        if isinstance(haystack, dict):
            self.read(haystack, (*at, 1), f"array<{element}>")

    def _check_choice(self, operands: Any, at: JsonPath, needed: str) -> None:
        if len(operands) < 3 or len(operands) % 2 == 0:
            self.refuse(at, "argument_count", "`if` needs an else branch", "write condition, then, else")
            return
        for index, operand in enumerate(operands):
            if index % 2 == 0 and index < len(operands) - 1:
                self._check_truth_value(operand, (*at, index))
            else:
                self.read(operand, (*at, index), needed)

    def _static_type(self, node: Any) -> str | None:
        """Return the type of `node` if it is known without its context, else None."""
        if not isinstance(node, dict):
            return value_type(node)
        if len(node) != 1:
            return None
        ((name, raw),) = node.items()
        operands = operands_of(raw)
        if name == "var":
            path = operands[0] if operands and isinstance(operands[0], str) else ""
            return self.declared.get(path) or (value_type(operands[1]) if len(operands) == 2 else None)
        if name == "if":
            return next(filter(None, map(self._static_type, (*operands[1::2], *operands[-1:]))), None)
        return result_type(name)

    def _check_var(self, operands: Any, at: JsonPath, needed: str) -> None:
        if not 1 <= len(operands) <= 2:
            self.refuse(at, "argument_count", "`var` takes a path and at most one default", "correct the list")
            return
        path = operands[0]
        if not self._check_path(path, at):
            return
        if len(operands) == 1:
            self.without_default.add(path)
        elif (default := value_type(operands[1])) is None or not compatible(default, needed):
            self.refuse(
                at, "type_mismatch", f"the default of `{path}` is not {an(needed)}", f"use {an(needed)} as default"
            )
        declared, used = self.declared.get(path), self.types.get(path)
        if declared is not None and not compatible(declared, needed):
            self.refuse(at, "type_mismatch", f"`{path}` is declared {declared} but used as {needed}", "correct `facts`")
        elif used is not None and used not in (declared, needed):
            self.refuse(at, "type_mismatch", f"`{path}` is used as {used} and as {needed}", "use it as one type")
        self.types[path] = needed

    def _check_path(self, path: Any, at: JsonPath) -> bool:
        if not isinstance(path, str):
            self.refuse(at, "computed_path", "a computed path cannot be checked", "write the path as a string")
            return False
        segments = path.split(".")
        if not all(segments) or len(path) > MAX_PATH_CHARS or segments[0] not in ROOTS:
            detail = f"`{path[:MAX_PATH_CHARS]}` is not a path to a fact"
            root = nearest_name(segments[0], ROOTS)
            nearest = ".".join((root, *segments[1:])) if root and root != segments[0] else None
            nearest = nearest or nearest_name(path, [fact.path for fact in FACTS])
            self.refuse(
                at, "unknown_fact", detail, f"write `{nearest}`" if nearest else f"start with one of {' '.join(ROOTS)}"
            )
            return False
        return True
