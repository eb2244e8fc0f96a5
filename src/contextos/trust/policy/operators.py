"""The operators a condition may use, their types, and how large their numbers can become.

A closed list: what is not here does not lint. Iterators are absent, so the cost of a condition is bounded by its
text; operators that cast (`cat`, `substr`, `merge`) are absent, so every operand keeps the type it was checked for.
Source: shared/design/contracts.md, "Policy".
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from contextos.contracts.encoding.jcs import MAX_INT

MAX_CONDITION_NODES: Final = 500
MAX_CONDITION_DEPTH: Final = 20
MAX_MAGNITUDE: Final = 1e300
"""Beyond it a sum or product may become infinite, and what is computed from that is not a number."""

JsonPath = tuple[str | int, ...]


class Signature(NamedTuple):
    """An operator whose operands all have one type."""

    operand: str
    result: str
    least: int
    most: int


OPERATORS: Final[dict[str, Signature]] = {
    "and": Signature("boolean", "boolean", 1, MAX_CONDITION_NODES),
    "or": Signature("boolean", "boolean", 1, MAX_CONDITION_NODES),
    "!": Signature("boolean", "boolean", 1, 1),
    "!!": Signature("boolean", "boolean", 1, 1),
    ">": Signature("number", "boolean", 2, 2),
    ">=": Signature("number", "boolean", 2, 2),
    "<": Signature("number", "boolean", 2, 3),
    "<=": Signature("number", "boolean", 2, 3),
    "+": Signature("number", "number", 1, MAX_CONDITION_NODES),
    "-": Signature("number", "number", 1, 2),
    "*": Signature("number", "number", 1, MAX_CONDITION_NODES),
    "/": Signature("number", "number", 2, 2),
    "%": Signature("number", "number", 2, 2),
    "min": Signature("number", "number", 1, MAX_CONDITION_NODES),
    "max": Signature("number", "number", 1, MAX_CONDITION_NODES),
}
EQUALITIES: Final = frozenset({"==", "===", "!=", "!=="})
PRESENCE: Final = frozenset({"missing", "missing_some"})
ITERATORS: Final = frozenset({"map", "filter", "reduce", "all", "some", "none"})
KNOWN: Final = OPERATORS.keys() | EQUALITIES | PRESENCE | {"in", "if", "var"}
SCALARS: Final = frozenset({"boolean", "number", "string"})


def operands_of(raw: Any) -> Any:
    """The operands of an operation; JsonLogic lets a single one stand without its list."""
    return raw if isinstance(raw, list | tuple) else [raw]


def result_type(name: str) -> str | None:
    """What an operator gives, where that does not depend on its operands."""
    if name in OPERATORS:
        return OPERATORS[name].result
    return "boolean" if name in EQUALITIES or name == "in" else None


def literal_type(node: Any) -> str | None:
    """The type of a scalar literal; None for what is not one, or not exact in every JSON reader."""
    if isinstance(node, bool):
        return "boolean"
    if isinstance(node, str):
        return "string"
    return "number" if isinstance(node, int | float) and -MAX_INT <= node <= MAX_INT else None


def element_type(nodes: Any) -> str | None:
    """The one type of a list's scalars; None for an empty or mixed list."""
    kinds = {literal_type(node) for node in nodes}
    return kinds.pop() if len(kinds) == 1 else None


def value_type(node: Any) -> str | None:
    """The type of a scalar or of a list of scalars of one type."""
    if not isinstance(node, list | tuple):
        return literal_type(node)
    if not node:
        return "array"
    element = element_type(node)
    return f"array<{element}>" if element else None


def compatible(stated: str, want: str) -> bool:
    """Whether a value stated as one type can stand where another is wanted."""
    return stated == want or (stated == "array" and want.startswith("array<"))


def oversized(condition: Any) -> str:
    """What is too large about a condition; empty if nothing is. Looks no further than the limits."""
    nodes, todo = 0, [(condition, 0)]
    while todo:
        node, depth = todo.pop()
        nodes += 1
        if nodes > MAX_CONDITION_NODES:
            return f"the condition has more than {MAX_CONDITION_NODES} nodes"
        if depth > MAX_CONDITION_DEPTH:
            return f"the condition nests deeper than {MAX_CONDITION_DEPTH}"
        if isinstance(node, dict):
            todo.extend((child, depth + 1) for child in node.values())
        elif isinstance(node, list | tuple):
            todo.extend((child, depth + isinstance(child, list | tuple)) for child in node)
    return ""


def magnitude(node: Any, at: JsonPath, overflows: list[JsonPath]) -> float:
    """The largest absolute value that a well-typed `node` can have; where it may overflow is added to `overflows`."""
    if not isinstance(node, dict):
        return abs(float(node)) if literal_type(node) == "number" else 0.0
    ((name, raw),) = node.items()
    if name == "var":
        return float(MAX_INT)
    bounds = [magnitude(operand, (*at, name, index), overflows) for index, operand in enumerate(operands_of(raw))]
    bound = _bound(name, bounds)
    if not bound <= MAX_MAGNITUDE:  # also where it is not a number
        overflows.append((*at, name))
        return 0.0
    return bound


def _bound(name: str, bounds: list[float]) -> float:
    if name in ("+", "-"):
        return sum(bounds)
    if name == "*":
        product = 1.0
        for bound in bounds:
            product *= bound
        return product
    if name == "/":
        return bounds[0] / bounds[1]
    return max(bounds) if name in ("%", "min", "max", "if") else 0.0
