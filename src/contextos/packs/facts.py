"""`fact`, the root of all facts: conditions as Python objects, for authors who prefer them to text.

>>> str((fact.args.amount > 20) & ~(fact.args.env == "prod"))
'args.amount > 20 and not args.env == "prod"'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from contextos.packs.printing import print_condition


class FactExpression:
    """A fact, a calculation with facts, or a condition on them. `str` gives its text.

    Compare it, calculate with it, and combine conditions with `&`, `|` and `~`.
    """

    __slots__ = ("_logic", "_path")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, logic: Any, path: str = "") -> None:
        self._logic, self._path = logic, path

    def __getattr__(self, name: str) -> FactExpression:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> FactExpression:
        if self._logic is not None and not self._path:
            raise TypeError(f"`{self}` is a condition and has no part `{name}`; take parts of facts only")
        path = f"{self._path}.{name}" if self._path else name
        return FactExpression({"var": path}, path)

    def __str__(self) -> str:
        return print_condition(self._logic)

    def __repr__(self) -> str:
        return f"<{self}>" if self._logic is not None else "fact"

    def __bool__(self) -> NoReturn:
        raise TypeError(f"`{self}` is not evaluated here; combine conditions with `&`, `|` and `~`, in parentheses")

    def in_(self, values: Sequence[Any]) -> FactExpression:
        """Return the condition that this fact is one of `values`."""
        return self._apply("in", list(values))

    def _apply(self, name: str, other: Any) -> FactExpression:
        return FactExpression({name: [self._logic, _logic(other)]})

    def _apply_reversed(self, name: str, other: Any) -> FactExpression:
        return FactExpression({name: [_logic(other), self._logic]})

    def __eq__(self, other: object) -> FactExpression:  # type: ignore[override]
        return self._apply("==", other)

    def __ne__(self, other: object) -> FactExpression:  # type: ignore[override]
        return self._apply("!=", other)

    def __lt__(self, other: Any) -> FactExpression:
        return self._apply("<", other)

    def __le__(self, other: Any) -> FactExpression:
        return self._apply("<=", other)

    def __gt__(self, other: Any) -> FactExpression:
        return self._apply(">", other)

    def __ge__(self, other: Any) -> FactExpression:
        return self._apply(">=", other)

    def __and__(self, other: Any) -> FactExpression:
        return self._apply("and", other)

    def __or__(self, other: Any) -> FactExpression:
        return self._apply("or", other)

    def __invert__(self) -> FactExpression:
        return FactExpression({"!": [self._logic]})

    def __add__(self, other: Any) -> FactExpression:
        return self._apply("+", other)

    def __radd__(self, other: Any) -> FactExpression:
        return self._apply_reversed("+", other)

    def __sub__(self, other: Any) -> FactExpression:
        return self._apply("-", other)

    def __rsub__(self, other: Any) -> FactExpression:
        return self._apply_reversed("-", other)

    def __mul__(self, other: Any) -> FactExpression:
        return self._apply("*", other)

    def __rmul__(self, other: Any) -> FactExpression:
        return self._apply_reversed("*", other)


def _logic(value: Any) -> Any:
    return value._logic if isinstance(value, FactExpression) else value


fact: Final = FactExpression(None)
"""The root of all facts: `fact.evidence.ci.green == True`."""
