"""The JsonLogic operators that a condition can use, their types, and the largest numbers they can produce.

The list is closed: lint refuses every other operator. It has no iterators, so the size of a condition bounds its cost,
and no operators that convert types (`cat`, `substr`, `merge`), so every operand keeps the type that was checked.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from contextos.contracts.encoding.jcs import MAX_INT

MAX_CONDITION_NODES: Final = 500
MAX_CONDITION_DEPTH: Final = 20
MAX_MAGNITUDE: Final = 1e300
"""Largest absolute value of a result. A larger sum or product could become infinite, and then not a number."""

JsonPath = tuple[str | int, ...]


class Signature(NamedTuple):
    """The operand types and result type of a JsonLogic operator whose operands all have one type."""

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
UNARY: Final = frozenset({"!", "!!", "var", "missing"})
"""The operators whose single operand can be written without a list."""

SCALARS: Final = frozenset({"boolean", "number", "string"})


def operands_of(raw: Any) -> Any:
    """Return the operands of an operation as a list. A single operand of a `UNARY` operator can be without a list."""
    return raw if isinstance(raw, list | tuple) else [raw]


def without_presence_tests(node: Any) -> Any:
    """Return a checked condition in which `missing` and `missing_some` are replaced by comparisons.

    json-logic-js counts `null` and `""` as missing, and the rule engine counts neither. A fact that is null never
    reaches the engine, so a fact is missing here if it is absent or `""`.
    """
    if isinstance(node, list | tuple):
        return [without_presence_tests(child) for child in node]
    if not isinstance(node, dict):
        return node
    ((name, raw),) = node.items()
    if name == "missing":
        return {"or": [False, *map(_is_missing, operands_of(raw))]}
    if name == "missing_some":
        least, paths = raw
        presence_counts = [{"if": [_is_missing(path), 0, 1]} for path in paths]
        return {"and": [{"or": [False, *map(_is_missing, paths)]}, {"<": [{"+": [0, *presence_counts]}, least]}]}
    return {name: without_presence_tests(raw)}


def _is_missing(path: str) -> dict[str, Any]:
    return {"===": [{"var": [path, ""]}, ""]}


def result_type(name: str) -> str | None:
    """Return the result type of a JsonLogic operator, or None where it depends on the operands."""
    if name in OPERATORS:
        return OPERATORS[name].result
    return "boolean" if name in EQUALITIES or name == "in" else None


def literal_type(node: Any) -> str | None:
    """Return the type of a literal in a condition; None for other nodes and for numbers that JSON readers could
    round.
    """
    if isinstance(node, bool):
        return "boolean"
    if isinstance(node, str):
        return "string"
    return "number" if isinstance(node, int | float) and -MAX_INT <= node <= MAX_INT else None


def element_type(nodes: Any) -> str | None:
    """Return the common type of the scalars of a list; None for an empty or mixed list."""
    kinds = {literal_type(node) for node in nodes}
    return kinds.pop() if len(kinds) == 1 else None


def value_type(node: Any) -> str | None:
    """Return the type of a scalar, or of a list of scalars of one type; else None."""
    if not isinstance(node, list | tuple):
        return literal_type(node)
    if not node:
        return "array"
    element = element_type(node)
    return f"array<{element}>" if element else None


def compatible(stated: str, want: str) -> bool:
    """Return whether a fact that was declared with the type `stated` can be used where the type `want` is needed."""
    return stated == want or (stated == "array" and want.startswith("array<"))


def oversized(condition: Any) -> str:
    """Return which size limit a condition exceeds, or an empty string. Stops at the limit."""
    node_count, stack = 0, [(condition, 0)]
    while stack:
        node, depth = stack.pop()
        node_count += 1
        if node_count > MAX_CONDITION_NODES:
            return f"the condition has more than {MAX_CONDITION_NODES} nodes"
        if depth > MAX_CONDITION_DEPTH:
            return f"the condition nests deeper than {MAX_CONDITION_DEPTH}"
        if isinstance(node, dict):
            stack.extend((child, depth + 1) for child in node.values())
        elif isinstance(node, list | tuple):
            stack.extend((child, depth + isinstance(child, list | tuple)) for child in node)
    return ""


def magnitude(node: Any, at: JsonPath, overflows: list[JsonPath]) -> float:
    """Return the largest absolute value that the numeric expression `node` can have.

    Appends the path of each operation that could overflow to `overflows`.
    """
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
