"""Prints the JsonLogic of a condition as the text that `compile_condition` reads.

>>> print_condition({"and": [{">": [{"var": "args.amount"}, 20]}, {"!": [{"in": [{"var": "args.env"}, ["prod"]]}]}]})
'args.amount > 20 and args.env not in ["prod"]'
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Callable, Sequence
from typing import Any, Final

from contextos.trust.policy.operators import operands_of

_EQUAL: Final = {"===": "==", "!==": "!="}

_CHOICE, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _MINUS, _ATOM = range(9)
"""How tightly each form binds, as in Python."""


def print_condition(condition: Any) -> str:
    """Return the text of a checked JsonLogic condition."""
    return _text(condition, _CHOICE)


def _text(node: Any, minimum: int) -> str:
    """Return the text of a node, in parentheses where it binds less tightly than `minimum`."""
    text, strength = _print_node(node)
    return text if strength >= minimum else f"({text})"


def _print_node(node: Any) -> tuple[str, int]:
    if not isinstance(node, dict):
        return _literal(node)
    ((name, raw),) = node.items()
    operands = operands_of(raw)
    name = _EQUAL.get(name, name)
    if name in ("and", "or"):
        strength = _AND if name == "and" else _OR
        if len(operands) == 1:
            return _print_node(operands[0])
        return f" {name} ".join(_text(operand, strength + 1) for operand in operands), strength
    if name in _SPECIAL:
        return _SPECIAL[name](operands)
    if name in ("+", "-", "*", "/", "%"):
        return _print_arithmetic(name, operands)
    return f" {name} ".join(_text(operand, _SUM) for operand in operands), _COMPARE


def _literal(value: Any) -> tuple[str, int]:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(item, _CHOICE) for item in value)}]", _ATOM
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False), _ATOM
    return repr(value), _MINUS if not isinstance(value, bool) and value < 0 else _ATOM


def _print_arithmetic(name: str, operands: Sequence[Any]) -> tuple[str, int]:
    if len(operands) == 1:
        return (f"-{_text(operands[0], _ATOM)}", _MINUS) if name == "-" else _print_node(operands[0])
    strength = _SUM if name in ("+", "-") else _PRODUCT
    first, *rest = operands
    return f" {name} ".join([_text(first, strength), *(_text(operand, strength + 1) for operand in rest)]), strength


def _print_negation(operands: Sequence[Any]) -> tuple[str, int]:
    (inner,) = operands
    if isinstance(inner, dict) and "in" in inner:
        return " not in ".join(_text(operand, _SUM) for operand in inner["in"]), _COMPARE
    return f"not {_text(inner, _NOT)}", _NOT


def _print_fact(operands: Sequence[Any]) -> tuple[str, int]:
    if len(operands) == 2:
        return f"default({fact_text(operands[0])}, {_text(operands[1], _CHOICE)})", _ATOM
    return fact_text(operands[0]), _ATOM


def _print_choice(operands: Sequence[Any]) -> tuple[str, int]:
    test, then, *rest = operands
    other = _text({"if": rest} if len(rest) > 1 else rest[0], _CHOICE)
    return f"{_text(then, _OR)} if {_text(test, _OR)} else {other}", _CHOICE


def fact_text(path: str) -> str:
    """Return the text of a fact's dotted path. A segment that is not a Python name is written in brackets."""
    root, *segments = path.split(".")
    plain = [segment.isidentifier() and segment.isascii() and not keyword.iskeyword(segment) for segment in segments]
    parts = [
        f".{segment}" if fits else f"[{json.dumps(segment, ensure_ascii=False)}]"
        for segment, fits in zip(segments, plain, strict=True)
    ]
    return root + "".join(parts)


def _function_printer(name: str) -> Callable[[Sequence[Any]], tuple[str, int]]:
    return lambda operands: (f"{name}({', '.join(_text(operand, _CHOICE) for operand in operands)})", _ATOM)


_SPECIAL: Final[dict[str, Callable[[Sequence[Any]], tuple[str, int]]]] = {
    "var": _print_fact,
    "!": _print_negation,
    "!!": lambda operands: _print_node(operands[0]),
    "if": _print_choice,
    "min": _function_printer("min"),
    "max": _function_printer("max"),
    "missing": lambda paths: (f"missing({', '.join(map(fact_text, paths))})", _ATOM),
    "missing_some": lambda args: (f"missing_some({', '.join([repr(args[0]), *map(fact_text, args[1])])})", _ATOM),
}
